"""The threshold test before a label: the Renyi divergence of one bit, max_j n_j + Z >= T, and of both.

``v`` is the statistic of the test: the largest count, or max_j (n_j - r_j) for Interactive-GNMax.
Between neighbours it differs by at most k, the votes of one unit, whether votes change or are
removed; the worst is v - k or v + k. Costs are one-sided: for the given votes and every neighbour
of them.

* :func:`joint` bounds the divergence of test and label as one mechanism, for a list of queries fixed in
  advance, whichever of them are answered. Sums over queries are bounds for the list.
* :func:`expected` is the cost that the 2018 reference reports: **not a bound**. The moments behind
  a Renyi divergence average exponentials of costs, which exceed the exponential of the average.

Proof: docs/proofs/labels.md, sections 5 and 6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pate.accounting.arrays import (
    Floats,
    check_log_probabilities,
    check_orders,
    check_rdp,
)
from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.events import check_votes_per_unit
from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.bounds.laws import Law

# The moment E of one bit against another, the sum of p^order p'^(1 - order), at any distance. E - 1 keeps its
# relative accuracy down to 1e-270, and ln E up to the largest float. Every figure is rounded up.

#: A few units in the last place: relative error of one logarithm, exponential or product.
ROUNDING: Final = 2.0**-50
#: Above this growth the term of the bit 1 is computed from logarithms.
LARGEST_GROWTH: Final = 100.0
#: Beyond this a sum of exponentials is added up in logarithms.
_LARGE: Final = 500.0
#: A moment is above 1 by at least this: less would be lost in the sum, not absent.
_LEAST_EXCESS: Final = 1e-270


class Bits(NamedTuple):
    """A bit against a neighbour's; first the outcome 1, then 0."""

    log_p: Floats  # (2, queries), logarithms of the chances here
    ratio: Floats  # (2, queries), logarithms of p'/p
    error: Floats  # (2, queries), bound on the error of a ratio that is not yet compensated

    def at(self, queries: slice | NDArray[np.intp]) -> Bits:
        """Return the bits of some queries."""
        return Bits(*(part[:, queries] for part in self))

    def fill(self, excess_order: Floats, excess: Floats, passed: Floats, work: Floats) -> None:
        """Write E - 1, rounded up, and the term of the bit 1; all arrays are (queries, orders).

        E - 1 is the sum of p expm1(-l log(p'/p)), and infinite where a term is beyond e^500.
        """
        excess[:] = _LEAST_EXCESS
        for outcome in (1, 0):  # the last one leaves its term
            p = np.exp(self.log_p[outcome])[:, None]
            error = self.error[outcome]
            # p expm1(exponent), in ``passed`` the exponent.
            np.multiply.outer(-self.ratio[outcome], excess_order, out=passed)
            np.minimum(passed, 1.0, out=work)
            np.expm1(work, out=work)
            work *= p
            if passed.max() > 1.0:  # there expm1 may overflow while p underflows
                wide = passed > 1.0
                passed += self.log_p[outcome][:, None]
                beyond = passed > _LARGE
                np.exp(np.minimum(passed, _LARGE, out=passed), out=passed)
                np.copyto(work, passed - p, where=wide)
                work[beyond] = np.inf
                np.add(work, p, out=passed, where=~wide)
            else:
                np.add(work, p, out=passed)
            excess += work
            excess += np.multiply(np.abs(work, out=work), ROUNDING, out=work)
            if error.any():
                np.multiply.outer(error, excess_order, out=work)
                excess += np.multiply(work, passed, out=work)
        excess *= 1.0 + ROUNDING * (4.0 - self.log_p.sum(axis=0))[:, None]

    def log_moment(self, excess_order: Floats, growth: Floats) -> Floats:
        """Return log E, rounded up, whatever its size; (queries, orders)."""
        excess, passed, work = np.empty((3, self.log_p.shape[1], excess_order.size))
        self.fill(excess_order, excess, passed, work)
        exponent = np.multiply.outer(-self.ratio, excess_order)
        logs = self.log_p[:, :, None] + exponent
        logs += ROUNDING * (np.abs(self.log_p)[:, :, None] + np.abs(exponent))
        logs += np.multiply.outer(self.error, excess_order)
        logs[0] += growth
        # p^a p'^(1-a) (e^growth - 1), where one factor may overflow while the other vanishes.
        excess -= np.exp(np.minimum(logs[0], _LARGE)) * np.expm1(-growth)
        large = np.isinf(excess) | (logs[0] > _LARGE)
        excess[large] = 0.0
        by_logs = np.logaddexp(*logs) * (1.0 + 8.0 * ROUNDING)
        made: Floats = np.where(large, by_logs, np.log1p(excess) * (1.0 + 4.0 * ROUNDING))
        return made


# The test

#: Log ratios below it are told from 0 by the ratio of the rarer outcome alone.
_NEAR: Final = 0.5
#: Elements of one block of (queries, orders): about seven of them are in work at a time.
_BLOCK: Final = 2**14


