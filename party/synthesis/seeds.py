"""Mechanism 1: rows made from seeds, and released if enough other seeds could have made them.

For its cost see :mod:`party.synthesis.deniability`; seedless release does not use it. The number of
candidates that passed is private beyond the returned rows: nothing here reports it, every attempt
is made even if it can no longer matter, and no time is measured.

The probability that a record makes a candidate depends only on how many first attributes both
share, and is constant between two possible numbers of kept attributes. So the count k' is a sum of
differences of group sizes on prefixes, one look-up per attribute. Proof:
docs/proofs/deniability.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.deniability import COIN_DENOMINATOR, RandomizedTest, check_attempts
from pate.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.synthesis.network import Network
    from pate.noise.exact import Randomness
    from pate.noise.lanes import Lanes

#: Candidates in memory at once.
_AT_A_TIME: Final = 2**15
#: Margin below ln(gamma) for the probabilities of one bucket, in nats. It covers the rounding
#: between a table and the law that is drawn from it, where each drawn value has at least the
#: probability LEAST_CONDITIONAL: 128 factors, each off by less than 2^-26 of itself.
ROUNDING: Final = 2.0**-16
LEAST_CONDITIONAL: Final = 2.0**-24
#: The least ln(gamma) that leaves a bucket a positive width.
_LEAST_LOG_GAMMA: Final = 2.0**-10


@dataclass(frozen=True)
class SeededRelease:
    """A charged plan: at most ``rows`` of ``attempts`` candidates; each is dropped with chance ``coin``."""

    test: RandomizedTest
    resampled: tuple[int, ...]
    attempts: int
    rows: int
    coin: Fraction

    def __post_init__(self) -> None:
        check_attempts(self.attempts)
        if self.rows < 1:
            raise UsageError(f"at least one row must be released, got {self.rows}")
        if not 0 < self.coin < 1 or COIN_DENOMINATOR % self.coin.denominator:
            raise UsageError(
                f"the coin must be a multiple of 2^-60 between 0 and 1, got {self.coin}: "
                "take it from deniability.coin"
            )


def release_seeded(
    seeds: NDArray[np.intp], network: Network, plan: SeededRelease, source: Randomness
) -> NDArray[np.intp]:
    """Make ``plan.attempts`` candidates, all charged before, and return the first ``plan.rows`` that pass.

    ``seeds``, (n, m) codes, are disjoint from the rows of ``network``; InfeasibleError if they are too few.
    """
    network.domain.check_codes(seeds)
    if len(seeds) < plan.test.seeds:
        raise InfeasibleError(
            "this split has fewer seeds than the cost assumes: no seed-based release; "
            "seedless release needs none"
        )
    lanes = source.lanes
    threshold = plan.test.k + source.laplace(1 / Fraction(plan.test.epsilon0), plan.attempts)
    dropped = lanes.below(COIN_DENOMINATOR, plan.attempts) < int(plan.coin * COIN_DENOMINATOR)
    plausible = PlausibleSeeds(seeds, network, plan.resampled, plan.test.gamma)
    kept: list[NDArray[np.intp]] = []
    for first in range(0, plan.attempts, _AT_A_TIME):
        part = slice(first, min(first + _AT_A_TIME, plan.attempts))
        number = part.stop - first
        chosen, made = draw_candidates(seeds, network, plausible.resampled, number, lanes)
        count, certain = plausible.count(chosen, made)
        # Candidates that floats cannot judge are never released.
        kept.append(made[certain & (count >= threshold[part]) & ~dropped[part]])
    return np.concatenate(kept)[: plan.rows]


def draw_candidates(
    seeds: NDArray[np.intp], network: Network, resampled: tuple[int, ...], count: int, lanes: Lanes
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return ``count`` uniform seeds and a candidate made from each, both (count, m) codes."""
    omegas = np.array(check_resampled(resampled, len(network.order)), dtype=np.intp)
    chosen = seeds[lanes.below(len(seeds), count)]
    omega = omegas[lanes.below(len(omegas), count)]
    return chosen, network.resample(chosen, omega, lanes)


