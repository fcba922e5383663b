"""Bugs planted in geometric noise and its shares: an audit finds them with as many runs as it said.

Bits come from a seed, so nothing here fails by chance.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate.auditing import harness
from pate.auditing.mechanism import audit_mechanism, claimed
from pate.auditing.neighbours import cell_pairs
from pate.errors import UsageError
from pate.mechanisms import DistributedNeighbour, Neighbour
from pate.noise.exact import SystemNoise
from pate.noise.lanes import Integers
from simulation.audit.options import AuditOptions
from simulation.audit.run import mechanism_of
from tests.support.audits import bugs, count_laws, laws
from tests.support.audits.bugs import Bug, bugs_of
from tests.support.audits.foretold import foresee
from tests.support.audits.planting import plant, seed
from tests.support.audits.power import Seen, level_events, reached
from tests.support.needs import others_slow

RUNS, DELTA, CONFIDENCE = 100_000, 1e-6, 0.999
SHARED = DistributedNeighbour(0, honest=4, votes_per_unit=2, scale=Fraction(4))
CENTRAL = Neighbour(0, votes_per_unit=2, scale=Fraction(4))
NARROW = Neighbour(0, votes_per_unit=2, scale=Fraction(2))
SHARES_FOR_MORE = Bug("noise shares as if one party more were counted")
#: One call of the samplers makes the runs of a pair, where no draws are shared by queries.
CALLS = 1
_SHARE = SystemNoise.laplace_share


@cache
def foretold() -> dict[str, Seen]:
    return {each.bug: each for each in foresee(SHARED, 2, RUNS, DELTA, CONFIDENCE, 2)}


def found_with(runs: int, mechanism: Neighbour | DistributedNeighbour = SHARED) -> Any:
    return audit_mechanism(
        mechanism, SystemNoise(), queries=2, runs=runs, delta=DELTA, confidence=CONFIDENCE
    )


@pytest.mark.parametrize(
    "bug",
    others_slow(bugs_of(SHARED), lambda bug: bug is bugs.HALF_SHARES),
    ids=lambda bug: bug.name,
)
def test_a_planted_bug_is_found_with_as_many_runs_as_was_said(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = foretold()[bug.name]
    # Of cut shares an attack sees less than it loses of its claim anyway.
    assert said.seen is (bug is not bugs.CUT)
    if not said.seen:
        return
    assert said.runs is not None
    seed(monkeypatch, bug.name)
    if not bug.of_batch:
        monkeypatch.setattr(harness, "CALLS", CALLS)
    plant(monkeypatch, bug, SHARED, counted=True)
    found = found_with(said.runs)
    assert not found.holds, f"{found.lower_bound} of {found.claimed}, by {found.pair}"


@pytest.mark.parametrize("bug", [bugs.EVEN, bugs.CUT], ids=lambda bug: bug.name)
def test_noise_of_the_server_that_is_always_even_or_cut_is_found(
    bug: Bug, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = foresee(NARROW, 2, RUNS, DELTA, CONFIDENCE, 2, bugs=[bug])
    assert said.seen
    assert said.runs is not None
    monkeypatch.setattr(harness, "CALLS", CALLS)
    seed(monkeypatch, bug.name)
    plant(monkeypatch, bug, NARROW, counted=True)
    # That noise is cut shows in rare events, which an attack has to see where it learns, too: with as many
    # runs as the exact laws ask for it learns them once in ten times.
    assert not found_with(2 * said.runs if bug is bugs.CUT else said.runs, NARROW).holds


def test_a_tail_that_is_cut_further_off_is_rarer_than_one_in_the_runs() -> None:
    """At 20 with scale 2: a count gets there once in 35,000 times, and 100,000 runs do not prove it."""
    far = Bug("cut at 10 scales", cut=10)
    (said,) = foresee(NARROW, 2, RUNS, DELTA, CONFIDENCE, 2, bugs=[far])
    assert not said.seen
    assert said.runs is not None
    assert said.runs > 10 * RUNS
    noise = laws.laplace(Fraction(2))
    assert laws.at_least(noise, 20) == pytest.approx(1 / 35_000, rel=0.05)


@pytest.mark.slow
def test_shares_for_one_party_more_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """NB(1/5) where four honest shares are counted: too little noise, by the exact law of it."""
    with monkeypatch.context() as patch:
        patch.setattr(
            count_laws, "noise_of", lambda *_: laws.geometric(Fraction(4), Fraction(4, 5))
        )
        (said,) = foresee(SHARED, 2, RUNS, DELTA, CONFIDENCE, 2, bugs=[SHARES_FOR_MORE])
    assert said.seen
    assert said.runs is not None
    monkeypatch.setattr(harness, "CALLS", CALLS)
    seed(monkeypatch, said.bug)
    monkeypatch.setattr(
        SystemNoise, "laplace_share", lambda self, t, h, n: _SHARE(self, t, h + 1, n)
    )
    assert not found_with(said.runs).holds


def test_noise_on_one_side_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative binomial shares without the one that is subtracted."""

    def one_side(self: SystemNoise, scale: Fraction, shares: int, count: int) -> Integers:
        return np.abs(_SHARE(self, scale, shares, count))

    seed(monkeypatch, "one side")
    monkeypatch.setattr(harness, "CALLS", CALLS)
    monkeypatch.setattr(SystemNoise, "laplace_share", one_side)
    assert not found_with(4_000).holds


