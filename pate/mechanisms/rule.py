"""The rule of teachers' votes, and its cases by the names of the papers.

Of each query, with votes n and expected votes r:

1. Without a threshold the teachers answer. With one they answer if max_j (n_j - r_j), with noise, reaches it.
   r is what the student's prediction makes likely (:func:`round_predictions`); without a student it is 0.
2. Their answer is argmax_j n_j, with noise on every count.
3. Where they do not answer, a prediction in which the student is confident is released: it is *reinforced*.
   Other queries have no label.

r is public and an integer, so the test has the sensitivity of a count; comparing with M p_j in floats and
rounding the margin afterwards can double it. Case 3 releases only the bit of the test; everything else that
it depends on is public.

Noise is drawn here, for the test and again for the label. Or, in the classes named Distributed, it is in the
votes already, a share from each party. The server that adds up the masked, noisy votes then sees the noisy
histogram of every query, so every query is charged for it, with a label or without; test and label both read
this one histogram, at no further cost. The largest of several noisy counts exceeds the largest count, so more
queries pass than with a separate test at the same threshold.

One view is always cheaper than two. A test on a separate noisy histogram, with sigma1, would show the server
that histogram too: k^2 (1/sigma1^2 + 1/sigma2^2). For the same price one view has noise
1/sqrt(1/sigma1^2 + 1/sigma2^2), less than either, for the test and for the label; with (150, 40) it is 38.65.
The cost of a test by a single noisy number, k^2 / (2 sigma1^2), applies to observers who see only its bit,
which the server does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from pate.accounting.events import Event, GaussianMax, GaussianThreshold, LaplaceMax, NoisyHistogram
from pate.errors import ProtocolError, UsageError
from pate.mechanisms.contract import (
    MOST_TEACHERS,
    MechanismText,
    Outcome,
    Votes,
    check_rows,
    check_threshold,
)
from pate.noise.share_laws import GaussianShares
from pate.noise.shares import share_sigma

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.errors import PateError
    from pate.mechanisms.contract import Mechanism
    from pate.noise.exact import Noise

#: Tolerance of the sum of a predicted distribution, for float32.
_SUM_TOLERANCE = 1e-3
#: What is released with noise of each parameter, in order.
_EVENTS: Final[dict[str, Callable[[Fraction, int], Event]]] = {
    "sigma1": GaussianThreshold,
    "scale": LaplaceMax,
    "sigma": GaussianMax,
    "sigma2": GaussianMax,
}


class TeacherRule(MechanismText):
    """The rule: expected counts, a threshold test, noise, arg max. Its cases have some of these parameters.

    Attributes:
        threshold: T, in votes; in a class with a student, in votes of margin.
        sigma1: parameter of the noise of the test, in votes.
        scale: parameter of Laplace noise on every class, in votes.
        sigma: parameter of Gaussian noise on every class, in votes.
        sigma2: the same after a test.
        share: parameter of each party's noise on every class, in votes.
        honest: shares in every sum that the observer does not know.
        confidence: of a prediction that may be reinforced, in [0, 1).
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.
    """

    votes_per_unit: int

    name: ClassVar[str]
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        given = vars(self)
        if "threshold" in given:
            check_threshold(given["threshold"])
        exact = list(self._events())
        if "confidence" in given:
            _check_confidence(given["confidence"])
            exact.append("confidence")
        for name in exact:
            object.__setattr__(self, name, Fraction(given[name]))

    def _events(self) -> dict[str, Event]:
        """Return what the most expensive outcome releases, by the parameter of its noise."""
        given = vars(self)
        return {
            name: event(given[name], self.votes_per_unit)
            for name, event in _EVENTS.items()
            if name in given
        }

    @property
    def worst(self) -> tuple[Event, ...]:
        """The test, if it has noise of its own, and the label: what a query reserves."""
        return tuple(self._events().values())

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`.

        If the noise is in the rows, the caller must ensure that predictions sum to the number of
        teachers, which noisy rows do not reveal.
        """
        rows = check_rows(rows, noisy=self.noise_inside)
        expected = self._expected(rows, predictions)
        asked = self._reached((rows - expected).max(axis=1), noise)
        chosen = rows[asked]
        labels = iter(noisy_argmax(chosen, self._drawn(noise, chosen.size)))
        worst = self.worst
        outcomes = []
        for yes, row in zip(asked.tolist(), expected, strict=True):
            if yes:
                outcomes.append(Outcome(next(labels), "teachers", worst))
            else:  # the first event: of the test, or of the histogram that both read
                label = self.reinforced(row)
                outcomes.append(Outcome(label, None if label is None else "reinforced", worst[:1]))
        return tuple(outcomes)

    def _expected(self, rows: Votes, predictions: Votes | None) -> Votes:
        """Return the (queries, classes) votes expected from the predictions, 0 without a student."""
        if not self.interactive:
            return np.zeros_like(rows)
        if predictions is None:
            raise UsageError(
                f"{self.name} needs the student's predictions; "
                f"without a student yet, label a first round with confident-gnmax"
            )
        expected = check_rows(predictions, "predictions")
        if expected.shape != rows.shape:
            raise ProtocolError(f"predictions {expected.shape} for votes {rows.shape}")
        if not self.noise_inside and not np.array_equal(expected.sum(axis=1), rows.sum(axis=1)):
            raise ProtocolError("predictions do not sum to the number of teachers")
        return expected

    def _reached(self, margins: Votes, noise: Noise) -> NDArray[np.bool_]:
        """Return (queries,) whether the teachers answer."""
        given = vars(self)
        if "threshold" not in given:
            return np.ones(len(margins), dtype=bool)
        if "sigma1" in given:
            margins = margins + noise.gaussian(given["sigma1"], len(margins))
        reached: NDArray[np.bool_] = margins >= given["threshold"]
        return reached

    def _drawn(self, noise: Noise, count: int) -> Votes:
        """Return the noise of the labels: none where the rows have it, and only there.

        Raises:
            UsageError: for a case without noise of its labels.
        """
        if self.noise_inside:
            return np.zeros(count, dtype=np.int64)
        label = self.worst[-1]
        if isinstance(label, LaplaceMax):
            return noise.laplace(label.scale, count)
        if isinstance(label, GaussianMax):
            return noise.gaussian(label.sigma, count)
        raise UsageError(f"{self.name} states no noise of its labels: nothing is released")

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class that the student predicts confidently, None if there is none.

        Args:
            expected: (classes,) votes expected from the student's prediction, public.
        """
        confidence: Fraction | None = vars(self).get("confidence")
        # Exact: confidence * M is compared as integers, cross-multiplied by Fraction.
        if confidence is None or int(expected.max()) <= confidence * int(expected.sum()):
            return None
        return int(expected.argmax())


@dataclass(frozen=True)
class LNMax(TeacherRule):
    """Release argmax_j (n_j + Z_j) for every query, with P[Z_j = z] ~ exp(-|z|/scale); the paper has 1/gamma.

    Source: Papernot et al. 2017, section 2.1, with discrete noise.
    """

    scale: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "lnmax"


@dataclass(frozen=True)
class GNMax(TeacherRule):
    """Release argmax_j (n_j + N_Z(0, sigma^2)) for every query.

    Source: Papernot et al. 2018, section 4.1, with discrete noise.
    """

    sigma: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "gnmax"


@dataclass(frozen=True)
class ConfidentGNMax(TeacherRule):
    """If max_j n_j + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2; else nothing.

    Every query pays for the test, only those with a label for the label.

    Source: Papernot et al. 2018, Algorithm 1, with discrete noise.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "confident-gnmax"


