"""log q: the probability that the noisy plurality is not the plurality.

With i* the class with most votes, ties lost by it,

    q = min( sum over j != i* of P[Z_j - Z_i* >= n_i* - n_j],  1 - 1/m )

bounds P[label != i*]. ``law`` is that of all noise added: where parties add shares, of their sum. A
*smaller* variance than that of the added noise would make q too small.

Proof: docs/proofs/labels.md, section 1.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_histograms,
    check_positive,
    on_all_cores,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.bounds.laws import Law

#: Sums of probabilities below it are formed again in logarithms.
_LEAST_SUM = 1e-280
#: Smaller logarithms are replaced by it: -inf could not be compared.
_LEAST_LOG = -1e300
#: Votes above it are not looked up in a table.
_LARGEST_TABLE = 2**20


def gnmax_log_q(votes: ArrayLike, law: Law) -> Floats:
    """Return log q of every query of (queries, classes) votes, at most log(1 - 1/m); whole numbers are fast.

    >>> from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
    >>> votes = [[214, 10, 8, 7, 4, 4, 2, 1, 0, 0]]
    >>> gnmax_log_q(votes, Gaussian(40.0)).round(6).tolist()
    [-6.959065]
    >>> gnmax_log_q(votes, DiscreteGaussian(40.0)).round(6).tolist()
    [-6.924484]

    Source: Papernot et al. 2018, Proposition 7, for any law.
    """
    return _log_q(votes, law.log_gap_tail)


def lnmax_log_q(votes: ArrayLike, gamma: float, *, discrete: bool = False) -> Floats:
    """Return log q of every query for Laplace noise of scale 1/gamma, at most log(1 - 1/m).

    The published tail, (2 + gamma gap) / (4 exp(gamma gap)), is exact for continuous noise. It is
    *not* an upper bound for the two-sided geometric noise that is drawn here, P[z] ~
    exp(-gamma |z|): there a tie is possible, and is lost. With ``discrete`` the tail is that of
    the geometric law, exact with ties lost; a gap that is no whole number is rounded up, which changes
    nothing.

    >>> lnmax_log_q([[250, 0]], 0.05).round(6).tolist()
    [-11.212146]
    >>> lnmax_log_q([[250, 0]], 0.05, discrete=True).round(6).tolist()
    [-11.18932]

    Source: Papernot et al. 2017, Lemma 4; discrete: docs/proofs/labels.md.
    """
    gamma = check_positive(gamma, "gamma")

    def continuous_tail(gaps: Floats) -> Floats:
        scaled = gamma * gaps
        return np.log((2.0 + scaled) / 4.0) - scaled

    def discrete_tail(gaps: Floats) -> Floats:
        whole = np.ceil(gaps)
        ratio, left = math.exp(-gamma), -math.expm1(-gamma)
        factor = whole * left + (1.0 + ratio + 2.0 * ratio**2) / (1.0 + ratio)
        return np.log(factor) - 2.0 * math.log1p(ratio) - gamma * whole

    return _log_q(votes, discrete_tail if discrete else continuous_tail)


def _log_q(votes: ArrayLike, log_tail: Callable[[Floats], Floats]) -> Floats:
    rows = np.asarray(votes)
    if rows.ndim != 2 or not rows.size:
        rows = check_histograms(rows)
    check_histograms(rows[:1])
    queries, classes = rows.shape
    tail = _table(rows, log_tail)
    made = np.empty(queries)

    def fill(share: slice) -> None:
        for block in blocks(share.stop - share.start, classes):
            part = slice(share.start + block.start, share.start + block.stop)
            if tail is not None and rows.dtype.kind == "i":
                made[part] = _union_of_integers(rows[part], log_tail, tail)
            else:
                made[part] = _union(check_histograms(rows[part]), log_tail, tail)

    on_all_cores(fill, queries, classes)
    return np.minimum(made, math.log1p(-1.0 / classes), out=made)


def _table(rows: NDArray[np.generic], log_tail: Callable[[Floats], Floats]) -> Floats | None:
    """Return the tails at the gaps 0, 1, ..., and 0 for the plurality's own place at the end.

    None where votes are no integers, or so large that a table does not pay.
    """
    if not rows.size or rows.dtype.kind not in "iuf":
        return None
    if rows.dtype.kind == "f" and not (np.floor(rows) == rows).all():
        return None
    most = float(rows.max())
    if not 0.0 <= most <= min(_LARGEST_TABLE, 1000 + 4 * rows.size):
        return None
    return np.append(np.exp(log_tail(np.arange(most + 1.0))), 0.0)


def _union_of_integers(
    votes: NDArray[np.signedinteger], log_tail: Callable[[Floats], Floats], tail: Floats
) -> Floats:
    """Return the same as :func:`_union`, without a detour by floats.

    Classes tied with the plurality are counted separately, so that its own tail never enters the
    sum.
    """
    if votes.min(initial=0) < 0:
        check_histograms(votes)  # raises
    gaps = votes.max(axis=1)[:, None] - votes
    behind = tail[:-1].copy()
    level, behind[0] = behind[0], 0.0
    sums = np.take(behind, gaps, mode="clip") @ np.ones(votes.shape[1])
    sums += (np.count_nonzero(gaps == 0, axis=1) - 1) * level
    if (small := sums < _LEAST_SUM).any():
        sums[small] = 1.0
        made: Floats = np.log(sums)
        best = votes[small].argmax(axis=1)[:, None]
        made[small] = _log_sum(gaps[small].astype(np.float64), best, log_tail)
        return made
    logs: Floats = np.log(sums)
    return logs


def _union(votes: Floats, log_tail: Callable[[Floats], Floats], tail: Floats | None) -> Floats:
    """Return the logarithm of the sum of tails of each row of a block of checked votes."""
    best = votes.argmax(axis=1)[:, None]
    gaps = np.take_along_axis(votes, best, axis=1) - votes
    if tail is None:
        return _log_sum(gaps, best, log_tail)
    places = gaps.astype(np.intp)
    np.put_along_axis(places, best, tail.size - 1, axis=1)
    sums = tail[places] @ np.ones(votes.shape[1])
    if (small := sums < _LEAST_SUM).any():
        sums[small] = 1.0
        made = np.log(sums)
        made[small] = _log_sum(gaps[small], best[small], log_tail)
        return made
    return np.log(sums, out=sums)


def _log_sum(gaps: Floats, best: NDArray[np.intp], log_tail: Callable[[Floats], Floats]) -> Floats:
    """:func:`_union` in logarithms, for probabilities below the least float."""
    logs = np.maximum(log_tail(gaps), _LEAST_LOG)
    np.put_along_axis(logs, best, -np.inf, axis=1)
    largest = logs.max(axis=1)
    logs -= largest[:, None]
    sums = np.exp(logs, out=logs).sum(axis=1)
    made: Floats = largest + np.log(sums)
    return made
