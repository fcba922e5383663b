"""Expected vote histograms, from assumptions or from a public proxy of the task."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, Self

import numpy as np
from scipy.special import betaincinv

from pate.errors import AccountingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

Meaning = Literal["right", "plurality"]

#: Most teachers of a plan.
MOST_TEACHERS: Final = 2**17
#: Default number of histograms, and accuracy of a teacher.
HISTOGRAMS = 2000
AGREEMENT: Final = 0.85
#: Shares of the largest spread, and of wrong votes on one class, between which published votes and teachers
#: of few records lie. A plan says what it is between these where they are not stated.
_SPREADS: Final = (0.2, 0.6)
_RIVALS: Final = (0.25, 0.75)
#: Histograms of each of these.
_FEW: Final = 400
_MOST_CLASSES: Final = 2**15
_MOST_CELLS: Final = 2**26


@dataclass(frozen=True, eq=False)
class Population:
    """Expected vote histograms, each with the label that counts as right."""

    # (queries, classes) int64, votes. Every row sums to the same number of teachers
    votes: Integers
    labels: Integers  # (queries,) int64, the label that counts
    # of the labels: ``right``, or ``plurality`` if the right ones are unknown; an "accuracy" is
    # then the agreement with the noiseless vote
    meaning: Meaning
    # under which they were drawn; empty for a proxy
    assumptions: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        votes, labels = self.votes, self.labels
        if votes.dtype != np.int64 or votes.ndim != 2 or votes.shape[1] < 2 or not len(votes):
            raise AccountingError(f"not a population of votes: {votes.dtype} of {votes.shape}")
        sums = votes.sum(axis=1)
        if votes.min() < 0 or sums.min() != sums.max() or not 0 < sums[0] <= MOST_TEACHERS:
            raise AccountingError(f"all queries need as many votes, from 1 to {MOST_TEACHERS}")
        if labels.dtype != np.int64 or labels.shape != (len(votes),):
            raise AccountingError(f"{len(votes)} queries have labels of shape {labels.shape}")
        if labels.min() < 0 or labels.max() >= votes.shape[1]:
            raise AccountingError(f"a label lies outside the {votes.shape[1]} classes")

    def __len__(self) -> int:
        return len(self.votes)

    @property
    def source(self) -> Literal["assumed", "proxy"]:
        """What the votes are made of."""
        return "assumed" if self.assumptions else "proxy"

    @property
    def teachers(self) -> int:
        """M."""
        return int(self.votes[0].sum())

    @property
    def classes(self) -> int:
        """Number of classes."""
        return int(self.votes.shape[1])

    @property
    def plurality_accuracy(self) -> float:
        """Accuracy of the plurality without noise: what no mechanism can be expected to beat."""
        return float((self.votes.argmax(axis=1) == self.labels).mean())

    @property
    def agreement(self) -> float:
        """Mean share of the teachers that vote for the label that counts."""
        return float(self.votes[np.arange(len(self)), self.labels].mean() / self.teachers)

    def thinned(self, most: int) -> Self:
        """Return at most ``most`` queries of it, evenly spaced: a public choice."""
        if len(self) <= most:
            return self
        rows = np.linspace(0, len(self) - 1, most).astype(np.int64)
        return replace(self, votes=self.votes[rows], labels=self.labels[rows])


def proxy_population(votes: Integers, labels: Integers | None = None) -> Population:
    """Return the population of a public proxy.

    ``votes``: (queries, classes) int64, of teachers like those to come on public queries;
    ``labels``: (queries,) int64, the right ones; None takes each query's plurality for right.
    """
    if labels is None:
        return Population(votes, votes.argmax(axis=1).astype(np.int64), "plurality")
    return Population(votes, labels, "right")


def assumed_population(
    *,
    teachers: int,
    classes: int = 10,
    agreement: float = AGREEMENT,  # accuracy of a teacher on its own, above 0 and up to 1
    # None for half of the largest there is, sqrt(agreement (1 - agreement)); what published votes
    # show is between 0.29 and 0.57 of it
    spread: float | None = None,
    rival: float = 0.5,  # from 0, errors all over the place, to 1, errors all alike
    size: int | None = None,  # number of histograms; None for :data:`HISTOGRAMS`
    seed: int = 0,
) -> Population:
    """Return histograms drawn under assumptions about the teachers.

    Query i has a difficulty p_i: each teacher is right on it with probability p_i, independently
    of the others. The p_i follow a beta law of mean ``agreement`` and standard deviation
    ``spread``, so that some queries are hard for all teachers at once; they are its quantiles at
    (i + 1/2) / size, which leaves only the votes to chance. A wrong vote falls on the query's one
    rival class with probability ``rival``, and otherwise on any wrong class alike.
    """
    size = HISTOGRAMS if size is None else size
    for name, value, least, most in (
        ("teachers", teachers, 1, MOST_TEACHERS),
        ("classes", classes, 2, _MOST_CLASSES),
        ("histograms", size, 1, _MOST_CELLS // max(1, classes)),
    ):
        if not least <= value <= most:
            raise UsageError(f"a plan needs from {least} to {most} {name}, got {value}")
    if not 0.0 < agreement <= 1.0 or not 0.0 <= rival <= 1.0:
        raise UsageError(
            f"agreement lies above 0 and at most at 1, rival from 0 to 1; got {agreement}, {rival}"
        )
    largest = math.sqrt(agreement * (1.0 - agreement))
    spread = largest / 2.0 if spread is None else spread
    if not 0.0 <= spread < largest and not spread == largest == 0.0:
        raise UsageError(
            f"a spread must lie from 0 to below {largest:.4g} if teachers are right with "
            f"probability {agreement:g}; got {spread:g}"
        )
    rng = np.random.default_rng(seed)
    right_chance = np.full(size, agreement)
    if spread > 1e-9:
        total = (largest / spread) ** 2 - 1.0
        middles = (np.arange(size) + 0.5) / size
        right_chance = betaincinv(agreement * total, (1.0 - agreement) * total, middles)
    right = rng.binomial(teachers, right_chance)
    alike = rng.binomial(teachers - right, rival)
    wrong = rng.multinomial(
        teachers - right - alike, np.full(classes - 1, 1.0 / (classes - 1)), size=size
    )
    wrong[np.arange(size), rng.integers(classes - 1, size=size)] += alike
    labels = rng.integers(classes, size=size)
    votes = np.empty((size, classes), np.int64)
    places = (labels[:, None] + np.arange(classes)) % classes
    np.put_along_axis(votes, places, np.column_stack([right, wrong]), axis=1)
    assumptions = {"agreement": agreement, "spread": spread, "rival": rival, "seed": seed}
    return Population(votes, labels.astype(np.int64), "right", assumptions)


def others_assumed(
    *,
    teachers: int,
    classes: int = 10,
    agreement: float = AGREEMENT,
    spread: float | None = None,
    rival: float | None = None,
) -> list[Population]:
    """Return populations of the same agreement, with least and most of each assumption that is not stated."""
    largest = math.sqrt(agreement * (1.0 - agreement))
    spreads = [part * largest for part in _SPREADS] if spread is None else [spread]
    rivals = _RIVALS if rival is None else (rival,)
    return [
        assumed_population(
            teachers=teachers, classes=classes, agreement=agreement, spread=of, rival=on, size=_FEW
        )
        for of in spreads
        for on in (rivals if classes > 2 else rivals[:1])
    ]