def log_pass(v: ArrayLike, threshold: float, law: Law) -> Floats:
    """Return log P[v + Z >= T] of (queries,) statistics of the test, in votes, which are not rounded.

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> log_pass([214.0], 200.0, Gaussian(150.0)).round(9).tolist()
    [-0.621420883]
    """
    return law.log_survival(_distance(v, threshold))


def log_fail(v: ArrayLike, threshold: float, law: Law) -> Floats:
    """Return log P[v + Z < T], as accurate as :func:`log_pass` however close to 0 it is.

    The laws are symmetric: P[Z < t] = P[Z > -t], and of a float more is the next float or more.
    """
    return law.log_survival(np.nextafter(-_distance(v, threshold), np.inf))


def rdp_theorem6(v: ArrayLike, threshold: float, law: Law, k: int, orders: ArrayLike) -> Floats:
    """Return the bound of PATE 2018, in nats: Theorem 6 with q the chance of the rarer bit.

    Never below :func:`joint` with a free label, but for rounding; for comparison with the literature.
    Only a Gaussian, continuous or discrete, has the RDP curve k^2 order / (2 sigma^2) that the theorem
    is used with.

    Source: Papernot et al. 2018 (arXiv 1802.08908), Theorem 6 and Proposition 10.
    """
    if not isinstance(law, Gaussian | DiscreteGaussian):
        raise AccountingError(f"Theorem 6 is for Gaussian noise, not for {law}")
    log_q = np.minimum(log_pass(v, threshold, law), log_fail(v, threshold, law))
    rate = check_votes_per_unit(k) ** 2 / (2.0 * law.sigma**2)
    return theorem6.rdp(log_q, rate, orders)


def neighbouring_bits(v: Floats, threshold: float, law: Law, k: int) -> tuple[Bits, Bits]:
    """Return the bit at v against the bits at v - k and at v + k."""
    logs = np.array([log_pass(v, threshold, law), log_fail(v, threshold, law)])
    rarer = np.argmin(logs, axis=0)[None]
    rare, common = np.take_along_axis(logs, np.concatenate([rarer, 1 - rarer]), axis=0)
    # Read backwards where the bit 0 is the rarer one.
    turn = np.concatenate([rarer, 1 - rarer])
    found = []
    for other in (v - check_votes_per_unit(k), v + k):
        then = np.array([log_pass(other, threshold, law), log_fail(other, threshold, law)])
        rare_then, common_then = np.take_along_axis(then, turn, axis=0)
        rare_ratio = rare_then - rare
        error = ROUNDING * (1.0 - rare - rare_then)
        near = np.abs(rare_ratio) < _NEAR
        # Near 0 the two ratios must fit: rare e^x + common e^y = 1. Then the moment grows with |x|,
        # and an x that is too far from 0 makes it too large.
        widened = rare_ratio + np.copysign(error, rare_ratio)
        odds = np.exp(rare) / -np.expm1(rare)
        fitted = np.log1p(-odds * np.expm1(np.where(near, widened, 0.0)))
        ratios = np.where(near, [widened, fitted], [rare_ratio, common_then - common])
        errors = np.where(near, 0.0, [error, -ROUNDING * (common + common_then)])
        parts = (np.array([rare, common]), ratios, errors)
        found.append(Bits(*(np.take_along_axis(part, turn, axis=0) for part in parts)))
    return found[0], found[1]


def _largest(
    pairs: Sequence[Bits],
    back: NDArray[np.intp],
    growth: Floats,
    excess_order: Floats,
    work: Floats,
) -> Floats:
    """Return the larger log E of the two pairs at their queries ``back``, (back, orders), rounded up.

    The bit 1 is followed by an output, so that the term of that bit is multiplied by e^growth.
    """
    count = pairs[0].log_p.shape[1]
    excess, passed, spare = work[:3, :count]
    worst, gain, term = work[3, : back.size], work[4, : back.size], work[5, : back.size]
    worst[:] = 0.0
    np.expm1(np.minimum(growth, LARGEST_GROWTH, out=gain), out=gain)
    for bits in pairs:
        bits.fill(excess_order, excess, passed, spare)
        np.multiply(np.take(passed, back, axis=0, out=term, mode="clip"), gain, out=term)
        np.maximum(worst, np.add(excess[back], term, out=term), out=worst)
    extreme = np.isinf(worst.max(axis=1)) | (growth.max(axis=1) > LARGEST_GROWTH)
    np.log1p(worst, out=worst)
    worst *= 1.0 + 8.0 * ROUNDING
    if extreme.any():
        moments = (
            bits.at(back[extreme]).log_moment(excess_order, growth[extreme]) for bits in pairs
        )
        worst[extreme] = np.maximum(*moments)
    return worst


