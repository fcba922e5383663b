"""Validation of arrays. NaN, a negative cost or a wrong shape raises.

Shapes are written with ``queries`` (rows of the votes), ``classes`` and ``orders``. Several orders
are one axis of an array, never a loop, so a bound is evaluated for all queries at once.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Floats = NDArray[np.float64]
Made = TypeVar("Made")

#: Smaller logarithms of q are replaced by this: their costs are 0 in floats, and no sum overflows.
_LEAST_LOG_Q = -1e300
#: Least work, in elements, for which a thread pays.
_SHARE = 2**19
#: Elements of one block of (queries, orders): a few such arrays stay within a core's cache.
_BLOCK = 2**16


def check_orders(orders: ArrayLike) -> Floats:
    """Return Renyi orders as (orders,) float64."""
    made = np.asarray(orders, np.float64)
    if made.ndim != 1 or not made.size:
        raise AccountingError(f"orders are a list of numbers, got shape {made.shape}")
    if not (np.isfinite(made) & (made > 1.0)).all():
        raise AccountingError("each order must be finite and above 1")
    return made


def check_log_probabilities(values: ArrayLike, name: str = "log q") -> Floats:
    """Return natural logarithms of probabilities as float64; -inf stands for 0."""
    made = np.asarray(values, np.float64)
    if not (made <= 0.0).all():
        raise AccountingError(f"{name} must be a logarithm of a probability, at most 0")
    return made


def check_queries(log_q: ArrayLike) -> Floats:
    """Return the log q of queries as (queries,) float64, -inf as a value whose cost is 0."""
    checked = check_log_probabilities(log_q)
    if checked.ndim != 1:
        raise AccountingError(f"log q is one number per query, got shape {checked.shape}")
    made: Floats = np.maximum(checked, _LEAST_LOG_Q)
    return made


def check_histograms(votes: ArrayLike) -> Floats:
    """Return votes as (queries, classes) float64."""
    made = np.asarray(votes)
    if made.ndim != 2 or made.shape[1] < 2 or made.dtype.kind not in "iuf":
        raise AccountingError(
            f"votes must be numbers of shape (queries, at least 2 classes), got {made.dtype} of "
            f"shape {made.shape}"
        )
    made = made.astype(np.float64)
    if not (np.isfinite(made) & (made >= 0.0)).all():
        raise AccountingError("a count of votes is negative or not a number")
    return made


def check_rdp(rdp: Floats, what: str) -> Floats:
    """Return ``rdp`` if it can be a Renyi divergence at each place; infinity says "no bound"."""
    if not (rdp >= 0.0).all():
        raise AccountingError(f"{what} is NaN or negative, so nothing can be charged")
    return rdp


def check_positive(value: float, name: str) -> float:
    """Return ``value`` as a float if it is finite and above 0, else raise AccountingError."""
    made = float(value)
    if not 0.0 < made < math.inf:
        raise AccountingError(f"{name} must be finite and above 0, got {value!r}")
    return made


def blocks(queries: int, width: int) -> Iterator[slice]:
    """Yield slices over ``queries`` rows so that a block of ``width`` columns fits a cache."""
    step = max(1, _BLOCK // max(1, width))
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))


def on_all_cores(work: Callable[[slice], Made], queries: int, width: int) -> list[Made]:
    """Return the results of ``work`` for each share of the rows, in order: one share per core.

    numpy releases the GIL, so threads suffice. Little work, of ``width`` elements a row, is one share.
    Results differ between machines only by the order of summation.
    """
    cores = min(os.cpu_count() or 1, 16, queries * width // _SHARE)
    if cores <= 1:
        return [work(slice(0, queries))]
    edges = [queries * at // cores for at in range(cores + 1)]
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, [slice(*pair) for pair in pairwise(edges)]))
