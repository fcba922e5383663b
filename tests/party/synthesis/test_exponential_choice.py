"""The exponential mechanism against its law. Each statistical test fails by chance once in 10^6."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from party.synthesis.generators.exponential import choose, exponential_coins
from party.synthesis.table.randomness import SystemRandomness
from pate.errors import AccountingError, UsageError

FALSE_ALARM = 1e-6


@pytest.mark.parametrize(
    ("scores", "rate"),
    [
        ([0, 1, 2, 3, 3], Fraction(1, 2)),
        # Scores and rate as a structure has them, beyond what 64 bits multiply to.
        ([2**50 + 2**40 * at for at in range(6)], Fraction(2**20 + 7, 3 * 2**60)),
        ([-5, -5], Fraction(1)),
    ],
)
def test_a_choice_has_its_law(scores: list[int], rate: Fraction) -> None:
    from scipy.stats import chisquare

    source = SystemRandomness()
    weights = np.exp([float((score - max(scores)) * rate) for score in scores])
    chosen = [choose(scores, rate, source) for _ in range(8000)]
    found = np.bincount(chosen, minlength=len(scores))
    assert chisquare(found, weights / weights.sum() * 8000).pvalue > FALSE_ALARM


def test_what_is_far_below_the_best_is_never_chosen() -> None:
    source = SystemRandomness()
    scores = [0] * 500 + [10**30]
    assert choose(scores, Fraction(1), source) == 500
    assert choose([-(10**30)], Fraction(1), source) == 0


def test_coins_have_their_probability() -> None:
    from scipy.stats import binomtest

    source = SystemRandomness()
    n = 60_000
    for whole, rest, unit in ((0, 0, 1), (0, 1, 3), (1, 2, 3), (2, 0, 5), (0, 2**61, 2**61 + 1)):
        heads = exponential_coins(np.full(n, whole), np.full(n, rest), unit, source)
        law = float(np.exp(-(whole + rest / unit)))
        assert binomtest(int(heads.sum()), n, law).pvalue > FALSE_ALARM


def test_what_cannot_be_chosen_is_refused() -> None:
    source = SystemRandomness()
    for scores, rate in (([], Fraction(1)), ([1], Fraction(0)), ([1], Fraction(1, 2**62))):
        with pytest.raises(UsageError):
            choose(scores, rate, source)


def test_a_broken_source_ends_in_an_error() -> None:
    class Zeros(SystemRandomness):
        def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            return np.zeros(count, dtype=np.uint64)

    with pytest.raises(AccountingError, match="broken"):
        choose([0, 1], Fraction(1), Zeros())
