"""Confident-GNMax: answer only where a noisy threshold test finds that the teachers agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pate.accounting.events import Event, GaussianMax, GaussianThreshold
from pate.mechanisms.contract import (
    MechanismText,
    Outcome,
    Votes,
    check_rows,
    check_threshold,
    noisy_argmax,
)

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.noise.exact import Noise


@dataclass(frozen=True)
class ConfidentGNMax(MechanismText):
    """If max_j n_j + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2; else nothing.

    Every query pays for the test, only those with a label for the label.

    Attributes:
        threshold: T, in votes.
        sigma1: parameter of the noise of the test, in votes.
        sigma2: parameter of the noise on every class, in votes.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, Algorithm 1, with discrete noise.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "confident-gnmax"
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check = GaussianThreshold(self.sigma1, self.votes_per_unit)
        label = GaussianMax(self.sigma2, self.votes_per_unit)
        object.__setattr__(self, "sigma1", check.sigma)
        object.__setattr__(self, "sigma2", label.sigma)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The threshold test and the label."""
        return (
            GaussianThreshold(self.sigma1, self.votes_per_unit),
            GaussianMax(self.sigma2, self.votes_per_unit),
        )

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,  # noqa: ARG002  (one signature for all mechanisms)
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        agreed = rows.max(axis=1) + noise.gaussian(self.sigma1, len(rows)) >= self.threshold
        chosen = rows[agreed]
        labels = iter(noisy_argmax(chosen, noise.gaussian(self.sigma2, chosen.size)))
        worst = self.worst
        return tuple(
            Outcome(next(labels), "teachers", worst) if yes else Outcome(None, None, worst[:1])
            for yes in np.asarray(agreed)
        )
