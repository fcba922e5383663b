"""GNMax: the class with most votes after Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pate.accounting.events import Event, GaussianMax
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, noisy_argmax

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.noise.exact import Noise


@dataclass(frozen=True)
class GNMax(MechanismText):
    """Release argmax_j (n_j + N_Z(0, sigma^2)) for every query.

    Attributes:
        sigma: parameter of the noise on every class, in votes.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, section 4.1, with discrete noise.
    """

    sigma: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "gnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", GaussianMax(self.sigma, self.votes_per_unit).sigma)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event that a query reserves and uses."""
        return (GaussianMax(self.sigma, self.votes_per_unit),)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,  # noqa: ARG002  (one signature for all mechanisms)
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        labels = noisy_argmax(rows, noise.gaussian(self.sigma, rows.size))
        worst = self.worst
        return tuple(Outcome(label, "teachers", worst) for label in labels)
