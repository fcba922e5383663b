"""Mechanisms over noisy histograms: the noise is in the rows already, a share from each party.

The server that adds up the parties' masked, noisy votes sees the noisy histogram of every query, so
every query is charged for it, with a label or without. Threshold test and label both read this one
histogram, at no further cost.

One view is always cheaper than two. A test on a separate noisy histogram, with sigma1, would show
the server that histogram too: k^2 (1/sigma1^2 + 1/sigma2^2). For the same price one view has noise
1/sqrt(1/sigma1^2 + 1/sigma2^2), less than either, for the test and for the label; with (150, 40) it
is 38.65. The cost of a test by a single noisy number, k^2 / (2 sigma1^2), applies to observers who
see only its bit, which the server does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pate.accounting.events import Event, NoisyHistogram
from pate.errors import UsageError
from pate.mechanisms.confident import ConfidentGNMax
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, check_threshold
from pate.mechanisms.gnmax import GNMax
from pate.mechanisms.interactive import (
    InteractiveGNMax,
    check_confidence,
    check_expected,
    labelled,
    reinforced_by,
)
from pate.mechanisms.neighbour import DistributedNeighbour
from pate.noise.share_laws import GaussianShares
from pate.noise.shares import share_sigma

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.mechanisms.contract import Mechanism
    from pate.noise.exact import Noise


class _OneView(MechanismText):
    """Common part of the three: one histogram that contains the parties' noise."""

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str]
    interactive: ClassVar[bool]
    noise_inside: ClassVar[bool] = True

    @property
    def shares(self) -> GaussianShares:
        """The law of the parties' noise."""
        return GaussianShares(self.share)

    @property
    def _event(self) -> NoisyHistogram:
        return NoisyHistogram(self.share, self.honest, self.votes_per_unit)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The histogram, which every query reserves and uses, answered or not."""
        return (self._event,)

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """See the mechanisms."""
        raise NotImplementedError


@dataclass(frozen=True)
class DistributedGNMax(_OneView):
    """Release the arg max of every noisy histogram.

    Attributes:
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, section 4.1, with the noise of several parties.
    """

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-gnmax"
    interactive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", self._event.share)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,  # noqa: ARG002  (one signature for all mechanisms)
        predictions: Votes | None = None,  # noqa: ARG002
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows, worst = check_rows(rows, noisy=True), self.worst
        return tuple(Outcome(label, "teachers", worst) for label in rows.argmax(axis=1).tolist())


@dataclass(frozen=True)
class DistributedConfidentGNMax(_OneView):
    """If a noisy histogram reaches the threshold somewhere, release its arg max; else nothing.

    The test reads the same noisy counts as the label: the label is the class whose noisy count
    passed. The largest of several noisy counts exceeds the largest count, so more queries pass than
    with a separate test at the same threshold.

    Attributes:
        threshold: T, in votes.
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: after Papernot et al. 2018, Algorithm 1, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-confident-gnmax"
    interactive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "share", self._event.share)

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,  # noqa: ARG002  (one signature for all mechanisms)
        predictions: Votes | None = None,  # noqa: ARG002
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows, worst = check_rows(rows, noisy=True), self.worst
        passed = (rows.max(axis=1) >= self.threshold).tolist()
        return tuple(
            Outcome(label, "teachers", worst) if yes else Outcome(None, None, worst)
            for yes, label in zip(passed, rows.argmax(axis=1).tolist(), strict=True)
        )


@dataclass(frozen=True)
class DistributedInteractiveGNMax(_OneView):
    """Interactive-GNMax on noisy votes n: the same rule, margin and label from one histogram.

    With r as in :class:`~pate.mechanisms.interactive.InteractiveGNMax`: if max_j (n_j - r_j) >=
    threshold, release the arg max of n; else reinforce a confident prediction, or release nothing.

    Attributes:
        threshold: T, in votes of margin.
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        confidence: of a prediction that may be reinforced, in [0, 1).
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: after Papernot et al. 2018, Algorithm 2, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "distributed-interactive-gnmax"
    interactive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "share", self._event.share)
        object.__setattr__(self, "confidence", check_confidence(self.confidence))

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,  # noqa: ARG002  (one signature for all mechanisms)
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer noisy votes; see :class:`~pate.mechanisms.contract.Mechanism`.

        The caller must ensure that predictions sum to the number of teachers, which noisy rows do
        not reveal.
        """
        rows, worst = check_rows(rows, noisy=True), self.worst
        expected = check_expected(self.name, rows, predictions)
        disagreed = (rows - expected).max(axis=1) >= self.threshold
        labels = rows[disagreed].argmax(axis=1).tolist()
        return labelled(disagreed, labels, expected, self, asked=worst, answered=worst)

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class that the student predicts confidently, None if there is none."""
        return reinforced_by(expected, self.confidence)


#: Those of teachers' votes, whose noise is Gaussian.
DistributedTeachers = DistributedGNMax | DistributedConfidentGNMax | DistributedInteractiveGNMax
#: Mechanisms whose rows contain the parties' noise.
DistributedMechanism = DistributedTeachers | DistributedNeighbour


def over_noisy_sums(mechanism: Mechanism, honest: int) -> DistributedTeachers:
    """Return the same rule on noisy histograms, with at least the noise sigma2 guaranteed.

    sigma1 is unused: the test reads the same histogram.

    Args:
        mechanism: one that draws Gaussian noise itself.
        honest: shares in every sum that the observer does not know.

    Raises:
        UsageError: for any other mechanism.
    """
    k = mechanism.votes_per_unit
    if isinstance(mechanism, GNMax):
        return DistributedGNMax(share_sigma(mechanism.sigma, honest), honest, k)
    if isinstance(mechanism, ConfidentGNMax):
        share = share_sigma(mechanism.sigma2, honest)
        return DistributedConfidentGNMax(mechanism.threshold, share, honest, k)
    if isinstance(mechanism, InteractiveGNMax):
        share = share_sigma(mechanism.sigma2, honest)
        return DistributedInteractiveGNMax(
            mechanism.threshold, share, honest, mechanism.confidence, k
        )
    raise UsageError(
        f"{mechanism.name} does not support noise shares; "
        "use gnmax, confident-gnmax or interactive-gnmax"
    )
