"""Whatever a lying server sends: ledgers have charged all that left, and no sum is of too few parties.

Random histories of several campaigns, by both protocols, with parties that are late, lost, restarted or
trained anew, and some that work with the server. What can be unmasked is worked out from the shares that were
revealed; combinations of exact sums hold votes of two honest parties or more, or of none.

``PATE_HISTORIES`` is how many worlds are played with the rules in place; each has six histories.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from party.ledger import entries, state
from party.voting import site
from tests.support.needs import others_slow
from tests.support.party.hostile import KINDS, Hostile, noted

#: With every change; with all tests more.
FEW = 2
WORLDS = int(os.environ.get("PATE_HISTORIES", "30"))
#: Of each world: histories, and things that happen in each.
HISTORIES, STEPS = 6, 14
#: Worlds in which a rule that was taken out must be missed.
TRIED = 40


@pytest.fixture
def homes() -> Iterator[Path]:
    """A folder in memory where there is one: every entry of a ledger waits for its disk."""
    memory = Path("/dev/shm")  # noqa: S108  # of this test only, under a random name
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as made:
        yield Path(made)


def played(
    homes: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kinds: Sequence[str] = KINDS
) -> Counter[str]:
    """Play the histories of a world, check what came of them, and return what was answered."""
    root = homes / str(seed)
    with noted(monkeypatch) as secrets:
        world = Hostile(root, seed, secrets, kinds)
        for _ in range(HISTORIES):
            world.play(STEPS)
        world.check()
    shutil.rmtree(root)
    return world.outcomes + Counter(unmasked=len(world.released()))


@pytest.mark.parametrize("worlds", others_slow((FEW, WORLDS), lambda worlds: worlds == FEW))
def test_no_request_gets_more_than_is_charged_or_a_sum_of_too_few(
    homes: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
    worlds: int,
) -> None:
    outcomes = Counter[str]()
    for seed in range(worlds):
        outcomes += played(homes, monkeypatch, seed)
    record_property("counts", f"{worlds * HISTORIES} histories: {dict(outcomes)}")
    # One in which nothing left says nothing.
    assert min(outcomes["masked"], outcomes["masked_ahead"], outcomes["opening"]) >= worlds
    assert outcomes["refusal"] > worlds * HISTORIES


def uncharged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site.Site, "answer", lambda *_: None)


def any_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.Campaign, "_check_round", lambda *_: None)


def any_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    for place, name in (
        (entries, "check_unmasking"), (entries, "check_exact"),
        (state.Campaign, "check_unmasking"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, lambda *_, **__: None)


@pytest.mark.parametrize(
    # The first is one that finds it, as things are, so that few are played.
    ("without", "kind", "first", "why"),
    [
        (uncharged, "noisy", 0, "uncharged"),
        (any_round, "rounds", 3, "twice in a round"),
        (any_survivors, "exact", 0, "votes on"),
    ],
)
def test_without_one_of_the_rules_it_does(
    homes: Path, monkeypatch: pytest.MonkeyPatch, without: Any, kind: str, first: int, why: str
) -> None:
    without(monkeypatch)
    for seed in range(first, first + TRIED):
        try:
            played(homes, monkeypatch, seed, (kind,))
        except AssertionError as error:
            assert why in str(error)  # noqa: PT017
            return
    pytest.fail(f"{TRIED} worlds, and nothing is found")
