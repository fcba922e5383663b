"""Smooth sensitivity of a data-dependent cost at the given votes.

The local sensitivity at distance d is the largest change of a cost by one unit, from any votes
within d units. Discounted by exp(-beta d) and maximised over d it is the smooth sensitivity, by
which the literature scales the noise. Here it is bounded for any per-query bound that depends on
the largest count and on q, and increases with q: Theorem 6, Theorem 6+, only the threshold test, or
test and label as one mechanism.

Votes of a query are a point (top, gap): the largest count, and the common gap of all other classes
that gives the same q. One unit moves it by some (s, t) with |s| <= k and -c(s) <= t <= c(-s), c
being that of :mod:`pate.accounting.publishing.nearby`. The plane is cut into cells, whole tops by
parts of a vote of gap. In a cell a cost lies between its values at the two edges, so that
differences of edges bound every difference within, however the cost varies there.

It serves comparison with published figures (``pate account --sanitised``). The gate does not need
it.

Source: Papernot et al. 2018, appendix B.4, for the quantity; the method is ours.
Proof: docs/proofs/gate.md, sections 1 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.arrays import Floats, check_positive, check_rdp
from pate.accounting.publishing.nearby import Batch, raised
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Larger tables are refused: the gate needs none, and works for any number of teachers.
_MOST_CELLS: Final = 2**25
#: Rounding error of a gap, in sigmas.
_SLACK_SIGMAS: Final = 1e-9


@dataclass(frozen=True, eq=False)
class SmoothSensitivity:
    """Result of :func:`smooth_sensitivity`. Secret, like the votes."""

    value: float = field(repr=False)  # the smooth sensitivity, nats
    beta: float  # its discount per unit
    # (distances,) bounds on the local sensitivity of the whole batch, as far as they can matter to
    # ``value``
    local: Floats = field(repr=False)


def smooth_sensitivity(
    batch: Batch, teachers: int, order: float, beta: float, cells_per_vote: int = 8
) -> SmoothSensitivity:
    """Return a beta-smooth upper bound on the local sensitivity of the cost of a batch.

    ``teachers`` are all votes of a query together. More cells per vote are tighter, and slower.
    """
    beta = check_positive(beta, "beta")
    table = _Table(batch, teachers, order, cells_per_vote)
    local: list[float] = []
    # An upper bound everywhere: once it is discounted below the value found, farther distances are
    # irrelevant.
    anywhere = batch.queries * table.largest
    best = 0.0
    while len(local) <= table.farthest and anywhere * math.exp(-beta * len(local)) > best:
        if local:
            table.widen()
        local.append(float(batch.times @ table.at_votes()))
        best = max(best, local[-1] * math.exp(-beta * (len(local) - 1)))
    return SmoothSensitivity(best, beta, np.array(local))


class _Table:
    """Local sensitivities within a distance that grows, at (tops, cells of gap)."""

    def __init__(self, batch: Batch, teachers: int, order: float, cells_per_vote: int) -> None:
        if not 1 <= teachers <= _MOST_CELLS or not 1 <= cells_per_vote <= _MOST_CELLS:
            raise AccountingError(
                f"teachers and cells per vote are whole numbers from 1, got {teachers} and "
                f"{cells_per_vote}"
            )
        least_gap = float(batch.law.gap_at([-math.log(batch.classes)])[0])
        cells = max(1, math.ceil((teachers - least_gap) * cells_per_vote) + 1)
        tops = np.arange(teachers + 1.0) if batch.checked else np.zeros(1)
        if cells * len(tops) > _MOST_CELLS:
            raise AccountingError("tables of that many teachers would be too large: use the gate")
        if batch.margins:
            raise AccountingError(
                "smooth sensitivity is implemented only for threshold tests of the largest count"
            )
        if batch.top.max() > teachers or batch.gaps.max() > max(teachers, least_gap) * (1 + 1e-9):
            raise AccountingError(f"a query has more votes than {teachers} teachers")
        self.farthest = teachers
        self._batch, self._fine, self._least_gap = batch, cells_per_vote, least_gap
        self._tops = len(tops)
        edges = least_gap + np.arange(cells + 1.0) / cells_per_vote
        self._values = self._nearest(self._costs(tops, edges, batch.index_of(order)))
        if batch.checked:
            self._values[_impossible(tops, edges, teachers)] = 0.0

    @property
    def largest(self) -> float:
        """The largest local sensitivity of any query."""
        return float(self._values.max())

    def at_votes(self) -> Floats:
        """Return (queries,) local sensitivities of the kinds of queries of the batch."""
        row = self._batch.top.astype(np.intp)
        slack = self._batch.law.sigma * _SLACK_SIGMAS
        cells = [
            np.clip(
                np.floor((self._batch.gaps + side - self._least_gap) * self._fine).astype(np.intp),
                0,
                self._values.shape[1] - 1,
            )
            for side in (-slack, slack)
        ]
        made: Floats = np.maximum(self._values[row, cells[0]], self._values[row, cells[1]])
        return made

    def widen(self) -> None:
        """Go one unit further."""
        from scipy import ndimage  # slow to import

        made = np.zeros_like(self._values)
        for step, closer, wider in self._moves():
            to, source = self._rows(step)
            window = closer + wider + 1
            moved = ndimage.maximum_filter1d(
                self._values[source], window, axis=1, mode="nearest", origin=closer - window // 2
            )
            np.maximum(made[to], moved, out=made[to])
        self._values = made

    def _costs(self, tops: Floats, edges: Floats, at: int) -> Floats:
        """Return (tops, edges) costs, which fall along a row."""
        batch = self._batch
        log_q = raised(edges, batch.classes, batch.law)
        made = np.empty((len(tops), len(edges)))
        for row, top in enumerate(tops):
            made[row] = batch.bound(np.full(len(edges), top), log_q)[:, at]
        return check_rdp(made, "the bound of a query")

    def _nearest(self, costs: Floats) -> Floats:
        """Return (tops, cells) bounds on the change of a cost by one unit."""
        cells = costs.shape[1] - 1
        made = np.zeros((len(costs), cells))
        left = np.arange(cells)
        for step, closer, wider in self._moves():
            to, source = self._rows(step)
            up = costs[source][:, np.maximum(left - closer, 0)] - costs[to][:, 1:]
            down = costs[to][:, :-1] - costs[source][:, np.minimum(left + 1 + wider, cells)]
            np.maximum(made[to], np.maximum(up, down), out=made[to])
        return made

    def _moves(self) -> list[tuple[int, int, int]]:
        """Return steps of the top with how many cells closer and wider the gap can get."""
        k = self._batch.neighbours.votes
        if not self._batch.checked:
            most = self._batch.neighbours.gap_shift * self._fine
            return [(0, most, most)]
        closer = self._batch.narrower(np.arange(-k, k + 1.0), 1).astype(np.intp) * self._fine
        return [(i - k, int(closer[i]), int(closer[2 * k - i])) for i in range(2 * k + 1)]

    def _rows(self, step: int) -> tuple[slice, slice]:
        """Return the rows that have one ``step`` above them, and those rows."""
        tops = self._tops
        return slice(max(0, -step), tops - max(0, step)), slice(max(0, step), tops + min(0, step))


def _impossible(tops: Floats, edges: Floats, teachers: int) -> NDArray[np.bool_]:
    """Return (tops, cells): where no histogram of that many teachers lies.

    A gap is at most top, except in the first cell, where q is capped; and the second largest count
    is at most teachers - top.
    """
    too_far = (edges[:-1] > tops[:, None] + 1e-6) & (np.arange(len(edges) - 1) > 0)
    made: NDArray[np.bool_] = too_far | (edges[1:] < 2.0 * tops[:, None] - teachers - 1e-6)
    return made