@pytest.mark.parametrize("mechanism", [CENTRAL, SHARED], ids=["central", "shares"])
def test_what_ships_stands(
    mechanism: Neighbour | DistributedNeighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(monkeypatch, "honest")
    monkeypatch.setattr(harness, "CALLS", CALLS)
    found = audit_mechanism(
        mechanism, SystemNoise(), queries=1, runs=4_000, delta=DELTA, confidence=CONFIDENCE
    )
    assert found.holds
    assert found.claimed == 1.0
    assert found.lower_bound > 0.5


@pytest.mark.parametrize("queries", [1, 2])
def test_a_release_is_attacked_to_seven_tenths_of_its_claim(queries: int) -> None:
    """With the default runs, but with probability 1e-6: the honest code, and the exact laws of it."""
    claim = claimed(SHARED, queries, DELTA)
    assert claim.epsilon == queries
    assert claim.mu is None
    *_, score = count_laws.count_laws(SHARED, cell_pairs(2)[0], queries, bugs.Bug("none"))
    epsilon, _ = reached(level_events(score), RUNS, claim, 0.0005)
    assert 0.7 * claim.epsilon <= epsilon.max() <= claim.epsilon


def test_the_laws_of_the_score_are_those_of_an_enumeration() -> None:
    (given, other) = cell_pairs(2)[0].votes.ravel(), cell_pairs(2)[0].neighbour.ravel()
    *_, (here, there) = count_laws.count_laws(CENTRAL, cell_pairs(2)[0], 1, bugs.Bug("none"))
    noise = laws.laplace(Fraction(4))
    values = np.arange(len(noise)) - len(noise) // 2
    for law, world in ((here, given), (there, other)):
        parts = []
        for cell in np.flatnonzero(given != other):
            part = np.zeros(5)
            seen = values + world[cell]
            np.add.at(part, np.abs(seen - other[cell]) - np.abs(seen - given[cell]) + 2, noise)
            parts.append(part)
        first, second = parts
        np.testing.assert_allclose(law, np.convolve(first, second), atol=1e-15)


def test_the_options_of_an_audit_name_the_law() -> None:
    for name in ("neighbour", "distributed-neighbour"):
        made = mechanism_of(name, AuditOptions(mechanism=name, scale="4"))
        assert isinstance(made, Neighbour | DistributedNeighbour)
        assert made.scale == 4
        plain = mechanism_of(name, AuditOptions(mechanism=name))
        assert isinstance(plain, Neighbour | DistributedNeighbour)
        assert plain.scale is None
        with pytest.raises(UsageError, match="state one"):
            mechanism_of(name, AuditOptions(mechanism=name, scale="4", sigma2="4"))
    with pytest.raises(UsageError, match="no meaning"):
        AuditOptions(mechanism="gnmax", scale="4")
