"""The threshold test before a label: the exact Renyi divergence of one bit, max_j n_j + Z >= T.

``v`` is the statistic of the test: the largest count, or max_j (n_j - r_j) for Interactive-GNMax.
Between neighbours it differs by at most k, the votes of one unit, whether votes change or are
removed. So with p(v) = P[v + Z >= T] the pair of outputs is Bernoulli(p(v)) against
Bernoulli(p(v')) with
|v' - v| <= k, and the worst v' is v - k or v + k: p' lies between p(v - k) and p(v + k), and the
divergence is convex in p'. A v' below 0 or above the number of teachers is counted too, which can
only make the bound larger.

Data-dependent costs are one-sided: they bound D(M(D) || M(D')) for the given D and every neighbour
D'.

Proof: docs/proofs/labels.md, section 5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.arrays import Floats, check_orders, check_positive, check_rdp
from pate.accounting.bounds import theorem6
from pate.accounting.bounds.bits import LARGEST_GROWTH, ROUNDING, Bits
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.events import check_votes_per_unit
from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.bounds.laws import Law

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


def rdp_exact(v: ArrayLike, threshold: float, law: Law, k: int, orders: ArrayLike) -> Floats:
    """Return the largest divergence of the bit at v from the bit at v - k and at v + k, in nats.

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> rdp_exact([214.0], 200.0, Gaussian(150.0), 1, [2.0, 14.0]).round(12).tolist()
    [[2.8209542e-05, 0.000197948212]]

    Exact but for rounding, which is added: a relative 1e-9 at most while log p is above -1000.

    Source: own; the same is used by Zhu et al. 2020 (Private-kNN, CVPR) as noisy screening.
    Proof: docs/proofs/labels.md, section 5.
    """
    alphas = check_orders(orders)
    values, rows = np.unique(_values(v), return_inverse=True)
    worst = largest_log_moments(values, threshold, law, k, alphas) / (alphas - 1.0)
    return check_rdp(worst, "the cost of the check")[rows]


def rdp_theorem6(v: ArrayLike, threshold: float, law: Law, k: int, orders: ArrayLike) -> Floats:
    """Return the bound of PATE 2018, in nats: Theorem 6 with q the chance of the rarer bit.

    Never below :func:`rdp_exact`, but for rounding; for comparison with the literature. Only a Gaussian,
    continuous or discrete, has the RDP curve k^2 order / (2 sigma^2) that the theorem is used with.

    Source: Papernot et al. 2018 (arXiv 1802.08908), Theorem 6 and Proposition 10.
    """
    if not isinstance(law, Gaussian | DiscreteGaussian):
        raise AccountingError(f"Theorem 6 is for Gaussian noise, not for {law}")
    log_q = np.minimum(log_pass(v, threshold, law), log_fail(v, threshold, law))
    return theorem6.rdp(log_q, _rate(law.sigma, k), orders)


def independent(sigma: float, k: int, orders: ArrayLike) -> Floats:
    """Return order * k^2 / (2 sigma^2), the data-independent cost. (orders,), in nats.

    >>> independent(150.0, 1, [2.0]).round(9).tolist()
    [4.4444e-05]

    Source: Papernot et al. 2018, Proposition 8, for a scalar.
    """
    return _rate(sigma, k) * check_orders(orders)


def largest_log_moments(
    v: Floats,
    threshold: float,
    law: Law,
    k: int,
    orders: Floats,
    rdp_label: Floats | None = None,
) -> Floats:
    """Return log E, E the larger sum of p^order p'^(1 - order) over a neighbour's v - k and v + k.

    It is rounded up. With an ``rdp_label`` the bit 1 is followed by an output of that divergence, so
    that the term of that bit is multiplied by e^((order - 1) rdp_label).
    """
    excess_order = orders - 1.0
    made = np.empty((v.size, orders.size))
    # Queries are sorted by v to share bits; small blocks, since memory traffic dominates the time.
    values, which = np.unique(v, return_inverse=True)
    pairs = _neighbouring_bits(values, threshold, law, k)
    ranking = np.argsort(which, kind="stable")
    step = max(1, _BLOCK // orders.size)
    work = np.empty((7, min(step, v.size), orders.size))
    for start in range(0, v.size, step):
        rows = ranking[start : start + step]
        first, last = which[rows[0]], which[rows[-1]]
        here = [bits.at(slice(first, last + 1)) for bits in pairs]
        growth = None
        if rdp_label is not None:
            growth = np.take(rdp_label, rows, axis=0, out=work[6, : rows.size], mode="clip")
            growth *= excess_order
        made[rows] = _largest(here, which[rows] - first, growth, excess_order, work)
    return made


def _neighbouring_bits(v: Floats, threshold: float, law: Law, k: int) -> tuple[Bits, Bits]:
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
    growth: Floats | None,
    excess_order: Floats,
    work: Floats,
) -> Floats:
    """Return the larger log E of the two pairs at their queries ``back``, (back, orders)."""
    count = pairs[0].log_p.shape[1]
    excess, passed, spare = work[:3, :count]
    worst, gain, term = work[3, : back.size], work[4, : back.size], work[5, : back.size]
    worst[:] = 0.0
    if growth is not None:
        np.expm1(np.minimum(growth, LARGEST_GROWTH, out=gain), out=gain)
    for bits in pairs:
        bits.fill(excess_order, excess, passed, spare)
        if growth is None:
            np.maximum(worst, excess[back], out=worst)
        else:
            np.multiply(np.take(passed, back, axis=0, out=term, mode="clip"), gain, out=term)
            np.maximum(worst, np.add(excess[back], term, out=term), out=worst)
    extreme = np.isinf(worst.max(axis=1))
    if growth is not None:
        extreme |= growth.max(axis=1) > LARGEST_GROWTH
    np.log1p(worst, out=worst)
    worst *= 1.0 + 8.0 * ROUNDING
    if extreme.any():
        more = 0.0 if growth is None else growth[extreme]
        moments = (bits.at(back[extreme]).log_moment(excess_order, more) for bits in pairs)
        worst[extreme] = np.maximum(*moments)
    return worst


def _rate(sigma: float, k: int) -> float:
    return float(check_votes_per_unit(k)) ** 2 / (2.0 * check_positive(sigma, "sigma") ** 2)


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
