"""Fast count of the seeds that could have made a candidate about as probably as its own: k'.

A candidate keeps the first attributes of its seed, in the model's order, and draws the rest. So the
probability that a record d makes y depends on d only through the number of y's first attributes
that d shares, given the possible numbers of kept attributes (the *starts*):

    P(y | d) = (1/#starts) * sum over starts s <= shared(d, y) of prod_{r >= s} p_r(y).

It is constant between two starts. So k' is a sum of differences of group sizes of D_S on prefixes
of y, one look-up per attribute, instead of one probability per record of D_S.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from party.synthesis.table.network import Network

#: Margin below ln(gamma) for the probabilities of one bucket, in nats. It covers the rounding
#: between a table and the law that is drawn from it, where each drawn value has at least the
#: probability LEAST_CONDITIONAL: 128 factors, each off by less than 2^-26 of itself.
ROUNDING: Final = 2.0**-16
LEAST_CONDITIONAL: Final = 2.0**-24
#: The least ln(gamma) that leaves a bucket a positive width.
_LEAST_LOG_GAMMA: Final = 2.0**-10
#: A level with at most this many possible keys per group is looked up directly.
_DENSE: Final = 64
_LARGEST_DENSE: Final = 2**22


class PrefixIndex:
    """The sizes of the groups of rows that share a prefix.

    Args:
        rows: (n, m) codes, n >= 1.
        order: the attributes, first the one that every group shares first.
        sizes: number of codes per attribute.
        depth: the longest prefix of interest.
    """

    def __init__(
        self, rows: NDArray[np.intp], order: Sequence[int], sizes: Sequence[int], depth: int
    ) -> None:
        self._order = tuple(order[:depth])
        self._sizes = tuple(int(sizes[i]) for i in self._order)
        self._levels: list[_Level] = []
        self._count = len(rows)
        groups = np.zeros(len(rows), dtype=np.int64)
        number = 1
        for attribute, size in zip(self._order, self._sizes, strict=True):
            keys, groups, counts = np.unique(
                groups * size + rows[:, attribute], return_inverse=True, return_counts=True
            )
            self._levels.append(_Level(keys, counts, number * size))
            number = len(keys)

    def counts(self, rows: NDArray[np.intp], lengths: Sequence[int]) -> NDArray[np.int64]:
        """Return how many of the indexed rows share the first attributes with each row.

        Args:
            rows: (c, m) codes.
            lengths: increasing lengths of prefixes, each up to the index's depth.

        Returns:
            (c, lengths) int64.
        """
        found = np.zeros((len(rows), len(lengths)), dtype=np.int64)
        groups = np.zeros(len(rows), dtype=np.int64)
        at = 0
        for length in range(lengths[-1] + 1):
            if length:
                size, level = self._sizes[length - 1], self._levels[length - 1]
                groups = level.find(groups * size + rows[:, self._order[length - 1]], groups)
            if length == lengths[at]:
                found[:, at] = self._levels[length - 1].sizes(groups) if length else self._count
                at += 1
        return found


class _Level:
    """The groups of one prefix length. Group -1 is empty."""

    def __init__(self, keys: NDArray[np.int64], counts: NDArray[np.int64], possible: int) -> None:
        self._keys = keys
        # The last entry is the size of group -1.
        self._counts = np.append(counts, 0)
        self._dense: NDArray[np.int64] | None = None
        if possible <= min(_LARGEST_DENSE, _DENSE * max(len(keys), 1024)):
            self._dense = np.full(possible + 1, -1, dtype=np.int64)
            self._dense[keys] = np.arange(len(keys))

    def find(self, keys: NDArray[np.int64], parents: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the group of each key, -1 where no row has it or has the parent's."""
        if self._dense is not None:
            return self._dense[np.where(parents < 0, len(self._dense) - 1, keys)]
        at = np.searchsorted(self._keys, keys)
        at[at == len(self._keys)] = 0
        return np.where((parents >= 0) & (self._keys[at] == keys), at, -1)

    def sizes(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of rows of each group."""
        return self._counts[groups]


class PlausibleSeeds:
    """Counts, for candidates of a model, the seeds that they are plausible for.

    Args:
        seeds: (n, m) codes of D_S, n >= 1.
        network: the model that candidates are made with.
        resampled: the numbers of attributes to redraw, each from 1 to m; one of them is drawn
            uniformly for each candidate.
        gamma: the largest ratio of two probabilities of one bucket.

    Raises:
        UsageError: for numbers that are not in 1..m, none or repeated, or, with more than one, a
            gamma too close to 1 for floats.
    """

    def __init__(
        self,
        seeds: NDArray[np.intp],
        network: Network,
        resampled: Sequence[int],
        gamma: Fraction,
    ) -> None:
        m = len(network.order)
        self.resampled = check_resampled(resampled, m)
        self._network = network
        self._order = np.array(network.order, dtype=np.intp)
        #: Numbers of attributes that may be kept, increasing.
        self._starts = [m - omega for omega in reversed(self.resampled)]
        self._width = bucket_width(gamma) if len(self._starts) > 1 else 1.0
        self._index = PrefixIndex(seeds, network.order, network.domain.sizes, self._starts[-1])

    def count(
        self, seeds: NDArray[np.intp], candidates: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return k' of each candidate, and whether floats could distinguish its probabilities.

        Args:
            seeds: (c, m) codes, the seed of each candidate.
            candidates: (c, m) codes.

        Returns:
            (c,) int64, the seed itself included; and (c,) bool. A candidate that is false there has
            a value less probable than :data:`LEAST_CONDITIONAL` and must be dropped. That depends
            on only the candidate.
        """
        counts = self._index.counts(candidates, self._starts)
        if len(self._starts) == 1:  # all positive probabilities are equal
            return counts[:, 0], np.ones(len(candidates), dtype=np.bool_)
        logs, certain = self._log_conditionals(candidates)
        buckets = self._buckets(logs)
        exactly = counts
        exactly[:, :-1] -= counts[:, 1:]
        own = buckets[np.arange(len(seeds)), self._own_start(seeds, candidates)]
        same = buckets == own[:, None]
        return (exactly * same).sum(axis=1), certain

    def _log_conditionals(
        self, candidates: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        first = self._starts[0]
        conditionals = self._network.conditionals(candidates)[:, first:]
        certain: NDArray[np.bool_] = np.all(conditionals >= LEAST_CONDITIONAL, axis=1)
        with np.errstate(divide="ignore"):  # ln 0 = -inf: an impossible candidate
            return np.log(conditionals), certain

    def _buckets(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (c, starts) the bucket of the probability from each start on: floor(-ln P / width)."""
        tails = np.cumsum(logs[:, ::-1], axis=1)[:, ::-1]  # ln prod_{r >= s} p_r
        # The last start may be m: the empty product.
        tails = np.concatenate((tails, np.zeros((len(tails), 1))), axis=1)
        chosen = tails[:, np.array(self._starts) - self._starts[0]]
        sums = np.logaddexp.accumulate(chosen, axis=1) - math.log(len(self._starts))
        return np.floor(-sums / self._width)

    def _own_start(self, seeds: NDArray[np.intp], candidates: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return (c,) the last start up to which each candidate shares its seed's prefix."""
        found = np.zeros(len(seeds), dtype=np.intp)
        shares = np.ones(len(seeds), dtype=np.bool_)
        done = 0
        for at, start in enumerate(self._starts):
            for i in self._order[done:start]:
                shares &= seeds[:, i] == candidates[:, i]
            done = start
            found[shares] = at
        return found


def bucket_width(gamma: Fraction) -> float:
    """Return the width of a bucket of probabilities in nats: ln(gamma), less the margin of floats.

    Raises:
        UsageError: if it would not be positive.
    """
    log_gamma = math.log(gamma)
    if log_gamma < _LEAST_LOG_GAMMA:
        raise UsageError(
            f"with several numbers of resampled attributes gamma must be at least 1.001, got {gamma}"
        )
    return log_gamma - ROUNDING


def check_resampled(resampled: Sequence[int], attributes: int) -> tuple[int, ...]:
    """Return the numbers of resampled attributes in increasing order.

    Raises:
        UsageError: if there is none, one repeats, or one is outside 1..attributes.
    """
    found = tuple(sorted(resampled))
    if not found or len(set(found)) != len(found) or not 1 <= found[0] <= found[-1] <= attributes:
        raise UsageError(
            f"omega is the number of resampled attributes: distinct numbers from 1 to {attributes}, "
            f"got {list(resampled)}"
        )
    return found
