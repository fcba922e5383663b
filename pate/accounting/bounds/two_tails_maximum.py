"""The largest T1 + T2 over the ways to share q between two tails: bounded, not searched for.

For terms see :mod:`pate.accounting.bounds.two_tails`. The maximum over t is bounded by cells of t,
never by trying points. On a cell T1, convex in q', lies below its chord, and T2, concave in q', below
its tangents at both ends; so T1 + T2 is at most

    max( S0 + (rise - R0 * w)+ / 2,   S1 + (R1 * w - rise)+ / 2 ),

S0 and S1 being the sums at the ends, ``rise`` that of T1, w that of q', -R0 and -R1 the slopes of T2.
The error is of second order in w, so that few halvings are needed. Cells are halved until none can
hold more than (1 + tightness) times the best point seen.

Proof: docs/proofs/theorem-6-plus.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.bounds.two_tails import (
    FIRST,
    LOG_Q2,
    LOG_REST,
    LOG_SLOPE,
    LOGIT,
    SECOND,
    cut,
    largest_part,
    points,
)

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats

#: Ends of the first cells, as logits of t.
GRID: Final = np.array(
    [-np.inf, -24, -12, -8, -6, -4.5, -3, -2, -1, 0, 1, 2, 3, 4.5, 6, 9, 14, 24, np.inf]
)
#: Halvings after which an open cell is taken as it is: looser, never wrong. Four are the rule.
_HALVINGS: Final = 40
#: As many open cells of a block at once, at most; then they are taken as they are, too.
_MOST_CELLS: Final = 2**18
#: Rounding, in units of the largest part of V - 1: see section 7 of the proof.
_ROUNDING: Final = 2.0**-47
#: Exponents are cut off here: the exponential is beyond any value it is compared with.
_MOST_EXPONENT: Final = 600.0


def log_excess(log_q: Floats, mu: float, orders: Floats, tightness: float) -> Floats:
    """Return ln(V - 1), rounded up, (queries, orders): branch and bound over cells of t.

    An item is a query with an order; a cell belongs to an item.
    """
    order = orders[:, None]
    cuts = cut(log_q[:, None, None], GRID, mu)
    upper, lower = (cut(log_q[:, None, None], end, mu) for end in (GRID[:1], GRID[-1:]))
    ref = largest_part(upper, lower, order, mu)
    items = (len(log_q) * len(orders), len(GRID))
    made = points(cuts, order, mu, ref).reshape(6, *items)
    left, right = made[:, :, :-1].reshape(6, -1), made[:, :, 1:].reshape(6, -1)
    item = np.repeat(np.arange(items[0]), items[1] - 1)

    ref, log_q, order = ref.ravel(), np.repeat(log_q, len(orders)), np.tile(orders, len(log_q))
    exponent = order * (order - 1.0) * (mu * mu / 2.0)
    # Rounding of the sum of the parts, in the units of ref; exponents are handled at the end.
    slack = _ROUNDING * (1.0 - order * np.exp(log_q) / np.expm1(log_q))
    cap = np.exp(np.minimum(_log_expm1(exponent) - ref, _MOST_EXPONENT))
    best = (made[FIRST] + made[SECOND]).max(axis=1)
    top = best.copy()
    for halving in range(_HALVINGS + 1):
        least, most = _log_width(left, right, log_q[item], mu)
        bound = _cell_bound(left, right, least - ref[item], most - ref[item])
        goal = best * (1.0 + tightness) + slack
        # Halving cannot reduce an error due to the rounding of w.
        mended = _cell_bound(left, right, most - ref[item], least - ref[item])
        is_open = (mended > goal[item]) & (goal < cap)[item] & (halving < _HALVINGS)
        is_open &= is_open.sum() <= _MOST_CELLS
        np.maximum.at(top, item[~is_open], bound[~is_open])
        if not is_open.any():
            break
        left, right, item = left[:, is_open], right[:, is_open], item[is_open]
        middle = _middle(left[LOGIT], right[LOGIT])
        between = points(cut(log_q[item], middle, mu), order[item], mu, ref[item])
        np.maximum.at(best, item, between[FIRST] + between[SECOND])
        left = np.concatenate([left, between], axis=1)
        right = np.concatenate([between, right], axis=1)
        item = np.concatenate([item, item])

    sizes = 32.0 + np.abs(log_q - ref) + exponent + order * mu * np.sqrt(-2.0 * log_q)
    found: Floats = ref + np.log(top + slack) + 2.0**-48 * sizes
    return found.reshape(-1, len(orders))


def _cell_bound(left: Floats, right: Floats, least: Floats, most: Floats) -> Floats:
    """Return an upper bound on T1 + T2 - 1 between two points; see the head of this module.

    ``least`` and ``most`` are ln w - ref, not more and not less than it is.
    """
    rise = right[FIRST] - left[FIRST]
    # With only the upper tail T2 is flat; with only the lower it falls without bound.
    drop = np.exp(np.minimum(left[LOG_SLOPE] + least, _MOST_EXPONENT))
    drop = np.where(np.isneginf(left[LOGIT]), 0.0, drop)
    climb = np.exp(np.minimum(right[LOG_SLOPE] + most, _MOST_EXPONENT))
    at_left, at_right = left[FIRST] + left[SECOND], right[FIRST] + right[SECOND]
    over_left = np.maximum(rise - drop, 0.0)
    over_right = np.maximum(climb - rise, 0.0)
    made: Floats = np.where(
        np.isposinf(right[LOGIT]),
        at_left + over_left,
        np.maximum(at_left + over_left / 2.0, at_right + over_right / 2.0),
    )
    return made


def _log_width(left: Floats, right: Floats, log_q: Floats, mu: float) -> tuple[Floats, Floats]:
    """Return bounds on ln w, w = q'_1 - q'_0, from below and above, whatever is rounded.

    From the logarithms of q', or of 1 - q' where that is the smaller.
    """
    by_rest = right[LOG_Q2] > -0.7
    large = np.where(by_rest, left[LOG_REST], right[LOG_Q2])
    small = np.where(by_rest, right[LOG_REST], left[LOG_Q2])
    step = np.maximum(large - small, 0.0)
    # Both are sums of a logarithm of a mass, of ln L at its cut and of Mills ratios.
    logit = np.where(np.isfinite(left[LOGIT]), left[LOGIT], right[LOGIT])
    size = 2.0 + np.abs(log_q) + np.abs(logit)
    rounding = 2.0**-49 * (size + mu * np.sqrt(2.0 * size) + mu * mu)
    with np.errstate(divide="ignore"):
        least = large + np.log(-np.expm1(-np.maximum(step - rounding, 0.0)))
        most = large + np.log(-np.expm1(-step - rounding))
    return least, most


def _middle(left: Floats, right: Floats) -> Floats:
    """Return a logit between two; an endless cell is divided at twice its finite end."""
    finite = np.isfinite(left) & np.isfinite(right)
    inner = np.where(np.isfinite(left), left, 0.0) + np.where(np.isfinite(right), right, 0.0)
    made: Floats = np.where(finite, inner / 2.0, inner * 2.0)
    return made


def _log_expm1(x: Floats) -> Floats:
    """Return ln(exp(x) - 1) for x > 0."""
    small = np.minimum(x, 30.0)
    made: Floats = np.where(x > 30.0, x, np.log(np.expm1(small)))
    return made
