"""Mechanism 1: rows made from seeds, and released if enough other seeds could have made them.

Seedless release does not use it. For the cost of one attempt, the fixed number of attempts, and the
coin that drops candidates see :mod:`party.synthesis.seeds.deniability`.

The number of candidates that passed is private beyond the returned rows. Nothing here reports it,
every attempt is made even if it can no longer matter, and no time is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.seeds.composition import check_attempts
from party.synthesis.seeds.deniability import (
    COIN_DENOMINATOR,
    RandomizedTest,
    check_least_seeds,
)
from party.synthesis.seeds.plausible_rows import PlausibleSeeds, check_resampled
from pate.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from party.synthesis.table.network import Network
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise

#: Candidates in memory at once.
_AT_A_TIME: Final = 2**15


@dataclass(frozen=True)
class SeededRelease:
    """The charged plan of a seed-based release.

    Attributes:
        test: with noise.
        resampled: the numbers of attributes to redraw; one is drawn per attempt.
        attempts: T, all of which are made and charged.
        rows: largest number of rows to write.
        coin: the probability with which each candidate is dropped whatever it is, a multiple of
            1/COIN_DENOMINATOR.
        least_seeds: the public lower bound on |D_S| that ``coin`` and the cost rest on.

    Raises:
        UsageError: for a value outside its range.
        InfeasibleError: for a k above ``least_seeds``: the theorem needs at least k seeds.
    """

    test: RandomizedTest
    resampled: tuple[int, ...]
    attempts: int
    rows: int
    coin: Fraction
    least_seeds: int

    def __post_init__(self) -> None:
        check_attempts(self.attempts)
        check_least_seeds(self.least_seeds)
        if self.test.k > self.least_seeds:
            raise InfeasibleError(
                f"k = {self.test.k} is more than the {self.least_seeds} guaranteed seeds"
            )
        if self.rows < 1:
            raise UsageError(f"at least one row must be released, got {self.rows}")
        if not 0 < self.coin < 1 or COIN_DENOMINATOR % self.coin.denominator:
            raise UsageError(
                f"the coin must be a multiple of 2^-60 between 0 and 1, got {self.coin}: "
                "take it from deniability.coin"
            )


def release_seeded(
    seeds: NDArray[np.intp],
    network: Network,
    plan: SeededRelease,
    noise: Noise,
    randomness: Randomness,
) -> NDArray[np.intp]:
    """Make ``plan.attempts`` candidates and return the first ``plan.rows`` that pass.

    The caller has charged all attempts before, and uses the operating system's noise and randomness
    for anything that leaves the site.

    Args:
        seeds: (n, m) codes of D_S, disjoint from the rows that ``network`` was learned from.
        network: a model that is itself differentially private.
        plan: as charged.
        noise: of the test, one draw per candidate.
        randomness: for seeds, omegas, coins and candidates.

    Returns:
        (up to plan.rows, m) codes.

    Raises:
        SchemaError: if the seeds are not of the model's domain.
        InfeasibleError: if there are fewer seeds than the charge supposes.
        UsageError: for numbers of resampled attributes that the domain does not have.
    """
    network.domain.check_codes(seeds)
    if len(seeds) < plan.least_seeds:
        raise InfeasibleError(
            "this split has fewer seeds than the cost assumes: no seed-based release; "
            "seedless release needs none"
        )
    threshold = plan.test.k + noise.laplace(1 / Fraction(plan.test.epsilon0), plan.attempts)
    dropped = randomness.below(COIN_DENOMINATOR, plan.attempts) < int(plan.coin * COIN_DENOMINATOR)
    plausible = PlausibleSeeds(seeds, network, plan.resampled, plan.test.gamma)
    kept: list[NDArray[np.intp]] = []
    for part, made, count in _candidates(seeds, network, plausible, plan.attempts, randomness):
        kept.append(made[(count >= threshold[part]) & ~dropped[part]])
    return np.concatenate(kept)[: plan.rows]


def draw_candidates(
    seeds: NDArray[np.intp],
    network: Network,
    resampled: tuple[int, ...],
    count: int,
    randomness: Randomness,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return ``count`` uniform seeds and a candidate made from each, both (count, m) codes."""
    omegas = np.array(check_resampled(resampled, len(network.order)), dtype=np.intp)
    chosen = seeds[randomness.below(len(seeds), count)]
    omega = omegas[randomness.below(len(omegas), count)]
    return chosen, network.resample(chosen, omega, randomness)


def _candidates(
    seeds: NDArray[np.intp],
    network: Network,
    plausible: PlausibleSeeds,
    attempts: int,
    randomness: Randomness,
) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[np.int64]]]:
    """Yield slices of the attempts, their candidates, and k' of each."""
    for first in range(0, attempts, _AT_A_TIME):
        number = min(_AT_A_TIME, attempts - first)
        chosen, made = draw_candidates(seeds, network, plausible.resampled, number, randomness)
        count, certain = plausible.count(chosen, made)
        # A count that no noise reaches: candidates that floats cannot judge are never released.
        yield slice(first, first + number), made, np.where(certain, count, -(2**62))
