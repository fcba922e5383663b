"""Replies with votes are on the server's disk until their sum is in the ledger, and no longer."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange import store as store_module
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger.ledger import Ledger
from pate.errors import ProtocolError, StateError
from pate.storage.durable_file import DurableFile
from tests.support.world.envelopes import NAMES, Play, StuckError
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MASKED: dict[str, Any] = {"aggregation": "masked", "min_parties": 4, "colluders": 1}


@pytest.mark.parametrize("terms", [{}, MASKED], ids=["plain", "masked"])
def test_once_the_sum_is_in_the_ledger_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any]
) -> None:
    play, before = Play(tmp_path, **terms), list[list[str]]()
    keep = Sums.keep_replies

    def noted(sums: Sums, place: int | None) -> None:
        if place is None:
            before.append(play.votes_on_disk())
        keep(sums, place)
        if place is None:
            assert play.votes_on_disk() == []

    monkeypatch.setattr(Sums, "keep_replies", noted)
    play.serve()
    assert play.responders() == NAMES
    (held,) = before
    step = "ask_masked_ahead" if terms else "ask"
    assert {f"{step} of {name}" for name in NAMES} <= set(held)
    assert (FILE in held) == (not terms)  # plain votes are seen as they are
    assert ("round 0" in held) == bool(terms)


def test_a_crash_before_they_are_deleted_leaves_them_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, keep = Play(tmp_path), Sums.keep_replies

    def dies(sums: Sums, place: int | None) -> None:
        if place is None:
            raise Killed
        keep(sums, place)

    with monkeypatch.context() as patched:
        patched.setattr(Sums, "keep_replies", dies)
        with pytest.raises(Killed):
            play.serve()
    assert play.votes_on_disk()
    play.serve()
    assert play.responders() == NAMES
    assert play.votes_on_disk() == []


def test_a_campaign_that_was_closed_before_its_sum_asks_nothing_and_keeps_no_votes(
    tmp_path: Path,
) -> None:
    """As `pate-server resume --close` leaves it."""
    play = Play(tmp_path)
    out = play.folder / "out"
    play.carrier = lambda: play.carry(without=["d"] if any(out.glob("*.round-2.*")) else [])
    with pytest.raises(StuckError):
        play.serve()
    assert play.votes_on_disk()
    with Ledger.open(play.path) as ledger:
        ledger.finish()
    play.carrier = lambda: False
    play.serve()
    assert play.votes_on_disk() == []
    assert {path.name.split(".")[1] for path in out.iterdir()} == {"round-3"}  # the end
    with Ledger.open(play.path) as ledger:
        assert ledger.state().batches == ()


def test_without_overwriting_the_bytes_would_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above look at the right place."""

    class Careless(DurableFile):
        @contextmanager
        def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
            with super()._transaction(begin) as db:
                db.execute("PRAGMA secure_delete = OFF")  # whatever SQLite was built to do
                yield db

    monkeypatch.setattr(store_module, "DurableFile", Careless)
    play = Play(tmp_path)
    play.serve()
    assert play.votes_on_disk() == [FILE]


def test_an_answer_that_comes_again_is_known_and_another_one_refused(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.serve()
    store = Store(play.path.parent / FILE)
    (out,) = [each for each in store.envelopes() if (each.party, each.number) == ("a", 2)]
    assert out.state == "answered"
    with closing(sqlite3.connect(store.path)) as db:
        ((digest, key),) = db.execute(
            "SELECT e.answer, i.key FROM envelopes e JOIN identities i USING (party) "
            "WHERE party = 'a' AND number = 2"
        )
    assert store.take(out, digest, key, [b"votes"]) is None
    with pytest.raises(ProtocolError, match="another answer of a to envelope 2 came before"):
        store.take(out, bytes(32), key, [b"votes"])
    assert play.votes_on_disk() == []


def test_a_ledger_that_was_put_back_gets_no_second_sum(tmp_path: Path) -> None:
    """The replies of a recorded sum are deleted, so nothing is asked in their place."""
    store = Store(tmp_path / FILE)
    store.begin_sum(0)
    store.begin_sum(0)  # as after a restart
    assert store.round(0) == (0, None)
    store.save_round(0, b"state")
    store.begin_sum(3)
    with pytest.raises(StateError, match="put back to an earlier state"):
        store.begin_sum(0)
    assert store.round(3) == (1, None)
    store.begin_sum(None)
    with pytest.raises(StateError, match="from place 3 on"):
        store.begin_sum(3)
    # The number of a sum that is over is given to no other one.
    assert store.round(0) == (2, None)


def test_keys_ahead_of_a_later_sum_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE, ["a"])
    store.begin_sum(0)
    taken(store, "ask_bundles", b"keys")
    taken(store, "ask_masked_ahead", b"masked")
    store.begin_sum(1)
    assert replies(store) == [b"keys"]
    store.begin_sum(None)
    assert replies(store) == []


def test_a_round_that_is_given_up_keeps_no_votes(tmp_path: Path) -> None:
    store = Store(tmp_path / FILE, ["a"])
    store.begin_sum(0)
    number, _ = store.round(0)
    store.save_round(number, b"state")
    taken(store, "ask_masked_ahead", b"masked")
    store.end_round(0)
    assert replies(store) == []
    assert store.round(0) == (number + 1, None)
    store.begin_sum(0)  # the batch is still to be summed


def taken(store: Store, kind: str, reply: bytes) -> None:
    """Ask a party, and take its answer."""
    assert store.ask("a", reply, reply + b"?", kind) is None
    (out,) = store.due()
    store.note(out, out.number.to_bytes(32))
    assert store.take(out, out.number.to_bytes(32), bytes(32), [reply])


def replies(store: Store) -> list[bytes]:
    with closing(sqlite3.connect(store.path)) as db:
        return [reply for (reply,) in db.execute("SELECT reply FROM requests WHERE reply NOT NULL")]
