"""Fairness: rates of a student per class and per group, with their sampling errors.

PATE widens gaps: teachers of small shards disagree most on rare classes and groups, so these get
fewer and worse labels (Uniyal et al. 2021, arXiv 2106.12576; Tran et al. 2021, arXiv 2109.08630).
Everything here is computed from public data: labelled public data, the public set, and released
labels. So it costs no privacy, and says nothing about the private records themselves. A share of
few inputs is a rough measure, so each has its Wilson interval, and a difference between two groups
counts only if it is significant.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Dataset, Table
from pate.errors import DataError, UsageError
from student.evaluation.rates import CONFIDENCE, Rate, rate_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.labels import LabelRow
    from student.trainers.base import Student

#: Most groups of one column; with more the column identifies people, not groups.
MOST_GROUPS: Final = 20


@dataclass(frozen=True)
class Gap:
    """A difference between the rates of two groups.

    Attributes:
        higher: name of the group with the higher rate.
        lower: name of the other.
        difference: of the two shares, at least 0.
        low: lower end of its interval; above 0 if the difference is significant.
        high: upper end.
    """

    higher: str
    lower: str
    difference: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether the difference is significant."""
        return self.low > 0

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {**vars(self), "told_apart": self.told}


def widest_gap(rates: Mapping[str, Rate], *, comparisons: int = 1) -> Gap | None:
    """Return the pair of groups with the largest significant difference, None without a pair.

    That is the pair with the highest lower bound, not the one with the largest difference: a group
    of five is often extreme by chance. The intervals hold simultaneously (Bonferroni), so choosing
    the pair afterwards is valid.

    Args:
        rates: by name of the group; groups without inputs are skipped.
        comparisons: number of simultaneous comparisons.

    Source: Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 1998, method 10: Wilson intervals, combined.
    """
    counted = {name: rate for name, rate in rates.items() if rate.count}
    pairs = list(itertools.combinations(counted, 2))
    doubt = (1.0 - CONFIDENCE) / max(1, len(pairs) * comparisons)
    ends = {name: rate.interval(doubt) for name, rate in counted.items()}
    shares = {name: rate.hits / rate.count for name, rate in counted.items()}
    found: list[Gap] = []
    for pair in pairs:
        lower, higher = sorted(pair, key=shares.__getitem__)
        difference = shares[higher] - shares[lower]
        down = np.hypot(shares[higher] - ends[higher][0], ends[lower][1] - shares[lower])
        up = np.hypot(ends[higher][1] - shares[higher], shares[lower] - ends[lower][0])
        found.append(
            Gap(higher, lower, difference, difference - float(down), difference + float(up))
        )
    return max(found, key=lambda gap: (gap.low, gap.difference), default=None)


