"""Votes in several batches, and sums whose unmasking was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.campaign.sums import BATCH_COUNTS, check_apart, next_places
from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from party.voting.voter import Voter
from pate.codes import NEAREST, Code, code_of
from pate.data.values import Images, Inputs
from pate.errors import DiskError, LedgerError, ProtocolError, QuorumError, RefusedError, UsageError
from pate.masking.masks import Unmasking
from pate.votes import Counts, Histogram
from tests.support.server.campaigns import make_parties, make_spec, make_votes
from tests.support.world.in_process import TEACHERS, Killed, Parties, Unanimous, World, kills

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
    # A sum that is tried again by itself is nothing to repair, and no reason to start the server anew.
    again = [line for line in said if "it is tried again" in line]
    assert bool(again) == (step not in ("describe", "ask_keys"))
    assert not [line for line in again if "resume" in line]


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


#: Counts of a batch: two queries of two classes.
TWO = 4


class Parity(Unanimous):
    """Teachers that answer by a pixel, so that queries have different votes."""

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        inputs = public.take(list(rows))
        assert isinstance(inputs, Images)
        first = inputs.pixels[:, 0, 0, 0].astype(np.int64) % (TEACHERS + 1)
        return np.stack([first, TEACHERS - first], axis=1)


def run(twice: Play, batch: int = TWO, patience: float = 0.2) -> None:
    """Run one server process from the state of the ledger."""
    twice.serve(patience=patience, batch=batch)


def ranges(twice: Play) -> list[tuple[int, int, tuple[str, ...]]]:
    with Ledger.open(twice.place()) as ledger:
        return [(each.first, each.count, each.responders) for each in ledger.state().batches]


@pytest.fixture
def twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(Unanimous, "vote", Parity.vote)
    return Play(tmp_path)


def test_several_batches_give_the_histograms_of_one(
    tmp_path: Path, twice: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(twice)
    assert ranges(twice) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]
    with Ledger.open(twice.place()) as ledger:
        several = ledger.counts()
        assert ledger.state().phase == "finished"
    verify(twice.place())
    (tmp_path / "other").mkdir()
    whole = Play(tmp_path / "other")
    run(whole, batch=BATCH_COUNTS)
    assert ranges(whole) == [(0, 6, NAMES)]
    with Ledger.open(whole.place()) as ledger:
        np.testing.assert_array_equal(several, ledger.counts())
    votes = 4 * Parity().vote(PUBLIC, range(len(PUBLIC)), ("x", "y"), code_of(NEAREST))
    assert len(np.unique(votes, axis=0)) > 2
    np.testing.assert_array_equal(several, votes)


def test_every_query_is_asked_for_in_one_batch_and_each_batch_has_keys_of_its_own(
    twice: Play,
) -> None:
    run(twice)
    with_votes = [row for first, count, _ in ranges(twice) for row in range(first, first + count)]
    assert with_votes == list(range(len(PUBLIC)))
    assert twice.parties.asked.count(("a", "ask_keys")) == 3
    # Each party's own ledger: three batches, of the same parties.
    assert list(twice.openings().values()) == [NAMES] * 4
    (record,) = twice.ledger("a").campaigns()
    assert [batch.survivors for batch in record.batches.values()] == [NAMES] * 3
    assert record.asked == record.queries == len(PUBLIC)


@pytest.mark.parametrize("point", ["opening-listed", "votes-arrived", "votes-recorded"])
def test_a_server_that_dies_between_batches_goes_on_with_the_next(twice: Play, point: str) -> None:
    with kills(point.__eq__), pytest.raises(Killed):
        run(twice)
    held = len(ranges(twice))
    assert held == (1 if point == "votes-recorded" else 0)
    twice.parties.asked.clear()
    run(twice)
    assert ranges(twice) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]
    assert twice.parties.asked.count(("a", "ask_keys")) == 3 - held
    verify(twice.place())


def test_a_batch_that_was_being_opened_is_asked_for_as_it_was_under_another_rule(
    twice: Play,
) -> None:
    with kills("opening-listed".__eq__), pytest.raises(Killed):
        run(twice, batch=2 * TWO)
    run(twice, batch=TWO)
    assert ranges(twice) == [(0, 4, NAMES), (4, 2, NAMES)]


def test_who_was_lost_in_the_first_batch_is_in_no_later_one(twice: Play) -> None:
    at_first(twice.parties, "ask_consent", "c", lambda: twice.parties.start("d"))
    run(twice)
    assert ranges(twice) == [(0, 2, REST), (2, 2, REST), (4, 2, REST)]
    assert twice.parties.asked.count(("d", "ask_keys")) == 1


def test_a_party_that_is_lost_between_batches_is_waited_for_and_nobody_else_will_do(
    twice: Play,
) -> None:
    sites, said = twice.parties, twice.lines.said
    waited: list[bool] = []
    line = (
        "every sum of this campaign needs a, b, c, d, with whom the first was unmasked; missing: d"
    )

    def leaves(name: str) -> bool:
        if name == "votes-recorded" and not waited:
            sites.leave("d")
        return False

    def look() -> None:
        if line in said and not waited:
            waited.append(True)
            sites.start("d")

    sites.each_look = look
    with kills(leaves):
        run(twice, patience=0.0)
    assert waited
    assert ranges(twice) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]


def test_a_party_that_refuses_a_later_batch_ends_it_and_what_is_recorded_stays(twice: Play) -> None:
    sites = twice.parties
    sites.refusing = {("c", "ask_keys", 2): RefusedError}
    with pytest.raises(QuorumError, match=r"^c refused a sum of a, b, c, d"):
        run(twice)
    assert ranges(twice) == [(0, 2, NAMES)]
    sites.refusing = {}
    run(twice)
    assert ranges(twice) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]


# --- the rule -----------------------------------------------------------------------------------


def started(tmp_path: Path, queries: int = 10) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.db", make_spec(queries=queries))
    ledger.record_roster(make_parties(), ("cat", "dog", "owl"))
    return ledger


def test_batches_end_where_public_numbers_say(tmp_path: Path) -> None:
    with started(tmp_path) as ledger:
        assert next_places(ledger.state()) == range(10)
        assert next_places(ledger.state(), 12) == range(4)
        assert next_places(ledger.state(), 2) == range(1), "a query is never cut"
        ledger.record_votes(0, Histogram(make_votes(4, 100), 100), [p.name for p in make_parties()])
        assert next_places(ledger.state(), 12) == range(4, 8)
        ledger.record_votes(4, Histogram(make_votes(6, 100), 100), [p.name for p in make_parties()])
        assert next_places(ledger.state(), 12) is None


def test_noisy_votes_on_one_query_are_not_asked_for_in_two_batches(tmp_path: Path) -> None:
    twice = Images(PUBLIC.pixels[[0, 1, 2, 3, 4, 0]])
    spec = make_spec(
        queries=6, aggregation="masked", noise="distributed", aggregator="gnmax", colluders=1,
        epsilon=50.0,
    )  # fmt: skip
    with Ledger.create(tmp_path / "ledger.db", spec) as ledger:
        state = ledger.record_roster(make_parties(), ("cat", "dog", "owl"))
        assert len(state.voted) == 6
        check_apart(state, PUBLIC, 3)
        check_apart(state, twice, BATCH_COUNTS)
        with pytest.raises(UsageError, match="is repeated"):
            check_apart(state, twice, 3)
    with started(tmp_path / "exact", queries=6) as ledger:
        check_apart(ledger.state(), twice, 3)


def test_votes_are_read_back_from_the_batches_that_they_are_in(tmp_path: Path) -> None:
    votes, names = make_votes(10, 100), [p.name for p in make_parties()]
    with started(tmp_path) as ledger:
        ledger.record_votes(0, Histogram(votes[:4], 100), names)
        np.testing.assert_array_equal(ledger.counts_of([3, 0]), votes[[3, 0]])
        with pytest.raises(LedgerError, match="no votes"):
            ledger.counts_of([0, 4])
        ledger.record_votes(4, Histogram(votes[4:], 100), names)
        mixed = [9, 0, 4, 3, 8]
        np.testing.assert_array_equal(ledger.counts_of(mixed), votes[mixed])
        for odd in ([10], [-1]):
            with pytest.raises(LedgerError, match="no votes"):
                ledger.counts_of(odd)


def test_lines_tell_how_many_queries_have_votes(twice: Play) -> None:
    run(twice)
    told = [line for line in twice.lines.said if line.startswith("votes on")]
    assert told[0] == "votes on 2 queries from a, b, c, d; 2 of 6 have votes now"
    assert told[-1].endswith("6 of 6 have votes now")
