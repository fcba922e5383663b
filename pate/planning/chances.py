"""Probabilities of a mechanism's outcomes for given votes: computed, not sampled.

Plans of teachers' labels, of records' labels and the forecasts of a server are all made of these.

The noise is that of :mod:`pate.noise.exact`, exactly: laws on the integers, stored as tables. A sum over
the integers that would need many terms is taken over every h-th integer instead, with h at most
1/8 of sigma, or 1/12 of an LNMax scale. Sums of smooth terms over a lattice hardly depend on the
lattice: for Gaussian noise the error is below 1e-9. Laplace noise has a corner at 0, which leaves
an error below 3e-4 for scales of 24 votes and more. Below that every integer is taken.

These are figures for planning. No privacy cost depends on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import bdtr, gammaln

from pate.accounting.arrays import Floats, blocks, check_histograms
from pate.accounting.conversion import check_rho
from pate.errors import AccountingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]
    #: The law of a check's own noise, None if it reads the noisy counts; and its threshold, None
    #: without a check.
    Check = tuple["NoiseLaw | None", int | None]

#: Largest noise of a plan, which bounds its table.
MOST_SCALE: Final = 2**17
#: From this many classes on, those without a vote are processed together.
_MANY_CLASSES: Final = 16
#: A deviation that a sum of n bits passes with probability exp(-2 * 36): in units of sqrt(n).
_FAR: Final = 6.0


@dataclass(frozen=True)
class NoiseLaw:
    """A law on the integers that is symmetric about 0."""

    reach: int  # largest magnitude in the tables; the rest has probability below 1e-17
    cdf: Floats  # (2 reach + 1,) P[Z <= x] for x from -reach
    points: Integers  # (points,) integers on which an expectation is summed
    weights: Floats  # (points,) their weights, which sum to 1

    def at_most(self, values: Integers) -> Floats:
        """Return P[Z <= value], of the shape of ``values``; also P[Z >= -value]."""
        found: Floats = self.cdf.take(values + self.reach, mode="clip")
        return found


@lru_cache(maxsize=16)
def gaussian_law(sigma: Fraction) -> NoiseLaw:
    """Return the discrete Gaussian N_Z(0, sigma^2).

    >>> from fractions import Fraction
    >>> law = gaussian_law(Fraction(40))
    >>> law.at_most(np.array([-40])).round(4)  # of the continuous law at -39.5: 0.1617 too
    array([0.1617])
    """
    return _law(sigma, "sigma", tails=9, fineness=8, power=2)


@lru_cache(maxsize=16)
def laplace_law(scale: Fraction) -> NoiseLaw:
    """Return the discrete Laplace law P[z] ~ exp(-|z| / scale)."""
    return _law(scale, "scale", tails=40, fineness=12, power=1)


@lru_cache(maxsize=16)
def geometric_law(scale: Fraction, part: Fraction) -> NoiseLaw:
    """Return the law of geometric noise shares: X - Y, both negative binomial of ``part`` successes."""
    _require_scale(scale, "scale")
    # scipy.stats has it, and scipy.signal convolves: a second of imports at the start of a server.
    x, shape = np.arange(math.ceil(40 * scale * max(Fraction(1), part)) + 2), float(part)
    logs = gammaln(x + shape) - gammaln(x + 1) - gammaln(shape) - x / float(scale)
    side = np.exp(logs + shape * math.log(-math.expm1(-1 / scale)))
    ways = 2 * len(side) - 1
    mass = np.fft.irfft(np.fft.rfft(side, ways) * np.fft.rfft(side[::-1], ways), ways)
    return _tabulated(np.maximum(mass, 0.0), max(1, int(scale / 12)))


def _require_scale(scale: Fraction, name: str) -> None:
    if not 0 < scale <= MOST_SCALE:
        raise UsageError(f"a plan needs a {name} of up to {MOST_SCALE} votes, got {scale}")


def _law(scale: Fraction, name: str, *, tails: int, fineness: int, power: int) -> NoiseLaw:
    _require_scale(scale, name)
    reach = math.ceil(tails * scale) + 1
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-((np.abs(z) / float(scale)) ** power) / power)
    return _tabulated(mass, max(1, int(scale / fineness)))


def _tabulated(mass: Floats, step: int) -> NoiseLaw:
    """Return the law in proportion to ``mass`` from -reach to reach, summed over every step-th integer."""
    reach = len(mass) // 2
    cdf = np.minimum(np.cumsum(mass / mass.sum()), 1.0)
    half = np.arange(0, reach + 1, step)
    points = np.concatenate([-half[:0:-1], half])
    points = points[mass[points + reach] > 1e-13 * mass.max()]
    weights = mass[points + reach]
    weights /= weights.sum()
    for array in (cdf, points, weights):
        array.setflags(write=False)
    return NoiseLaw(reach, cdf, points, weights)


def chances(
    votes: Integers, labels: Integers, noise: NoiseLaw, checks: Sequence[Check], lead: int = 0
) -> tuple[Floats, Floats]:
    """Return P[a check passes], and P[that, and argmax_j (n_j + Z_j) = label], for several checks.

    Ties go to the lowest class index. Without a check the latter is the sum over z of P[Z_i = z] times
    the product over j of P[Z_j <= n_i - n_j + z], one vote less where j has the lower index. A check
    with noise of its own is P[max_j n_j + Z >= T], independent of the label.

    A check without its own noise reads the noisy count of the label: max_j (n_j + Z_j) >= T, and the
    sum is over
    n_i + z >= T. On a sparse lattice T falls between two points: the tails are cubic between them,
    which leaves an error below 1e-5; where every integer is a point they are exact.

    >>> from fractions import Fraction
    >>> law = gaussian_law(Fraction(40))
    >>> asked = np.array([[200, 30, 20]]), np.array([0]), law
    >>> [each.ravel().round(4).tolist() for each in chances(*asked, [(law, 200), (None, None)])]
    [[0.505, 1.0], [0.504, 0.9981]]
    >>> [each.ravel().round(4).tolist() for each in chances(*asked, [(None, 200)])]
    [[0.505], [0.505]]

    ``votes``: (queries, classes) int64; ``labels``: (queries,) int64, the class of interest in each
    query; ``checks``: all with noise of their own or none, or all on the noisy counts; ``lead``:
    noisy votes by which the label leads every other; 0: that it is the arg max.

    Returns two of (checks, queries) float64.
    """
    passed, top = np.ones((len(checks), len(votes))), votes.max(axis=1)
    right = np.empty_like(passed)
    kinds = {law is None and threshold is not None for law, threshold in checks}
    if len(kinds) != 1:
        raise AccountingError("checks are all on the noisy counts, or none is")
    one_view = kinds == {True}
    for row, (law, threshold) in zip(passed, checks, strict=True):
        if threshold is not None and one_view:
            row[:] = 1.0 - noise.at_most(threshold - 1 - votes).prod(axis=1)
        elif threshold is not None and law is not None:
            row[:] = law.at_most(top - threshold)
    step = int(noise.points[1] - noise.points[0]) if len(noise.points) > 1 else 1
    for part, product in _products(votes, labels, noise, lead):
        if not one_view:
            right[:, part] = passed[:, part] * (product @ noise.weights)
            continue
        terms = product * noise.weights
        tails = np.zeros((len(terms), terms.shape[1] + 1))  # from each cell's lower edge on
        tails[:, :-1] = terms[:, ::-1].cumsum(axis=1)[:, ::-1]
        tails[:, 1:-1] -= (1.0 - 1.0 / step**2) / 24.0 * np.diff(terms, axis=1)
        own = votes[np.arange(part.start, part.stop), labels[part]]
        thresholds = np.array([[threshold] for _, threshold in checks], np.int64)
        right[:, part] = _between(tails, (thresholds - own - 0.5 - noise.points[0]) / step + 0.5)
    return passed, np.minimum(right, passed)


def _between(tails: Floats, place: Floats) -> Floats:
    """Return (thresholds, queries) values of (queries, points) ``tails``, cubic between points."""
    last = tails.shape[1] - 1
    place = np.clip(place, 0.0, float(last))
    first = np.minimum(np.floor(place).astype(np.int64), last - 1)
    u = place - first
    rows = np.arange(len(tails))
    weights = (
        -u * (u - 1.0) * (u - 2.0) / 6.0,
        (u + 1.0) * (u - 1.0) * (u - 2.0) / 2.0,
        -(u + 1.0) * u * (u - 2.0) / 2.0,
        (u + 1.0) * u * (u - 1.0) / 6.0,
    )
    value = np.zeros_like(place)
    for offset, weight in zip(range(-1, 3), weights, strict=True):
        value += weight * tails[rows, np.clip(first + offset, 0, last)]
    return np.clip(value, 0.0, 1.0)


def _products(
    votes: Integers, labels: Integers, noise: NoiseLaw, lead: int
) -> Iterator[tuple[slice, Floats]]:
    """Yield queries, and their (queries, points) P[no other class is above label's votes + z - lead]."""
    check_histograms(votes)
    queries, classes = votes.shape
    if labels.shape != (queries,) or not ((labels >= 0) & (labels < classes)).all():
        raise AccountingError(f"each of {queries} queries needs a label below {classes}")
    rows = np.arange(queries)
    own = votes[rows, labels]
    lower = np.arange(classes)[None, :] < labels[:, None]
    if lead:  # then no tie matters
        own, lower = own - lead, np.zeros_like(lower)
    gaps = own[:, None] - votes - lower
    never = 2 * noise.reach + 1  # a gap that no noise can close
    gaps[rows, labels] = never
    without = np.zeros((2, queries), np.int64)
    if classes >= _MANY_CLASSES:
        empty = (votes == 0) & (gaps != never)
        without[:] = (empty & lower).sum(axis=1), (empty & ~lower).sum(axis=1)
        gaps[empty] = never
        gaps.sort(axis=1)
    near = int((gaps < never).sum(axis=1).max(initial=0)) if classes >= _MANY_CLASSES else classes
    for part in blocks(queries, len(noise.points)):
        product = np.ones((part.stop - part.start, len(noise.points)))
        for gap in gaps[part, :near].T:
            product *= noise.at_most(gap[:, None] + noise.points)
        for shift, counts in zip((1, 0), without, strict=True):
            if counts[part].any():
                cdf = noise.at_most(own[part, None] - shift + noise.points)
                product *= cdf ** counts[part, None]
        yield part, product


def expected_asked(
    queries: int, answer: float, check: Fraction, label: Fraction, limit: Fraction
) -> float:
    """Return the expected number of queries that a filter admits.

    A query is admitted if the cost so far and its own worst cost ``check + label`` are within
    ``limit``. Each query costs ``check``, and ``label`` too with probability
    ``answer``, independently of the others. Query n is asked if the n-1 before it had few enough
    answers: a binomial probability, and the expectation is their sum over n.

    >>> from fractions import Fraction
    >>> expected_asked(100, 1.0, Fraction(0), Fraction(1), Fraction(21, 2))
    10.0
    >>> expected_asked(100, 0.5, Fraction(0), Fraction(1), Fraction(1))
    2.0
    """
    check, label, limit = check_rho(check), check_rho(label), check_rho(limit)
    if not 0.0 <= answer <= 1.0 or label == 0 or queries < 0:
        raise AccountingError(f"cannot ask {queries} queries of cost {label}, answered {answer}")
    worst = check + label
    sure = min(queries, limit // worst)
    if sure == 0 or sure == queries or answer == 1.0:
        return float(sure)
    most = queries if check == 0 else min(queries, (limit - worst) // check + 1)
    # Of n-1 queries (limit - worst - (n-1) check) / label may have been answered: a line that falls
    # in n and meets the mean number of answers at n-1 = centre. Far from there all is certain.
    slope = float(check / label) + answer
    if slope > 1e-9:  # else the line is flat over all queries that a plan may have
        level = float((limit - worst) / label)
        centre = level / slope
        sure = max(sure, min(most, math.floor(centre - (_FAR * math.sqrt(centre) + 1.0) / slope)))
        root = (_FAR + math.sqrt(_FAR**2 + 4.0 * slope * (level + 1.0))) / (2.0 * slope)
        most = min(most, math.ceil(root**2) + 2)
    before = np.arange(sure, most)  # n - 1
    unit = math.lcm(check.denominator, label.denominator, limit.denominator)
    room, each, price = (int(unit * cost) for cost in (limit - worst, check, label))
    answers = np.array([min(n, (room - n * each) // price) for n in before.tolist()], np.float64)
    certain = bdtr(np.maximum(answers, 0.0), before, answer)
    return float(sure + np.where(answers >= 0.0, certain, 0.0).sum())
