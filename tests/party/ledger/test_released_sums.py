"""No combination of the exact sums that a server opens gives one party's votes, or their change.

Random histories: campaigns with other rosters, classes and bounds, parties that are trained on other
data, restored from a copy, or lied to, sums that are begun again, parties that drop out or are not
asked to open. With the true votes in hand it is worked out from outside, exactly, what the server can
combine. Each of the rules is taken out once, and then it can.

``PATE_HISTORIES`` is how many histories of each kind are played with the rules in place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.ledger import entries
from party.ledger.entries import Answered
from party.ledger.sent_votes import Given, How, check_exact, check_sources
from party.voting import voter
from party.voting.casting import NoiseShares
from pate.errors import RefusedError
from pate.votes import Counts
from tests.support.needs import others_slow
from tests.support.party.histories import (
    KINDS,
    NAMES,
    World,
    alone,
    of_noise,
    of_records,
    of_teachers,
    rank,
    watched,
)
from tests.support.party.offers import SIX, altered, joining

#: With every change; with all tests more.
FEW = 2
HISTORIES = int(os.environ.get("PATE_HISTORIES", "8"))
STEPS = 12
#: Histories in which a rule that was taken out must be missed.
TRIED = 25


def found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> tuple[set[str], World]:
    """Play one history, and return whose votes, changes or noise it gives."""
    root = tmp_path / str(seed)
    random = np.random.default_rng(seed)
    world = World(root, random, kind)
    with monkeypatch.context() as patched:
        watched(patched, world)
        world.play(STEPS)
    shutil.rmtree(root)
    if kind == "noise":
        return of_noise(world.released), world
    return of_records(world) if kind == "records" else of_teachers(world.released), world


@pytest.mark.parametrize(
    ("kind", "seeds"),
    others_slow(
        product(KINDS, (range(FEW), range(FEW, HISTORIES))), lambda case: case[1] == range(FEW)
    ),
)
def test_no_history_gives_a_party_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    kind: str,
    seeds: range,
) -> None:
    released = attempts = 0
    for seed in seeds:
        whose, world = found(tmp_path, monkeypatch, kind, seed)
        assert not whose, f"history {seed} gives {sorted(whose)} away"
        released += len(world.released)
        attempts += world.attempts
    record_property("counts", f"{len(seeds)} histories, {attempts} attempts, {released} sums")
    assert released >= len(seeds)  # a history in which no sum is opened says nothing


def only_within_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Answered.check

    def check(self: Answered, *args: Any, allow_other: bool) -> None:
        del allow_other
        real(self, *args, allow_other=True)

    monkeypatch.setattr(Answered, "check", check)


def votes_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(key: bytes, hashes: list[bytes], classes: object, votes: Counts) -> tuple[bytes, ...]:
        del key, classes, votes
        return tuple(each[:16] for each in hashes)

    monkeypatch.setattr(voter, "tags_of", blind)


def numbers_of_labels_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(mine: Given, sharing: Iterable[Given]) -> None:
        check_sources(mine, [each for each in sharing if each.matrix == mine.matrix])

    monkeypatch.setattr(entries, "check_sources", blind)


def matrices_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "matrix_of", lambda *_: "one")
    votes_not_looked_at(monkeypatch)


def noise_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real = NoiseShares.share

    def share(self: NoiseShares, *args: Any, answered: bool) -> Counts:
        del answered
        return real(self, *args, answered=False)

    monkeypatch.setattr(NoiseShares, "share", share)


@pytest.mark.parametrize(
    # The first is one that finds it, as things are, so that few are played.
    ("kind", "without", "first"),
    others_slow([
        ("teachers", only_within_a_campaign, 0),
        ("records", only_within_a_campaign, 5),
        ("teachers", votes_not_looked_at, 7),
        ("records", matrices_all_alike, 5),
        ("noise", noise_drawn_again, 0),
        ("labels", numbers_of_labels_not_looked_at, 9),
    ], lambda case: case[1] is noise_drawn_again),
)  # fmt: skip
def test_without_one_of_the_rules_some_history_does(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    kind: str,
    without: Any,
    first: int,
) -> None:
    without(monkeypatch)
    for seed in range(first, first + TRIED):
        whose, _ = found(tmp_path, monkeypatch, kind, seed)
        if whose:
            record_property("counts", f"history {seed} gives {sorted(whose)} away")
            return
    pytest.fail(f"{TRIED} histories, and none gives a party away")


def test_exact_sums_of_records_have_the_same_parties_whatever_the_queries() -> None:
    """Added up over all queries, two of them differ by the records of a party that is in only one."""
    earlier, now = (joining(aggregator="neighbour", campaign=each * 16) for each in ("c1", "c2"))
    with_a, without = (How.of(names, earlier, "") for names in (SIX, SIX[1:]))
    check_exact(now, with_a, [(earlier, with_a)])
    check_exact(now, without, [(altered(earlier, id=now.campaign), with_a)])
    check_exact(now, without, [(joining(campaign="c1" * 16), with_a)])  # of teachers
    with pytest.raises(RefusedError, match="with other parties"):
        check_exact(now, without, [(earlier, with_a)])
    with pytest.raises(RefusedError, match="other data"):
        check_exact(now, How.of(SIX, now, "other"), [(earlier, with_a)])


def test_what_is_alone() -> None:
    """The judge itself: subtracting, adding up, and what the colluder knows."""
    one = {(name, 0): 1 for name in NAMES}
    other = {**{(name, 0): 1 for name in NAMES[1:]}, ("a", 1): 1}
    assert alone([one]) == set()
    assert alone([one, one]) == set()
    assert alone([one, other]) == {"a"}
    assert alone([one, {(name, 0): 1 for name in NAMES[1:]}]) == {"a"}
    assert alone([{("a", 0): 1, ("e", 0): 1}]) == {"a"}
    thrice = [{("a", 0): 1, ("b", 0): 1}, {("a", 0): 1, ("c", 0): 1}, {("b", 0): 1, ("c", 0): 1}]
    assert alone(thrice) == {"a", "b", "c"}
    assert alone(thrice[:2]) == set()
    assert rank([[1, 1, 0], [1, 0, 1], [2, 1, 1]]) == 2
