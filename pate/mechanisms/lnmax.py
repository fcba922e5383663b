"""LNMax: the class with most votes after Laplace noise, the mechanism of the first PATE paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pate.accounting.events import Event, LaplaceMax
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, noisy_argmax

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.noise.exact import Noise


@dataclass(frozen=True)
class LNMax(MechanismText):
    """Release argmax_j (n_j + Z_j) for every query, with P[Z_j = z] ~ exp(-|z|/scale).

    Attributes:
        scale: parameter of the noise on every class, in votes; the paper's 1/gamma.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2017, section 2.1, with discrete noise.
    """

    scale: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "lnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", LaplaceMax(self.scale, self.votes_per_unit).scale)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event that a query reserves and uses."""
        return (LaplaceMax(self.scale, self.votes_per_unit),)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,  # noqa: ARG002  (one signature for all mechanisms)
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        labels = noisy_argmax(rows, noise.laplace(self.scale, rows.size))
        worst = self.worst
        return tuple(Outcome(label, "teachers", worst) for label in labels)
