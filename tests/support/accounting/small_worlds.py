"""Worlds so small that every histogram, every neighbour and every outcome can be enumerated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.accounting.nearby import Batch
from pate.accounting.units import Neighbours


@dataclass(frozen=True)
class World:
    """All histograms of ``teachers`` votes (of up to as many, where votes are removed)."""

    teachers: int
    classes: int
    law: Law
    neighbours: Neighbours
    bound: Callable[[Floats, Floats], Floats]
    order: float
    checked: bool

    @cached_property
    def histograms(self) -> NDArray[np.int64]:
        every = product(range(self.teachers + 1), repeat=self.classes)
        if self.neighbours.adjacency == "change":
            return np.array([h for h in every if sum(h) == self.teachers])
        least = max(1, self.teachers - 6)
        return np.array([h for h in every if least <= sum(h) <= self.teachers])

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """(histograms, histograms): how many units lie between them."""
        moved = self.histograms[:, None, :] - self.histograms[None, :, :]
        more, fewer = np.maximum(moved, 0).sum(axis=2), np.maximum(-moved, 0).sum(axis=2)
        k = self.neighbours.votes
        made: NDArray[np.int64] = -(-more // k)
        if self.neighbours.adjacency == "remove":
            made = made - (-fewer // k)
        return made

    @cached_property
    def costs(self) -> Floats:
        """(histograms,) the bound itself, whatever the histogram."""
        log_q = gnmax_log_q(self.histograms, self.law)
        return self.bound(self.histograms.max(axis=1).astype(float), log_q)[:, 0]

    @cached_property
    def every(self) -> Batch:
        """The batch of all histograms."""
        return self.batch(*range(len(self.histograms)))

    @cached_property
    def kinds(self) -> NDArray[np.intp]:
        """(histograms,) which query of the batch of all histograms each of them is."""
        every, log_q = self.every, gnmax_log_q(self.histograms, self.law)
        top = self.histograms.max(axis=1) if self.checked else 0.0
        same = (every.top[None, :] == np.broadcast_to(top, log_q.shape)[:, None]) & (
            every.log_q[None, :] == log_q[:, None]
        )
        assert (same.sum(axis=1) == 1).all()
        made: NDArray[np.intp] = same.argmax(axis=1)
        return made

    def worst(self, distance: int) -> Floats:
        """(histograms,) what the module says of each of them."""
        made: Floats = self.every.worst_of_each(distance)[self.kinds, 0]
        return made

    def batch(self, *rows: int) -> Batch:
        return Batch.of(
            self.histograms[list(rows)],
            self.law,
            self.neighbours,
            self.bound,
            orders=[self.order],
            checked=self.checked,
        )

    def within(self, distance: int, values: Floats) -> Floats:
        """(histograms,) the largest of ``values`` at histograms within ``distance`` units."""
        near = self.distances <= distance
        made: Floats = np.where(near, values[None, :], -np.inf).max(axis=1)
        return made


def label_bound(
    law: Law, neighbours: Neighbours, order: float
) -> Callable[[Floats, Floats], Floats]:
    """Theorem 6 for GNMax: rises in q."""
    rate = neighbours.squared_distance / (2.0 * law.sigma**2)
    return lambda top, log_q: theorem6.rdp(log_q, rate, [order])  # noqa: ARG005  (one signature)


def joint_bound(
    law: Law, check: Gaussian, threshold: float, neighbours: Neighbours, order: float
) -> Callable[[Floats, Floats], Floats]:
    """Check and label as one mechanism, as in docs/proofs/labels.md, section 6."""
    label = label_bound(law, neighbours, order)

    def bound(top: Floats, log_q: Floats) -> Floats:
        cost = label(top, log_q)[:, 0]
        found = []
        for other in (top - neighbours.votes, top + neighbours.votes):
            passes, passes2 = (check.log_survival(threshold - seen) for seen in (top, other))
            fails, fails2 = (check.log_survival(seen - threshold) for seen in (top, other))
            one = order * passes + (1 - order) * passes2 + (order - 1) * cost
            two = order * fails + (1 - order) * fails2
            found.append(np.logaddexp(one, two) / (order - 1.0))
        return np.maximum(np.maximum(*found), 0.0)[:, None]

    return bound


LAWS: list[Law] = [Gaussian(1.3), Gaussian(2.5), DiscreteGaussian(1.3), DiscreteGaussian(2.5)]
Kind = Literal["change", "remove"]


def worlds(law: Law, adjacency: Kind) -> list[World]:
    made = []
    for teachers, classes, k in ((12, 2, 1), (8, 3, 1), (10, 3, 2), (7, 4, 1), (9, 2, 3)):
        neighbours = Neighbours(k, adjacency)
        for order in (1.5, 6.0):
            label = label_bound(law, neighbours, order)
            made.append(World(teachers, classes, law, neighbours, label, order, checked=False))
            both = joint_bound(law, Gaussian(2.0), 0.6 * teachers, neighbours, order)
            made.append(World(teachers, classes, law, neighbours, both, order, checked=True))
    return made
