"""Figures with 95 % intervals, where inputs may come in patients.

A share has Wilson's interval, which also holds for twenty of twenty. Any other figure has one by
bootstrap: its units, which are the patients or else the inputs, are drawn again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Rows = NDArray[np.intp]
    Units = NDArray[np.int64]

#: Confidence level of every interval.
CONFIDENCE: Final = 0.95
_TAIL: Final = (1.0 + CONFIDENCE) / 2.0
#: Times that units are drawn again.
_DRAWN: Final = 200
#: A standard error below this is zero but for rounding.
_NOTHING: Final = 1e-12


@dataclass(frozen=True)
class Rate:
    """A share of some inputs.

    >>> Rate(20, 20).interval()[0] < 0.85  # twenty of twenty is no certainty
    True
    """

    hits: int  # number with the property, from 0 to ``count``
    count: int
    # number of independent inputs that is worth as much; None: ``count``
    independent: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.count:
            raise DataError(f"{self.hits} of {self.count} is not a share")

    def __str__(self) -> str:
        """Return it with its interval in brackets."""
        return "none" if self.share is None else f"{self.share:.1%} ({self.ends})"

    @property
    def share(self) -> float | None:
        """Hits over count; None without inputs."""
        return self.hits / self.count if self.count else None

    @property
    def ends(self) -> str:
        """The interval in words."""
        return "{:.1%} to {:.1%}".format(*self.interval())

    def interval(self, doubt: float = 1.0 - CONFIDENCE) -> tuple[float, float]:
        """Return Wilson's interval, which misses the share with about this probability; else (0, 1)."""
        if not self.count:
            return 0.0, 1.0
        count = self.count if self.independent is None else self.independent
        return wilson(self.hits / self.count, count, doubt)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        low, high = self.interval()
        return {"share": self.share, "low": low, "high": high, "of": self.count}


def wilson(share: float, count: float, doubt: float = 1.0 - CONFIDENCE) -> tuple[float, float]:
    """Return the Wilson interval of a share of ``count`` inputs, here also a fraction (of patients)."""
    from scipy.special import ndtri

    pull = float(ndtri(1.0 - doubt / 2.0)) ** 2 / count
    centre = share + pull / 2.0
    half = (pull * share * (1.0 - share) + pull**2 / 4.0) ** 0.5
    low, high = (centre - half) / (1.0 + pull), (centre + half) / (1.0 + pull)
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def rate_of(
    hits: NDArray[np.bool_], units: Units | None, among: NDArray[np.bool_] | Rows | None = None
) -> Rate:
    """Return the share of (n,) inputs, or of some of them, that have a property; units are patients.

    Inputs of patients are worth p (1 - p) over the variance of p between patients: at most n, and at
    least what remains if all inputs of a patient are alike, which also serves where p is 0 or 1. Few
    patients estimate a variance badly, for which Student's t pays.

    Source: Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", Survey Methodology 1998, with Wilson's interval.
    """
    from scipy.special import ndtri, stdtrit

    if among is not None:
        hits, units = hits[among], None if units is None else units[among]
    hit, count = int(hits.sum()), len(hits)
    if units is None or not count:
        return Rate(hit, count)
    at = np.unique(units, return_inverse=True)[1]
    sizes = np.bincount(at)
    patients, share = len(sizes), hit / count
    if patients < 2:
        return Rate(hit, count, 1.0)
    worth = float(count**2 / (sizes**2).sum())
    if 0 < hit < count:
        spread = float(((np.bincount(at, weights=hits) - sizes * share) ** 2).sum())
        variance = patients / (patients - 1) * spread / count**2
        worth = min(count, max(worth, share * (1 - share) / max(variance, 1e-300)))
    return Rate(hit, count, worth * float(ndtri(_TAIL) / stdtrit(patients - 1, _TAIL)) ** 2)