@dataclass(frozen=True)
class InteractiveGNMax(TeacherRule):
    """Compare the votes n of M teachers with r_j = M p_j, rounded, of the student's prediction p.

    - If max_j (n_j - r_j) + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2;
    - else, if max_j r_j > confidence * M, release argmax_j r_j, the reinforced prediction;
    - else nothing.

    Source: Papernot et al. 2018, Algorithm 2, with discrete noise and integer expectations.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "interactive-gnmax"
    interactive: ClassVar[bool] = True


class DistributedTeachers(TeacherRule):
    """The rule on votes that contain the parties' Gaussian noise."""

    share: Fraction
    honest: int

    noise_inside: ClassVar[bool] = True

    @property
    def shares(self) -> GaussianShares:
        """The law of the parties' noise."""
        return GaussianShares(self.share)

    def _events(self) -> dict[str, Event]:
        """Return the histogram, which every query reserves and uses, answered or not."""
        return {"share": NoisyHistogram(self.share, self.honest, self.votes_per_unit)}


@dataclass(frozen=True)
class DistributedGNMax(DistributedTeachers):
    """Release the arg max of every noisy histogram.

    Source: Papernot et al. 2018, section 4.1, with the noise of several parties.
    """

    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-gnmax"


@dataclass(frozen=True)
class DistributedConfidentGNMax(DistributedTeachers):
    """If a noisy histogram reaches the threshold somewhere, release its arg max; else nothing.

    Source: after Papernot et al. 2018, Algorithm 1, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    votes_per_unit: int

    name: ClassVar[str] = "distributed-confident-gnmax"


@dataclass(frozen=True)
class DistributedInteractiveGNMax(DistributedTeachers):
    """If max_j (n_j - r_j) >= threshold, release argmax_j n_j; else as :class:`InteractiveGNMax`.

    Source: after Papernot et al. 2018, Algorithm 2, with one view of the votes in place of two.
    """

    threshold: int
    share: Fraction
    honest: int
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "distributed-interactive-gnmax"
    interactive: ClassVar[bool] = True


_OVER_NOISY_SUMS: Final[dict[type, Callable[..., DistributedTeachers]]] = {
    GNMax: DistributedGNMax,
    ConfidentGNMax: DistributedConfidentGNMax,
    InteractiveGNMax: DistributedInteractiveGNMax,
}


def over_noisy_sums(mechanism: Mechanism, honest: int) -> DistributedTeachers:
    """Return the same rule on noisy histograms, with at least the noise of its labels guaranteed.

    sigma1 is unused: the test reads the same histogram. ``honest``: shares in every sum that the observer
    does not know.

    Raises:
        UsageError: for a mechanism that draws no Gaussian noise itself.
    """
    kind = _OVER_NOISY_SUMS.get(type(mechanism))
    if kind is None:
        raise UsageError(
            f"{mechanism.name} does not support noise shares; "
            "use gnmax, confident-gnmax or interactive-gnmax"
        )
    given = vars(mechanism)
    kept = {name: given[name] for name in ("threshold", "confidence") if name in given}
    share = share_sigma(given.get("sigma") or given["sigma2"], honest)
    return kind(share=share, honest=honest, votes_per_unit=mechanism.votes_per_unit, **kept)


def noisy_argmax(rows: Votes, noise: Votes) -> list[int]:
    """Return the class with most noisy votes of each row, the lowest index among equals."""
    return [int(label) for label in np.argmax(rows + noise.reshape(rows.shape), axis=1)]


def sums_of_predictions(given: NDArray[np.floating], error: type[PateError]) -> NDArray[np.float64]:
    """Return the sum of each row of (queries, classes) predictions, (queries, 1), if it is nearly 1."""
    # Infinity and NaN fail here as well: before any arithmetic could warn of them.
    if not bool(np.all((given >= 0.0) & (given <= 1.0 + _SUM_TOLERANCE))):
        raise error("a prediction is NaN, negative or above 1")
    sums: NDArray[np.float64] = given.sum(axis=1, dtype=np.float64, keepdims=True)
    if not bool(np.all(np.abs(sums - 1.0) <= _SUM_TOLERANCE)):
        row = int(np.argmax(np.abs(sums[:, 0] - 1.0)))
        raise error(f"the predictions of query {row} sum to {sums[row, 0]:.6g}, not to 1")
    return sums


def _check_confidence(confidence: Fraction) -> None:
    if type(confidence) not in (Fraction, int):  # no floats, no bools
        raise UsageError(f"confidence must be exact, got {confidence!r}: give a Fraction")
    if not 0 <= confidence < 1:
        raise UsageError(f"confidence must be at least 0 and below 1, got {confidence}")


def round_predictions(probabilities: NDArray[np.floating], teachers: int) -> Votes:
    """Return (queries, classes) int64, the votes expected from predictions: each row sums to ``teachers``.

    Each row is scaled to sum to exactly 1, multiplied by M and rounded down; the missing votes go
    to the largest remainders, the lowest index among equals. Everything here is public.

    >>> round_predictions(np.array([[0.5, 0.25, 0.25]]), 10)
    array([[5, 3, 2]])

    Args:
        probabilities: (queries, classes), each row a distribution.
        teachers: M, number of voting teachers.

    Raises:
        ProtocolError: for anything that is not a float matrix of distributions: another shape,
            NaN, negative values, a row that is more than 1e-3 away from summing to 1.
        UsageError: for a number of teachers that makes no sense.
    """
    if not 1 <= teachers <= MOST_TEACHERS:
        raise UsageError(f"there cannot be {teachers} teachers")
    if not np.issubdtype(probabilities.dtype, np.floating):
        raise ProtocolError(f"predictions are {probabilities.dtype}, not floats")
    if probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise ProtocolError(
            f"predictions of shape {probabilities.shape} are not (queries, at least 2 classes)"
        )
    given = probabilities.astype(np.float64)
    sums = sums_of_predictions(given, ProtocolError)
    shares = given / sums * teachers
    floors = np.floor(shares)
    votes: Votes = floors.astype(np.int64)
    missing = teachers - votes.sum(axis=1, keepdims=True)
    by_remainder = np.argsort(floors - shares, axis=1, kind="stable")
    rank = np.empty_like(by_remainder)
    np.put_along_axis(rank, by_remainder, np.arange(votes.shape[1])[None, :], axis=1)
    votes += rank < missing
    return votes
