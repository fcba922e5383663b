"""Votes in several batches: cut by public numbers, with the same parties, resumable.

With the parties, the server and the wire of :mod:`tests.aggregator_server.campaign.test_opening_again`, and
parties whose votes are not all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from aggregator_server.campaign.sums import BATCH_COUNTS, check_apart, next_places
from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from pate.codes import NEAREST, Code, code_of
from pate.data.values import Images, Inputs
from pate.errors import LedgerError, QuorumError, RefusedError, UsageError
from pate.votes import Counts, Histogram
from tests.aggregator_server.campaign.test_opening_again import NAMES, PUBLIC, REST, Play, at_first
from tests.support.server.campaigns import make_parties, make_spec, make_votes
from tests.support.world.in_process import TEACHERS, Killed, Unanimous, kills

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


def run(play: Play, batch: int = TWO, patience: float = 0.2) -> None:
    """Run one server process from the state of the ledger."""
    play.serve(patience=patience, batch=batch)


def ranges(play: Play) -> list[tuple[int, int, tuple[str, ...]]]:
    with Ledger.open(play.place()) as ledger:
        return [(each.first, each.count, each.responders) for each in ledger.state().batches]


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "_REMIND_S", 0.05)
    monkeypatch.setattr(exchange_module, "_FAREWELL_S", 0.0)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    monkeypatch.setattr(Unanimous, "vote", Parity.vote)
    return Play(tmp_path)


def test_several_batches_give_the_histograms_of_one(
    tmp_path: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(play)
    assert ranges(play) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]
    with Ledger.open(play.place()) as ledger:
        several = ledger.counts()
        assert ledger.state().phase == "finished"
    verify(play.place())
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
    play: Play,
) -> None:
    run(play)
    with_votes = [row for first, count, _ in ranges(play) for row in range(first, first + count)]
    assert with_votes == list(range(len(PUBLIC)))
    assert play.parties.asked.count(("a", "ask_keys")) == 3
    # Each party's own ledger: three batches, of the same parties.
    assert list(play.openings().values()) == [NAMES] * 4
    (record,) = play.ledger("a").campaigns()
    assert [batch.survivors for batch in record.batches.values()] == [NAMES] * 3
    assert record.asked == record.queries == len(PUBLIC)


@pytest.mark.parametrize("point", ["opening-listed", "votes-arrived", "votes-recorded"])
def test_a_server_that_dies_between_batches_goes_on_with_the_next(play: Play, point: str) -> None:
    with kills(point.__eq__), pytest.raises(Killed):
        run(play)
    held = len(ranges(play))
    assert held == (1 if point == "votes-recorded" else 0)
    play.parties.asked.clear()
    run(play)
    assert ranges(play) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]
    assert play.parties.asked.count(("a", "ask_keys")) == 3 - held
    verify(play.place())


def test_a_batch_that_was_being_opened_is_asked_for_as_it_was_under_another_rule(
    play: Play,
) -> None:
    with kills("opening-listed".__eq__), pytest.raises(Killed):
        run(play, batch=2 * TWO)
    run(play, batch=TWO)
    assert ranges(play) == [(0, 4, NAMES), (4, 2, NAMES)]


def test_who_was_lost_in_the_first_batch_is_in_no_later_one(play: Play) -> None:
    at_first(play.parties, "ask_consent", "c", lambda: play.parties.start("d"))
    run(play)
    assert ranges(play) == [(0, 2, REST), (2, 2, REST), (4, 2, REST)]
    assert play.parties.asked.count(("d", "ask_keys")) == 1


def test_a_party_that_is_lost_between_batches_is_waited_for_and_nobody_else_will_do(
    play: Play,
) -> None:
    sites, said = play.parties, play.lines.said
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
        run(play, patience=0.0)
    assert waited
    assert ranges(play) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]


def test_a_party_that_refuses_a_later_batch_ends_it_and_what_is_recorded_stays(play: Play) -> None:
    sites = play.parties
    sites.refusing = {("c", "ask_keys", 2): RefusedError}
    with pytest.raises(QuorumError, match=r"^c refused a sum of a, b, c, d"):
        run(play)
    assert ranges(play) == [(0, 2, NAMES)]
    sites.refusing = {}
    run(play)
    assert ranges(play) == [(0, 2, NAMES), (2, 2, NAMES), (4, 2, NAMES)]


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


def test_lines_tell_how_many_queries_have_votes(play: Play) -> None:
    run(play)
    told = [line for line in play.lines.said if line.startswith("votes on")]
    assert told[0] == "votes on 2 queries from a, b, c, d; 2 of 6 have votes now"
    assert told[-1].endswith("6 of 6 have votes now")
