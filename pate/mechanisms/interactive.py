"""Interactive-GNMax: pay for a label only where the teachers disagree with the student."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from pate.accounting.events import Event, GaussianMax, GaussianThreshold
from pate.errors import ProtocolError, UsageError
from pate.mechanisms.contract import (
    MOST_TEACHERS,
    MechanismText,
    Outcome,
    Votes,
    check_rows,
    check_threshold,
    noisy_argmax,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.noise.exact import Noise

#: Tolerance of the sum of a predicted distribution, for float32.
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class InteractiveGNMax(MechanismText):
    """Compare the votes n with the votes r expected from the student's prediction p.

    With r_j = M p_j rounded to integers that sum to M (:func:`round_predictions`):

    - if max_j (n_j - r_j) + N_Z(0, sigma1^2) >= threshold, release GNMax with sigma2;
    - else, if max_j r_j > confidence * M, release argmax_j r_j: the prediction is *reinforced*;
    - else nothing.

    r is public and an integer, so the test has the sensitivity of a count; comparing with M p_j in
    floats and rounding the margin afterwards can double it. The last two cases release only the bit
    of the test; everything else they depend on is public.

    Attributes:
        threshold: T, in votes of margin.
        sigma1: parameter of the noise of the test, in votes.
        sigma2: parameter of the noise on every class, in votes.
        confidence: of a prediction that may be reinforced, in [0, 1).
        votes_per_unit: votes that one unit of privacy can move.

    Raises:
        UsageError: for parameters that make no sense.

    Source: Papernot et al. 2018, Algorithm 2, with discrete noise and integer expectations.
    """

    threshold: int
    sigma1: Fraction
    sigma2: Fraction
    confidence: Fraction
    votes_per_unit: int

    name: ClassVar[str] = "interactive-gnmax"
    interactive: ClassVar[bool] = True
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        check = GaussianThreshold(self.sigma1, self.votes_per_unit)
        label = GaussianMax(self.sigma2, self.votes_per_unit)
        object.__setattr__(self, "sigma1", check.sigma)
        object.__setattr__(self, "sigma2", label.sigma)
        object.__setattr__(self, "confidence", check_confidence(self.confidence))

    @property
    def worst(self) -> tuple[Event, ...]:
        """The threshold test and the label."""
        return (
            GaussianThreshold(self.sigma1, self.votes_per_unit),
            GaussianMax(self.sigma2, self.votes_per_unit),
        )

    def answer_all(
        self, rows: Votes, noise: Noise, predictions: Votes | None = None
    ) -> tuple[Outcome, ...]:
        """Answer (queries, classes) votes; see :class:`~pate.mechanisms.contract.Mechanism`."""
        rows = check_rows(rows)
        expected = check_expected(self.name, rows, predictions)
        if not np.array_equal(expected.sum(axis=1), rows.sum(axis=1)):
            raise ProtocolError("predictions do not sum to the number of teachers")
        margins = (rows - expected).max(axis=1)
        disagreed = margins + noise.gaussian(self.sigma1, len(rows)) >= self.threshold
        chosen = rows[disagreed]
        labels = noisy_argmax(chosen, noise.gaussian(self.sigma2, chosen.size))
        worst = self.worst
        return labelled(disagreed, labels, expected, self, asked=worst[:1], answered=worst)

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class that the student predicts confidently; see :func:`reinforced_by`."""
        return reinforced_by(expected, self.confidence)


class Reinforcing(Protocol):
    """A mechanism that confirms a prediction where the teachers do not object."""

    def reinforced(self, expected: Votes) -> int | None:
        """Return the class of (classes,) expected votes that the student predicts confidently."""


def check_confidence(confidence: Fraction) -> Fraction:
    """Return ``confidence`` if it is exact and in [0, 1), else raise UsageError."""
    if type(confidence) not in (Fraction, int):  # no floats, no bools
        raise UsageError(f"confidence must be exact, got {confidence!r}: give a Fraction")
    if not 0 <= confidence < 1:
        raise UsageError(f"confidence must be at least 0 and below 1, got {confidence}")
    return Fraction(confidence)


