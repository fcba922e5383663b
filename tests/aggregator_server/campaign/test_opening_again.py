"""A sum whose unmasking was interrupted is completed with the same survivors, or never.

Real voters with real ledgers, a real ledger of the server, and a wire on which a party may be restarted, or
not answer, at a chosen step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.ledger.verify import verify
from party.voting.voter import Voter
from pate.data.values import Images
from pate.errors import DiskError, ProtocolError, QuorumError, RefusedError
from pate.masking.masks import Unmasking
from tests.support.world.in_process import Killed, Parties, World, kills

PUBLIC = Images(np.random.default_rng(6).integers(0, 255, (6, 4, 4, 1), dtype=np.uint8))
NAMES = ("a", "b", "c", "d")
REST = ("a", "b", "c")


class Play(World):
    """A campaign of four parties, of which three are needed, and its server's processes."""

    def __init__(self, root: Path, *, proofs: bool = False) -> None:
        super().__init__(root, NAMES, PUBLIC)
        self.terms: dict[str, Any] = {
            "aggregation": "masked",
            "colluders": 1,
            "vote_proofs": proofs,
        }
        self.create(**self.terms)
        for name in NAMES:
            self.parties.start(name)

    def voter(self, name: str, **changes: Any) -> Voter:
        return super().voter(name, public=PUBLIC, **changes)

    def openings(self) -> dict[str, tuple[str, ...] | None]:
        """The survivors of the unmasking in each party's own ledger."""
        return {
            name: batch.survivors
            for name in self.parties.node
            for batch in self.ledger(name).campaigns()[-1].batches.values()
        }

    def written(self, number: int = 0) -> list[tuple[str, ...]]:
        """The lists of survivors in the server's ledger."""
        return [opening.survivors for opening in self.state(number).openings]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "_REMIND_S", 0.05)
    monkeypatch.setattr(exchange_module, "_FAREWELL_S", 0.0)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def at_first(sites: Parties, step: str, name: str, does: Callable[[], object]) -> None:
    """Have ``d`` leave when its votes are due, and something happen at ``step`` of ``name``."""
    plans = {("d", "ask_masked"): lambda: sites.leave("d"), (name, step): does}

    def before(asked: str, at: str) -> None:
        plans.pop((asked, at), lambda: None)()

    sites.before = before


def both_start(sites: Parties, name: str) -> None:
    """``d`` is back as well: a new list of survivors would have it."""
    sites.start(name)
    sites.start("d")


@pytest.mark.parametrize("proofs", [False, True])
def test_a_party_that_dies_before_it_opens_is_waited_for_and_no_other_list_is_asked_for(
    tmp_path: Path, proofs: bool
) -> None:
    play = Play(tmp_path, proofs=proofs)
    sites = play.parties
    at_first(sites, "ask_opening", "c", lambda: both_start(sites, "c"))
    play.serve(patience=0.2)
    assert play.responders() == REST
    assert play.openings() == {"a": REST, "b": REST, "c": REST}


def test_a_server_that_dies_before_it_asks_goes_on_with_the_list_that_it_wrote(play: Play) -> None:
    sites = play.parties
    at_first(sites, "ask_consent", "c", lambda: None)

    with kills("opening-listed".__eq__), pytest.raises(Killed):
        play.serve(patience=0.2)
    # On the disk before a single party was asked.
    assert all(step != "ask_opening" for _, step in sites.asked)
    assert play.written() == [REST]
    sites.asked.clear()
    sites.start("d")
    play.serve(patience=0.2)
    assert play.responders() == REST
    assert play.written() == [REST]
    assert {step for name, step in sites.asked if name == "d"} == {"describe", "finish"}
    verify(play.place())


def test_all_of_the_list_are_waited_for_even_if_fewer_would_be_enough(play: Play) -> None:
    """Their votes are in the sum, or there is none; to open it, enough of them will do."""
    sites, said = play.parties, play.lines.said
    with kills("opening-listed".__eq__), pytest.raises(Killed):
        play.serve(patience=0.2)
    assert play.written() == [NAMES]
    sites.leave("d")
    line = (
        "every sum of this campaign needs a, b, c, d, with whom the first was unmasked; missing: d"
    )
    sites.each_look = lambda: sites.start("d") if line in said and "d" not in sites.node else None
    sites.refusing = {("c", "ask_opening", 1): RefusedError}
    play.serve(patience=0.0)
    assert line in said
    assert play.responders() == NAMES
    assert sites.asked.count(("a", "ask_keys")) == 2