def spread(figure: Callable[[Rows], float], units: Units) -> float:
    """Return the standard deviation of a figure of some rows when units are drawn again.

    What is to be compared is computed within one call, so that it is drawn together. Draws in which the
    figure is NaN do not count; the result is NaN if there are no others.

    ``figure``: takes the numbers of rows, as often as they were drawn; ``units``: (n,) from 0
    without a gap, the unit of each row.
    """
    random = np.random.default_rng(0)
    sizes, order = np.bincount(units), np.argsort(units, kind="stable")
    starts, count = np.cumsum(sizes) - sizes, len(sizes)
    found = []
    for _ in range(_DRAWN):
        rows = some = random.integers(count, size=count)
        if count < len(units):
            each = sizes[some]
            within = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
            rows = order[np.repeat(starts[some], each) + within]
        found.append(figure(rows))
    known = np.array(found)[~np.isnan(found)]
    return float(np.std(known)) if len(known) else float("nan")


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % confidence interval, or None if that is unknown."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        """Return it in few digits, with its interval in brackets."""
        ends = "" if self.interval is None else " ({:.3g} to {:.3g})".format(*self.interval)
        return f"{self.value:.3g}{ends}"

    @classmethod
    def of(
        cls,
        figure: Callable[[Rows], float],  # as of :func:`spread`
        units: Units,  # (n,) the unit of each row
        *,
        # of a figure from 0 to 1, whose interval is symmetric in its log odds: how many independent
        # trials it is worth if it has no spread, as a perfect one
        trials: float | None = None,
        within: tuple[float, float] = (-np.inf, np.inf),
    ) -> Figure:
        """Return a figure of some rows with the interval that its spread gives.

        Few units estimate a spread badly, for which Student's t pays.
        """
        from scipy.special import expit, logit, stdtrit

        value, count = figure(np.arange(len(units))), int(units.max()) + 1
        if count < 2:
            return cls(value, None)
        error = spread(figure, units) * (count / (count - 1)) ** 0.5
        if np.isnan(error):
            return cls(value, None)
        half = float(stdtrit(count - 1, _TAIL)) * error
        if trials is None:
            return cls(value, (max(value - half, within[0]), min(value + half, within[1])))
        if error < _NOTHING or not 0 < value < 1:
            return cls(value, wilson(value, trials))
        half /= value * (1.0 - value)
        return cls(value, (float(expit(logit(value) - half)), float(expit(logit(value) + half))))

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "value": self.value,
            "interval": None if self.interval is None else [*self.interval],
        }


def area_of(
    scores: NDArray[np.floating], truth: NDArray[np.bool_], units: Units | None
) -> Figure | None:
    """Return the mean area under the ROC curves of (n, labels); None if the rows tell no label apart.

    It has no interval where a label, or its absence, is of a single unit. A perfect one is worth as many
    trials as there are disjoint pairs of units, which are independent.
    """
    told = truth.any(axis=0) & ~truth.all(axis=0)
    if not told.any():
        return None
    places, has = ranks(scores[:, told]), truth[:, told]
    at = units_or_rows(units, len(has))
    fewest = min(len(np.unique(at[side])) for side in (*has.T, *~has.T))
    if fewest < 2:
        return Figure(area(places, has), None)
    pairs = min(fewest, (int(at.max()) + 1) // 2)
    return Figure.of(lambda rows: area(places[rows], has[rows]), at, trials=pairs)


def area(places: NDArray[np.int64], truth: NDArray[np.bool_]) -> float:
    """Return the mean area under the ROC curve of the labels that some rows have and some have not, or NaN.

    An area is the share of pairs that are in order, ties counting half. It is counted here, since 200
    calls of scikit-learn for each label would take seconds.

    ``places``: (n, labels) the :func:`ranks` of scores; ``truth``: (n, labels) which rows have each
    label.
    """
    found = []
    for at, has in zip(places.T, truth.T, strict=True):
        if 0 < has.sum() < len(has):
            most = int(at.max()) + 1
            high = np.bincount(at[has], minlength=most)
            low = np.bincount(at[~has], minlength=most)
            found.append(float(high @ (low.cumsum() - low / 2)) / int(high.sum()) / int(low.sum()))
    return float(np.mean(found)) if found else float("nan")


def ranks(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return (n, labels) the place of each score among the different ones of its column."""
    columns = [np.unique(each, return_inverse=True)[1] for each in scores.T]
    return np.stack(columns, axis=1).astype(np.int64)


def units_or_rows(units: Units | None, count: int) -> Units:
    """Return the units of so many rows; None: each row is one."""
    return np.arange(count, dtype=np.int64) if units is None else units