def check_expected(name: str, rows: Votes, predictions: Votes | None) -> Votes:
    """Return the (queries, classes) votes expected from the predictions.

    Raises:
        UsageError: if there are none.
        ProtocolError: if they are invalid, or have another shape than ``rows``.
    """
    if predictions is None:
        raise UsageError(
            f"{name} needs the student's predictions; "
            f"without a student yet, label a first round with confident-gnmax"
        )
    expected = check_rows(predictions, "predictions")
    if expected.shape != rows.shape:
        raise ProtocolError(f"predictions {expected.shape} for votes {rows.shape}")
    return expected


def reinforced_by(expected: Votes, confidence: Fraction) -> int | None:
    """Return the class with more than ``confidence`` of the expected votes, None if there is none.

    Args:
        expected: (classes,) votes expected from the student's prediction, public.
        confidence: in [0, 1).
    """
    # Exact: confidence * M is compared as integers, cross-multiplied by Fraction.
    sure = int(expected.max()) > confidence * int(expected.sum())
    return int(expected.argmax()) if sure else None


def labelled(
    disagreed: NDArray[np.bool_],
    labels: Sequence[int],
    expected: Votes,
    mechanism: Reinforcing,
    *,
    asked: tuple[Event, ...],
    answered: tuple[Event, ...],
) -> tuple[Outcome, ...]:
    """Return the outcomes of queries, in order.

    Args:
        disagreed: (queries,) whether the test finds that the teachers disagree with the student.
        labels: the teachers' labels where they do.
        expected: (queries, classes) votes expected from the predictions.
        mechanism: decides which other predictions are reinforced.
        asked: events of a query without a teachers' label.
        answered: events of a query with one.
    """
    given = iter(labels)
    outcomes = []
    for teachers, row in zip(disagreed.tolist(), expected, strict=True):
        if teachers:
            outcomes.append(Outcome(next(given), "teachers", answered))
        else:
            label = mechanism.reinforced(row)
            outcomes.append(Outcome(label, None if label is None else "reinforced", asked))
    return tuple(outcomes)


def round_predictions(probabilities: NDArray[np.floating], teachers: int) -> Votes:
    """Return the votes expected from predictions: integers that sum to ``teachers``.

    Each row is scaled to sum to exactly 1, multiplied by M and rounded down; the missing votes go
    to the largest remainders, the lowest index among equals. Everything here is public.

    >>> round_predictions(np.array([[0.5, 0.25, 0.25]]), 10)
    array([[5, 3, 2]])

    Args:
        probabilities: (queries, classes), each row a distribution.
        teachers: M, number of voting teachers.

    Returns:
        (queries, classes) int64.

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
    # Infinity and NaN fail here as well: before any arithmetic could warn of them.
    if not bool(np.all((given >= 0.0) & (given <= 1.0 + _SUM_TOLERANCE))):
        raise ProtocolError("a prediction is NaN, negative or above 1")
    sums = given.sum(axis=1, keepdims=True)
    if not bool(np.all(np.abs(sums - 1.0) <= _SUM_TOLERANCE)):
        row = int(np.argmax(np.abs(sums[:, 0] - 1.0)))
        raise ProtocolError(f"the predictions of query {row} sum to {sums[row, 0]:.6g}, not to 1")
    shares = given / sums * teachers
    floors = np.floor(shares)
    votes: Votes = floors.astype(np.int64)
    missing = teachers - votes.sum(axis=1, keepdims=True)
    by_remainder = np.argsort(floors - shares, axis=1, kind="stable")
    rank = np.empty_like(by_remainder)
    np.put_along_axis(rank, by_remainder, np.arange(votes.shape[1])[None, :], axis=1)
    votes += rank < missing
    return votes