def _values(v: ArrayLike) -> Floats:
    made = np.asarray(v, np.float64)
    if made.ndim != 1 or not np.isfinite(made).all():
        raise AccountingError(
            "the statistic of the threshold test must be a list of finite numbers of votes"
        )
    return made


def _distance(v: ArrayLike, threshold: float) -> Floats:
    if not math.isfinite(threshold):
        raise AccountingError(f"a threshold must be a finite number of votes, got {threshold}")
    return threshold - _values(v)


# Test and label


def joint(
    v: ArrayLike, threshold: float, law: Law, k: int, orders: ArrayLike, rdp_label: ArrayLike
) -> Floats:
    """Return a bound on the divergence of threshold test and label as one mechanism, (queries, orders) nats.

    With p the chance to pass at ``v``, p' at a neighbour's and r the label's divergence,

        (1/(a-1)) ln max over v' = v - k, v + k of
            p^a p'^(1-a) e^((a-1) r) + (1-p)^a (1-p')^(1-a).

    It rises in r, so any upper bound of the label's divergence does, (queries, orders), or (1, orders) if it
    does not depend on data. ``v`` is the test's statistic in votes: the largest count, or max_j (n_j - r_j).
    With r = 0 it is the cost of the bit alone, exact but for rounding, which is added: a relative 1e-9 at
    most while log p is above -1000.

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> joint([214.0], 200.0, Gaussian(150.0), 1, [14.0], [[0.01]]).round(9).tolist()
    [[0.006068452]]
    >>> joint([214.0], 200.0, Gaussian(150.0), 1, [2.0, 14.0], [[0.0, 0.0]]).round(12).tolist()
    [[2.8209542e-05, 0.000197948212]]
    >>> 0.000197948 + 0.537180 * 0.01  # the expected cost: less, and no bound
    0.005569748

    Source: own; of the bit alone used by Zhu et al. 2020 (Private-kNN, CVPR) as noisy screening.
    Proof: docs/proofs/labels.md, sections 5 and 6.
    """
    alphas = check_orders(orders)
    labels = check_rdp(np.asarray(rdp_label, np.float64), "the cost of the label")
    seen = np.asarray(v, np.float64)
    if seen.ndim != 1 or labels.shape not in ((seen.size, alphas.size), (1, alphas.size)):
        raise AccountingError(
            f"{seen.shape} checks and {alphas.size} orders do not fit labels of {labels.shape}"
        )
    labels = np.broadcast_to(labels, (seen.size, alphas.size))
    excess_order = alphas - 1.0
    made = np.empty(labels.shape)
    # Queries are sorted by v to share bits; small blocks, since memory traffic dominates the time.
    values, which = np.unique(seen, return_inverse=True)
    pairs = neighbouring_bits(values, threshold, law, k)
    ranking = np.argsort(which, kind="stable")
    step = max(1, _BLOCK // alphas.size)
    work = np.empty((7, min(step, seen.size), alphas.size))
    for start in range(0, seen.size, step):
        rows = ranking[start : start + step]
        first, last = which[rows[0]], which[rows[-1]]
        here = [bits.at(slice(first, last + 1)) for bits in pairs]
        growth = np.take(labels, rows, axis=0, out=work[6, : rows.size], mode="clip")
        growth *= excess_order
        made[rows] = _largest(here, which[rows] - first, growth, excess_order, work)
    made /= excess_order
    return check_rdp(made, "the cost of check and label")


def expected(log_pass: ArrayLike, rdp_check: ArrayLike, rdp_label: ArrayLike) -> Floats:
    """Return the cost of the check plus P[answer] times that of the label: **not a bound**.

    For comparison with published figures, which are of this kind.

    >>> expected([0.0, -np.inf], [[0.1], [0.1]], [[1.0], [1.0]]).tolist()
    [[1.1], [0.1]]

    Source: Papernot et al. 2018, the code published with it.
    """
    chances = np.exp(check_log_probabilities(log_pass, "log P[answer]"))
    if chances.ndim != 1:
        raise AccountingError(f"log P[answer] is a list of numbers, got shape {chances.shape}")
    checks, labels = _costs(rdp_check, rdp_label, chances.size)
    charged = np.zeros((chances.size, labels.shape[1]))
    # A query that is never answered costs nothing, even where its label would cost infinity.
    np.multiply(chances[:, None], labels, out=charged, where=chances[:, None] > 0.0)
    return checks + charged


def _costs(rdp_check: ArrayLike, rdp_label: ArrayLike, queries: int) -> tuple[Floats, Floats]:
    checks = check_rdp(np.asarray(rdp_check, np.float64), "the cost of the check")
    labels = check_rdp(np.asarray(rdp_label, np.float64), "the cost of the label")
    if any(
        costs.ndim != 2 or costs.shape[0] not in (1, queries) or costs.shape[1] != checks.shape[-1]
        for costs in (checks, labels)
    ):
        raise AccountingError(
            f"costs of shapes {checks.shape} and {labels.shape} do not fit {queries} queries"
        )
    return checks, labels
