from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dirichlet import deal

LABELS = np.repeat(np.arange(10), 200)


@pytest.mark.parametrize("alpha", [None, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("parties", [1, 5, 20])
def test_every_record_has_one_party_and_a_seed_decides(alpha: float | None, parties: int) -> None:
    party = deal(LABELS, parties, alpha, np.random.default_rng(4))
    assert party.shape == LABELS.shape
    assert party.min() >= 0
    assert party.max() < parties
    assert np.array_equal(party, deal(LABELS, parties, alpha, np.random.default_rng(4)))


def test_the_smaller_alpha_is_the_more_skewed_parties_are() -> None:
    def largest_shares(alpha: float | None) -> float:
        """Mean over draws and classes of the share of a class that its largest party has."""
        generator = np.random.default_rng(0)
        found = []
        for _ in range(20):
            party = deal(LABELS, 5, alpha, generator)
            found += [np.bincount(party[c == LABELS], minlength=5).max() / 200 for c in range(10)]
        return float(np.mean(found))

    even, mild, strong = (largest_shares(alpha) for alpha in (None, 1.0, 0.1))
    # An even deal is near a fifth; at alpha 0.1 one party has most of a class. Two hundred draws
    # leave errors of about a hundredth.
    assert even < 0.28
    assert 0.35 < mild < 0.6
    assert strong > 0.75