@dataclass(frozen=True, eq=False)
class Groups:
    """Confusion matrices of a student for each group of labelled public data.

    Attributes:
        names: of the groups.
        classes: class names.
        confusion: (groups, classes, classes) int64; of each group a row per true class, a column
            per predicted one.
        chosen: of two classes the positive one.
        independent: by kind of rate, and of the class if it is of one, the number of independent
            inputs in each group; None if all inputs are independent.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    chosen: int = 1
    independent: Mapping[tuple[str, int], list[float | None]] | None = None

    def __post_init__(self) -> None:
        if self.confusion.shape != (len(self.names), *2 * (len(self.classes),)):
            raise DataError(f"{len(self.names)} groups but counts of {self.confusion.shape}")
        self.confusion.setflags(write=False)

    @cached_property
    def accuracy(self) -> dict[str, Rate]:
        """Accuracy of each group."""
        right = np.trace(self.confusion, axis1=1, axis2=2)
        return self._rates(right, self._counts, "accuracy")

    def recall(self, at: int) -> dict[str, Rate]:
        """Recall of class ``at`` in each group."""
        return self._rates(
            self.confusion[:, at, at], self.confusion[:, at].sum(axis=1), "recall", at
        )

    def predicted(self, at: int) -> dict[str, Rate]:
        """Share of each group's inputs that were predicted as class ``at``: positive predictions."""
        return self._rates(self.confusion[:, :, at].sum(axis=1), self._counts, "predicted", at)

    def present(self, at: int) -> dict[str, Rate]:
        """Share of each group's inputs that are of class ``at``."""
        return self._rates(self.confusion[:, at].sum(axis=1), self._counts, "present", at)

    @property
    def positive(self) -> int | None:
        """The positive one of two classes; None for more classes."""
        return self.chosen if len(self.classes) == 2 else None

    def gaps(self) -> dict[str, Gap | None]:
        """Return the widest gap in accuracy; for two classes also in the positive one.

        ``accuracy``; ``predicted``, the rate of positive predictions (demographic parity); and
        ``recall`` of the positive class (equal opportunity). The three hold together.
        """
        at = self.positive
        if at is None:
            return {"accuracy": widest_gap(self.accuracy)}
        rates = {
            "accuracy": self.accuracy,
            "predicted": self.predicted(at),
            "recall": self.recall(at),
        }
        return {name: widest_gap(each, comparisons=len(rates)) for name, each in rates.items()}

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        per_class = {"recall": self.recall, "predicted": self.predicted, "present": self.present}
        tables = {
            name: [rates(at) for at in range(len(self.classes))]
            for name, rates in per_class.items()
        }
        return {
            "positive_class": None if self.positive is None else self.classes[self.positive],
            "gaps": {k: None if gap is None else gap.to_json() for k, gap in self.gaps().items()},
            "of": {
                name: {
                    "count": int(count),
                    "accuracy": self.accuracy[name].to_json(),
                    **{
                        kind: {
                            c: t[name].to_json() for c, t in zip(self.classes, table, strict=True)
                        }
                        for kind, table in tables.items()
                    },
                }
                for name, count in zip(self.names, self._counts, strict=True)
            },
        }

    @property
    def _counts(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self.confusion.sum(axis=(1, 2))
        return counts

    def _rates(
        self, hits: NDArray[np.int64], counts: NDArray[np.int64], kind: str, at: int = 0
    ) -> dict[str, Rate]:
        known = self.independent
        worth = [None] * len(self.names) if known is None else known[kind, at]
        rows = zip(self.names, hits.tolist(), counts.tolist(), worth, strict=True)
        return {name: Rate(hit, count, each) for name, hit, count, each in rows}


def group_column(data: Dataset, column: str) -> Dataset:
    """Return the same labelled rows, grouped by one of their columns.

    The column stays among the inputs, since the student may need it; groups are called
    ``column = value``.

    Raises:
        UsageError: if the inputs are not a table, lack the column, or it has too many values.
    """
    if not isinstance(data.inputs, Table):
        raise UsageError(f"images have no column {column!r}; put an array of groups into an .npz")
    if column not in data.inputs.names:
        raise UsageError(
            f"the data has no column {column!r} to group by; it has: {', '.join(data.inputs.names)}"
        )
    (cells,) = data.inputs.aligned((column,), (False,)).columns
    values, at = np.unique(cells, return_inverse=True)
    names = np.array([f"{column} = {value or '(missing)'}" for value in values.tolist()])
    return require_groups(Dataset(data.inputs, data.labels, data.classes, names[at]), column)


def require_groups(data: Dataset, column: str) -> Dataset:
    """Return the data if its groups are few enough to be compared.

    Raises:
        UsageError: if they are more than :data:`MOST_GROUPS`.
    """
    found = 0 if data.groups is None else len(np.unique(data.groups))
    if found > MOST_GROUPS:
        raise UsageError(
            f"{column!r} has {found} different values; group by one with at most {MOST_GROUPS}"
        )
    return data


def by_group(
    groups: NDArray[np.str_] | None,
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    classes: tuple[str, ...],
    *,
    positive: int = 1,
    units: NDArray[np.int64] | None = None,
) -> Groups | None:
    """Return the confusion matrices by group; None without groups, or with too many.

    Groups of an archive may be patients, of whom there are many: they get no rates.

    Args:
        groups: (n,) str, or None.
        truth: (n,) the true classes.
        predicted: (n,) the predicted ones.
        classes: class names.
        positive: of two classes the one whose rates are compared.
        units: (n,) whole numbers, equal for inputs of one patient; None if all are independent.
    """
    if groups is None:
        return None
    names, at = np.unique(groups, return_inverse=True)
    if len(names) > MOST_GROUPS:
        return None
    shape = (len(names), len(classes), len(classes))
    cells = np.ravel_multi_index((at, truth, predicted), shape)
    confusion = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)
    return Groups(
        tuple(names.tolist()),
        classes,
        confusion.astype(np.int64),
        positive,
        None if units is None else _independent(at, truth, predicted, len(classes), units),
    )


def _independent(
    groups: NDArray[np.intp],
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    classes: int,
    units: NDArray[np.int64],
) -> dict[tuple[str, int], list[float | None]]:
    """Return the numbers of independent inputs behind each rate of :class:`Groups`."""
    everyone = np.ones(len(truth), dtype=bool)

    def each(hits: NDArray[np.bool_], among: NDArray[np.bool_]) -> list[float | None]:
        rows = [among & (groups == at) for at in range(int(groups.max()) + 1)]
        return [rate_of(hits[some], units[some]).independent for some in rows]

    found = {("accuracy", 0): each(truth == predicted, everyone)}
    for at in range(classes):
        found["recall", at] = each(predicted == at, truth == at)
        found["predicted", at] = each(predicted == at, everyone)
        found["present", at] = each(truth == at, everyone)
    return found


@dataclass(frozen=True)
class Coverage:
    """Distribution of the released labels over the classes.

    The true class of a public input is unknown here. So inputs are counted by the class that the
    finished student predicts, errors included.

    Attributes:
        classes: class names.
        predicted: per class, public inputs predicted as it.
        labelled: per class, how many of those inputs have any label.
        released: per class, labels with it.
    """

    classes: tuple[str, ...]
    predicted: tuple[int, ...]
    labelled: tuple[int, ...]
    released: tuple[int, ...]

    @property
    def rates(self) -> dict[str, Rate]:
        """Share of the inputs predicted to be of each class that got a label."""
        rows = zip(self.classes, self.labelled, self.predicted, strict=True)
        return {name: Rate(labelled, predicted) for name, labelled, predicted in rows}

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        gap = widest_gap(self.rates)
        return {
            "answered": {name: rate.to_json() for name, rate in self.rates.items()},
            "released": dict(zip(self.classes, self.released, strict=True)),
            "gap": None if gap is None else gap.to_json(),
        }


def coverage(student: Student, public: Inputs, rows: Sequence[LabelRow]) -> Coverage:
    """Return the distribution of the labels over the classes predicted by a finished student.

    Args:
        student: trained on these labels.
        public: the public set.
        rows: all released labels.
    """
    size = len(student.classes)
    said = student.predict(public)
    queries = np.array([row.query for row in rows], dtype=np.int64)
    labels = np.array([row.label for row in rows], dtype=np.int64)

    def count(classes: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(np.bincount(classes, minlength=size).tolist())

    return Coverage(student.classes, count(said), count(said[queries]), count(labels))
