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
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Dataset, Table
from pate.errors import UsageError
from student.evaluation.figures import CONFIDENCE, Rate, rate_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.labels import LabelRow
    from student.lesson import Student

#: Most groups of one column; with more the column identifies people, not groups.
MOST_GROUPS: Final = 20


@dataclass(frozen=True)
class Gap:
    """A difference between the rates of two groups, at least 0, and its interval."""

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

    Source: Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 1998, method 10: Wilson intervals, combined.

    ``rates``: by name of the group; groups without inputs are skipped.
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
    """Rates of a student for each group of labelled public data, by the group's name."""

    classes: tuple[str, ...]
    accuracy: dict[str, Rate]  # share of the group's inputs that are right
    recalls: list[dict[str, Rate]]  # for each class, share of its inputs that are right
    # for each class, share of the inputs that were predicted as it: positive predictions
    predictions: list[dict[str, Rate]]
    shares: list[dict[str, Rate]]  # for each class, share of the inputs that are of it
    chosen: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(self.accuracy)

    @property
    def positive(self) -> int | None:
        """The positive one of two classes; None for more classes."""
        return self.chosen if len(self.classes) == 2 else None

    def gaps(self) -> dict[str, Gap | None]:
        """Return the widest gap in accuracy; for two classes also in the positive one.

        ``accuracy``; ``predicted``, the rate of positive predictions (demographic parity); and
        ``recall`` of the positive class (equal opportunity). The three hold together.
        """
        rates, at = {"accuracy": self.accuracy}, self.positive
        if at is not None:
            rates |= {"predicted": self.predictions[at], "recall": self.recalls[at]}
        return {name: widest_gap(each, comparisons=len(rates)) for name, each in rates.items()}

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        tables = {"recall": self.recalls, "predicted": self.predictions, "present": self.shares}
        return {
            "positive_class": None if self.positive is None else self.classes[self.positive],
            "gaps": {k: None if gap is None else gap.to_json() for k, gap in self.gaps().items()},
            "of": {
                name: {
                    "count": rate.count,
                    "accuracy": rate.to_json(),
                    **{
                        kind: {
                            c: t[name].to_json() for c, t in zip(self.classes, table, strict=True)
                        }
                        for kind, table in tables.items()
                    },
                }
                for name, rate in self.accuracy.items()
            },
        }


def group_column(data: Dataset, column: str) -> Dataset:
    """Return the same labelled rows, in groups called ``column = value``; the column stays an input."""
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
    """Return the data if its groups are few enough to be compared."""
    found = 0 if data.groups is None else len(np.unique(data.groups))
    if found > MOST_GROUPS:
        raise UsageError(
            f"{column!r} has {found} different values; group by one with at most {MOST_GROUPS}"
        )
    return data


def by_group(
    groups: NDArray[np.str_] | None,  # (n,) str, or None
    truth: NDArray[np.int64],  # (n,) the true classes
    predicted: NDArray[np.int64],  # (n,) the predicted ones
    classes: tuple[str, ...],
    *,
    positive: int = 1,  # of two classes the one whose rates are compared
    # (n,) whole numbers, equal for inputs of one patient; None if all are independent
    units: NDArray[np.int64] | None = None,
) -> Groups | None:
    """Return the rates by group; None without groups, or with too many.

    Groups of an archive may be patients, of whom there are many: they get no rates.
    """
    if groups is None:
        return None
    names, at = np.unique(groups, return_inverse=True)
    if len(names) > MOST_GROUPS:
        return None
    everyone = np.ones(len(truth), dtype=np.bool_)

    def rates(hits: NDArray[np.bool_], among: NDArray[np.bool_] = everyone) -> dict[str, Rate]:
        return {
            name: rate_of(hits, units, among & (at == group))
            for group, name in enumerate(names.tolist())
        }

    each = range(len(classes))
    return Groups(
        classes,
        rates(truth == predicted),
        [rates(predicted == one, truth == one) for one in each],
        [rates(predicted == one) for one in each],
        [rates(truth == one) for one in each],
        positive,
    )


@dataclass(frozen=True)
class Coverage:
    """Distribution of the released labels over the classes, by the finished student's predictions."""

    classes: tuple[str, ...]
    predicted: tuple[int, ...]  # per class, public inputs predicted as it
    labelled: tuple[int, ...]  # per class, how many of those inputs have any label
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
    """Return the distribution of all released labels over the classes predicted by a finished student."""
    size = len(student.classes)
    said = student.predict(public)
    queries = np.array([row.query for row in rows], dtype=np.int64)
    labels = np.array([row.label for row in rows], dtype=np.int64)

    def count(classes: NDArray[np.int64]) -> tuple[int, ...]:
        return tuple(np.bincount(classes, minlength=size).tolist())

    return Coverage(student.classes, count(said), count(said[queries]), count(labels))
