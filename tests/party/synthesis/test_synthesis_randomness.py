"""Uniform numbers of synthesis: their law, what may make a release, and no other source."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from party.synthesis.table.randomness import (
    SimulatedRandomness,
    SystemRandomness,
    require_production,
)
from pate.errors import UsageError

ROOM = Path(__file__).resolve().parents[3] / "party" / "synthesis"
#: How often a statistical test here may fail by chance.
FALSE_ALARM = 1e-6


def test_numbers_below_a_bound_are_uniform() -> None:
    # The bound takes the branch that draws again: 2^62 + 1 words of four are refused.
    from scipy.stats import chisquare

    source = SystemRandomness()
    for bound in (1, 2, 7, 3 * 2**61):
        drawn = source.below(bound, 40_000)
        assert drawn.min() >= 0
        assert drawn.max() < bound
        cells = np.bincount((drawn.astype(np.float64) * (min(bound, 8) / bound)).astype(np.intp))
        assert chisquare(cells).pvalue > FALSE_ALARM if cells.size > 1 else cells[0] == 40_000


def test_uniform_numbers_fill_the_interval_and_never_reach_one() -> None:
    from scipy.stats import chisquare

    drawn = SystemRandomness().uniform(100_000)
    assert chisquare(np.histogram(drawn, 50, (0, 1))[0]).pvalue > FALSE_ALARM
    assert drawn.min() >= 0

    class Ones(SystemRandomness):
        def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
            return np.full(count, 2**64 - 1, dtype=np.uint64)

    assert Ones().uniform(1)[0] < 1


def test_the_system_never_gives_the_same_twice_and_a_seed_always_does() -> None:
    source = SystemRandomness()
    assert (source.words(8) != source.words(8)).all()
    first, again = SimulatedRandomness(3), SimulatedRandomness(3)
    assert (first.words(8) == again.words(8)).all()
    assert (first.words(8) != SimulatedRandomness(3).words(8)).all()


def test_only_the_system_may_make_a_release() -> None:
    require_production(SystemRandomness())
    with pytest.raises(UsageError, match="gives no protection"):
        require_production(SimulatedRandomness(1))


def test_bounds_and_counts_that_make_no_sense_are_refused() -> None:
    source = SystemRandomness()
    for bound in (0, -1, 2**63):
        with pytest.raises(UsageError):
            source.below(bound, 1)
    with pytest.raises(UsageError):
        source.words(-1)
    with pytest.raises(UsageError):
        SimulatedRandomness(-1)


def test_no_module_of_synthesis_uses_another_generator() -> None:
    sources = sorted(ROOM.rglob("*.py"))
    assert len(sources) > 10
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"random", "default_rng", "RandomState"}, path
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] != "random", path
                assert not name.startswith(("numpy.random", "pate.noise.simulated")), path