def test_a_party_of_the_list_is_waited_for_by_name(play: Play) -> None:
    sites, said = play.parties, play.lines.said
    at_first(sites, "ask_opening", "c", lambda: sites.leave("c"))
    line = "every sum of this campaign needs a, b, c, with whom the first was unmasked; missing: c"

    def look() -> None:
        if line in said and "c" not in sites.node:
            both_start(sites, "c")

    sites.each_look = look
    play.serve(patience=0.2)
    assert line in said
    assert play.responders() == REST


def test_a_party_of_the_list_that_refuses_ends_it_with_the_reason(play: Play) -> None:
    sites = play.parties
    at_first(sites, "ask_opening", "c", lambda: both_start(sites, "c"))
    sites.refusing = {("c", "ask_keys", 2): RefusedError}
    with pytest.raises(QuorumError, match=r"^c refused a sum of a, b, c, so these queries cannot"):
        play.serve(patience=0.2)
    assert play.written() == [REST]
    # Not asked in vain: neither again, nor for another list.
    assert sites.asked.count(("a", "ask_keys")) == 2
    assert sites.asked.count(("d", "ask_keys")) == 1
    # Once repaired, it continues.
    sites.refusing = {}
    play.serve(patience=0.2)
    assert play.responders() == REST


def test_parties_that_opened_these_queries_with_others_end_it_at_once(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.serve(patience=0.2)
    assert play.responders() == NAMES
    play.create(1, id="f0" * 16, **play.terms)
    at_first(play.parties, "ask_consent", "a", lambda: None)
    with pytest.raises(QuorumError, match="a, b, c refused a sum of a, b, c, so these queries"):
        play.serve(1)
    assert play.written(1) == [REST]
    assert play.parties.asked.count(("a", "ask_opening")) == 2


def test_who_refuses_to_open_is_done_without_if_enough_open(play: Play) -> None:
    """Its votes are in the sum by then, and there are shares enough."""
    sites = play.parties
    sites.refusing = {("c", "ask_opening", 1): RefusedError}
    play.serve(patience=0.2)
    assert play.responders() == NAMES
    assert play.openings() == {"a": NAMES, "b": NAMES, "c": None, "d": NAMES}


@pytest.mark.parametrize(
    "step", ["describe", "ask_keys", "ask_shares", "ask_masked", "ask_consent", "ask_opening"]
)
def test_parties_whose_disks_are_full_are_waited_for_at_every_step(play: Play, step: str) -> None:
    """Two of four parties, of which three are needed; each restarts once the server waits for it."""
    sites, said = play.parties, play.lines.said
    full = {name: sites.node[name] for name in ("c", "d")}
    sites.refusing = {(name, step, 1): DiskError for name in full}
    looks = 0

    def look() -> None:
        nonlocal looks
        for name, node in full.items():
            of_this = [line for line in said if f"{name}" in line and "refused (DiskError)" in line]
            if of_this and sites.node.get(name) == node:
                sites.leave(name)
        if full.keys() & sites.node.keys():
            return
        looks += 1
        if looks == 5:  # all that the server does without them, it has done
            for name in full:
                sites.start(name)

    sites.each_look = look
    play.serve(patience=0.0 if step == "ask_opening" else 60.0)
    assert all(sites.asked.count((name, step)) >= 2 for name in full)
    assert looks == 5
    assert play.responders() == NAMES


def test_one_clear_line_if_the_shares_do_not_open_the_sum(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Unmasking, *_: object) -> bytes:
        raise ProtocolError("the 3 shares of the seed of c do not give it back")

    monkeypatch.setattr(Unmasking, "_recover", wrong)
    with pytest.raises(ProtocolError) as caught:
        play.serve(patience=0.2)
    assert str(caught.value) == (
        "the votes on 6 queries could not be summed; nothing was released: the 3 shares of the "
        "seed of c do not give it back"
    )