def check_resampled(resampled: Sequence[int], attributes: int) -> tuple[int, ...]:
    """Return distinct numbers of resampled attributes, 1..attributes, in increasing order."""
    found = tuple(sorted(resampled))
    if not found or len(set(found)) != len(found) or not 1 <= found[0] <= found[-1] <= attributes:
        raise UsageError(
            f"omega is the number of resampled attributes: distinct numbers from 1 to {attributes}, "
            f"got {list(resampled)}"
        )
    return found


def bucket_width(gamma: Fraction) -> float:
    """Return the width of a bucket of probabilities in nats: ln(gamma), less the margin of floats."""
    log_gamma = math.log(gamma)
    if log_gamma < _LEAST_LOG_GAMMA:
        raise UsageError(
            f"with several numbers of resampled attributes gamma must be at least 1.001, got {gamma}"
        )
    return log_gamma - ROUNDING


class PlausibleSeeds:
    """Counts, for candidates of a model, the seeds that they are plausible for, within a factor gamma."""

    def __init__(
        self, seeds: NDArray[np.intp], network: Network, resampled: Sequence[int], gamma: Fraction
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
        """Return k' of each candidate, its seed included; one that floats cannot judge is to be dropped."""
        counts = self._index.counts(candidates, self._starts)
        if len(self._starts) == 1:  # all positive probabilities are equal
            return counts[:, 0], np.ones(len(candidates), dtype=np.bool_)
        conditionals = self._network.conditionals(candidates)[:, self._starts[0] :]
        certain: NDArray[np.bool_] = np.all(conditionals >= LEAST_CONDITIONAL, axis=1)
        buckets = self._buckets(conditionals)
        exactly = counts
        exactly[:, :-1] -= counts[:, 1:]
        own = buckets[np.arange(len(seeds)), self._own_start(seeds, candidates)]
        same = buckets == own[:, None]
        return (exactly * same).sum(axis=1), certain

    def _buckets(self, conditionals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (c, starts) the bucket of the probability from each start on: floor(-ln P / width)."""
        with np.errstate(divide="ignore"):  # ln 0 = -inf: an impossible candidate
            logs = np.log(conditionals)
        tails = np.cumsum(logs[:, ::-1], axis=1)[:, ::-1]  # ln prod_{r >= s} p_r
        # The last start may be m: the empty product.
        tails = np.concatenate((tails, np.zeros((len(tails), 1))), axis=1)
        chosen = tails[:, np.array(self._starts) - self._starts[0]]
        sums = np.logaddexp.accumulate(chosen, axis=1) - math.log(len(self._starts))
        return np.floor(-sums / self._width)

    def _own_start(self, seeds: NDArray[np.intp], candidates: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return (c,) the last start up to which each candidate shares its seed's prefix."""
        alike = (seeds == candidates)[:, self._order]
        found = np.zeros(len(seeds), dtype=np.intp)
        for at, start in enumerate(self._starts):
            found[alike[:, :start].all(axis=1)] = at
        return found


class PrefixIndex:
    """The sizes of the groups of rows that share a prefix of up to ``depth`` attributes."""

    def __init__(
        self, rows: NDArray[np.intp], order: Sequence[int], sizes: Sequence[int], depth: int
    ) -> None:
        self._order = tuple(order[:depth])
        self._sizes = sizes
        self._rows = len(rows)
        #: By length of prefix: the sorted keys of its groups, and their sizes; the last one of -1.
        self._levels: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        groups = np.zeros(len(rows), dtype=np.int64)
        for attribute in self._order:
            keys, groups, counts = np.unique(
                groups * sizes[attribute] + rows[:, attribute],
                return_inverse=True,
                return_counts=True,
            )
            self._levels.append((keys, np.append(counts, 0)))

    def counts(self, rows: NDArray[np.intp], lengths: Sequence[int]) -> NDArray[np.int64]:
        """Return (c, lengths) how many of the indexed rows share the first attributes with each row."""
        found = np.full((len(rows), len(lengths)), self._rows, dtype=np.int64)
        #: Of each row; -1 where no indexed row has its prefix.
        groups = np.zeros(len(rows), dtype=np.int64)
        for length, attribute in enumerate(self._order[: lengths[-1]], 1):
            keys, sizes = self._levels[length - 1]
            wanted = groups * self._sizes[attribute] + rows[:, attribute]
            at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            groups = np.where((groups >= 0) & (keys[at] == wanted), at, -1)
            if length in lengths:
                found[:, lengths.index(length)] = sizes[groups]
        return found
