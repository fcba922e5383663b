"""An order of queries that balances the classes of labels, from public values only.

Confident mechanisms answer where teachers agree, and teachers agree least on rare or hard inputs:
labels concentrate in the easy classes, and the student learns the others badly (Uniyal et al. 2021,
"DP-SGD vs PATE: which has less disparate impact on model accuracy?", arXiv 2106.12576; Tran, Dinh,
Beiter and Fioretto 2021, "A fairness analysis on private aggregation of teacher ensembles", arXiv
2109.08630). A budget pays for a number of queries; this chooses the queries, not how they are
answered.

**It costs nothing.** Let D be the private records and Y the labels released so far, with the list
of the queries asked. The order is ``f(order, labels, predictions)``, where ``order`` follows from
the campaign's id, ``labels`` is a part of Y, and ``predictions`` is what the student submitted,
computed from the public set, Y and independent randomness. So the order is a random function of
only Y: given Y it is independent of D, and by post-processing it is as private as Y is. Every query
in this order is then one more adaptive step: a mechanism chosen by looking at earlier outputs, as
composition in zCDP and in Gaussian DP allows, also under a filter that stops at an adaptive moment
(Whitehouse et al. 2023, arXiv 2203.05481; Koskela, Tobaben and Honkela 2023, arXiv 2209.15596). Its
charge is the mechanism's worst cost, the same for every query, so the order does not change the
number of affordable queries either. This stays true if the predictions are false or malicious: an
adaptive adversary may choose the queries.

It would cost privacy if the order used the histogram, a margin, an unreleased label, or a student
trained on private records. And a data-dependent bound for a fixed list of queries (a gated
campaign) holds for that list only: there the order must be fixed before the first answer.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def quota_order(
    order: Sequence[int], labels: Mapping[int, int], predictions: NDArray[np.float32]
) -> tuple[int, ...]:
    """Return ``order`` with the queries of scarce classes first.

    A query counts for the class that the student predicts, the first among equals. Greedily, the
    next place goes to the class with the fewest labels, counting released labels and the places
    assigned so far as if each were answered; among equals, to the class whose next query is
    earliest in ``order``. Within a class the given order stays. Queries that already have a label
    are not asked again: they come last, in the given order.

    Only comparisons of floats and sums of integers decide, so every machine computes the same
    order. After an interruption it must be recomputed from the same values: the labels of *earlier*
    rounds, without those of the current round.

    >>> sure = np.eye(2, dtype=np.float32)[[0, 0, 0, 1, 1]]
    >>> quota_order([4, 3, 2, 1, 0], {}, sure)
    (4, 2, 3, 1, 0)
    >>> quota_order([4, 3, 2, 1, 0], {0: 0, 1: 0}, sure)
    (4, 3, 2, 1, 0)

    Args:
        order: distinct indices of queries in their previous order, such as the rows that parties
            vote on.
        labels: released labels of earlier rounds by query, of any source; also of queries that are
            not in ``order``.
        predictions: (queries, classes) float32, the student's probabilities for the public set.

    Returns:
        The same indices, each once.

    Raises:
        UsageError: for predictions that are no finite matrix, a query that they do not cover or that
            is in the order twice, or a label that is no class of theirs.
    """
    if predictions.ndim != 2 or not predictions.shape[1] or not np.isfinite(predictions).all():
        raise UsageError(f"predictions of shape {predictions.shape} give no class for each query")
    queries, classes = predictions.shape
    if len(set(order)) != len(order) or any(not 0 <= query < queries for query in order):
        raise UsageError(f"an order names each of its queries once, from 0 to {queries - 1}")
    if any(not 0 <= label < classes for label in labels.values()):
        raise UsageError(f"a label lies outside the {classes} classes of the predictions")
    likeliest = predictions.argmax(axis=1).tolist()

    counts = [0] * classes
    for label in labels.values():
        counts[label] += 1
    waiting: list[deque[tuple[int, int]]] = [deque() for _ in range(classes)]
    for place, query in enumerate(order):
        if query not in labels:
            waiting[likeliest[query]].append((place, query))
    heap = [
        (counts[at], held[0][0], at) for at, held in enumerate(waiting) if held
    ]  # the fewest labels, then the earliest query
    heapq.heapify(heap)
    found = []
    while heap:
        count, _, at = heap[0]
        found.append(waiting[at].popleft()[1])
        if waiting[at]:
            heapq.heapreplace(heap, (count + 1, waiting[at][0][0], at))
        else:
            heapq.heappop(heap)
    return (*found, *(query for query in order if query in labels))
