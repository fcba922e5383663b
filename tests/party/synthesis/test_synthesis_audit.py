"""An audit of the default generator by experiment: one record more or less, and what the fits show.

D has 40 equal rows, its neighbour one more that is like no other. An attacker guesses
"the outlier is in" by a rule that was fixed beforehand. How often the rule says so on either side
bounds epsilon from below; for a sound generator the bound lies above the claim once in 10^6 runs
of this file at most. A generator with too little noise is caught by the same rule.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.synthesis.generators import counts
from party.synthesis.generators.l1 import L1
from party.synthesis.table.domain import Attribute, Domain
from party.synthesis.table.randomness import SystemRandomness
from pate.auditing.intervals import epsilon_lower_bound
from pate.noise.exact import SystemNoise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.noise.exact import Noise
    from pate.noise.lanes import Integers

FITS = 2000
#: A bound is wrong with this probability; one audit here must hold.
DOUBT = 1e-7
DOMAIN = Domain(
    (Attribute("a", ("no", "yes"), (0, 1)), Attribute("b", ("no", "yes"), (0, 1))), 1, "a"
)
CROWD = np.zeros((40, 2), dtype=np.intp)
OUTLIER = np.ones((1, 2), dtype=np.intp)


class Weak(SystemNoise):
    """Noise of too small a scale: a mistake that no output shows."""

    def __init__(self, part: Fraction) -> None:
        self._part = part

    def laplace(self, scale: Fraction, count: int) -> Integers:
        if not self._part:
            return np.zeros(count, dtype=np.int64)
        return super().laplace(scale * self._part, count)


def found_epsilon(monkeypatch: pytest.MonkeyPatch, part: Fraction = Fraction(1)) -> float:
    """Return a lower bound on the epsilon of the default generator at a claim of 1.

    The rule: in the noisy tables that the model is made of, both cells of the outlier came out
    above 0. Whoever sees them sees more than the model, which is made of nothing else.

    Args:
        monkeypatch: to look at the noisy tables.
        part: of the noise that belongs there.
    """
    seen: list[list[NDArray[np.int64]]] = []
    real = counts.noisy

    def looked_at(
        tables: Sequence[NDArray[np.int64]], scale: Fraction, noise: Noise
    ) -> list[NDArray[np.int64]]:
        seen.append(real(tables, scale, noise))
        return seen[-1]

    monkeypatch.setattr(counts, "noisy", looked_at)
    noise, source = Weak(part), SystemRandomness()
    hits = []
    for rows in (np.vstack([CROWD, OUTLIER]), CROWD):
        hits.append(0)
        for _ in range(FITS):
            L1().fit(rows, DOMAIN, Fraction(1), noise, source)
            a, b = (table.reshape(-1, 2) for table in seen[-1])
            hits[-1] += int(a[0, 1] > 0 and b[-1, 1] > 0)
            seen.clear()
    return float(epsilon_lower_bound(hits[0], hits[1], FITS, 1e-12, DOUBT))


def test_the_audit_finds_no_more_than_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    # Seen: 0.3, since a part of epsilon goes to other things.
    assert found_epsilon(monkeypatch) <= 1


@pytest.mark.slow
def test_a_third_of_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_epsilon(monkeypatch, Fraction(1, 3)) > 1


def test_no_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_epsilon(monkeypatch, Fraction(0)) > 4
