"""What lies in the server's inbox, and for how long replies with votes do."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange import store as store_module
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.ledger.ledger import Ledger
from party.identity.keys import identity_key
from pate.envelopes import FIRST_LINE, MOST_BYTES, MOST_MESSAGE, Part, opened, write
from pate.errors import ProtocolError, StateError
from pate.storage.durable_file import DurableFile
from tests.support.world.envelopes import NAMES, Play, StuckError
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator_server.exchange.presence import Out


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Play:
    return waiting_for_d(Play(tmp_path_factory.mktemp("waiting")))


@pytest.fixture
def play(waiting: Play, tmp_path: Path) -> Play:
    """A campaign that waits for the votes of d; all others have answered."""
    play = waiting.copied(tmp_path)
    play.carrier = lambda: False
    return play


def waiting_for_d(play: Play) -> Play:
    play.carrier = lambda: play.carry(without=["d"] if votes_are_out(play) else [])
    with pytest.raises(StuckError):
        play.serve()
    play.carrier = lambda: False
    assert {each.party for each in last(play) if each.state == "waiting"} == {"d"}
    return play


def votes_are_out(play: Play) -> bool:
    return any((play.folder / "out").glob("*.round-2.*"))


def last(play: Play) -> list[Out]:
    return play.folders().store.newest()


def answer_of_d(play: Play) -> Path:
    """The answer of d, outside the inbox."""
    path = play.outgoing("d")
    assert path is not None
    return play.answer(path, "d", play.root).path


def bring(play: Play, path: Path) -> None:
    path.rename(play.folder / "in" / path.name)


def look_twice(play: Play) -> None:
    """Have the server look into its inbox: what it refuses and does not change is said then."""
    files = play.folders()
    assert files.receive() == files.receive() == []


@pytest.mark.parametrize("closed_first", [False, True])
def test_an_answer_that_lies_there_when_the_wait_is_ended_counts(
    play: Play, closed_first: bool
) -> None:
    """While the server is away: whichever of the two comes first."""
    path = answer_of_d(play)
    if closed_first:
        assert play.close_step() == ["d"]
        bring(play, path)
    else:
        bring(play, path)
        assert play.close_step() == ["d"]
    play.serve()
    assert play.responders() == NAMES


def test_an_answer_that_lies_there_at_the_date_counts(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.days = 2.5
    waiting_for_d(play)
    bring(play, answer_of_d(play))
    play.now += timedelta(days=30)  # the server was away for a month
    play.serve()
    assert play.responders() == NAMES


def test_ending_the_wait_twice_is_the_same(play: Play) -> None:
    assert play.close_step() == ["d"]
    assert play.close_step() == ["d"]
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert play.close_step() == []


def test_what_this_server_cannot_judge_yet_is_not_cut_off(tmp_path: Path) -> None:
    """The list of enrolled parties cannot be read for a while; the wait is ended meanwhile."""
    play = Play(tmp_path)
    keys = {
        name: identity_key(play.home(name)).public_key().public_bytes_raw()
        for name in NAMES
        if not play.ledger(name).campaigns()
    }
    play.enrolled = lambda: keys
    waiting_for_d(play)
    bring(play, answer_of_d(play))
    assert play.close_step() == ["d"]

    def unreadable() -> dict[str, bytes]:
        raise StateError("the list of parties is locked")

    play.enrolled = unreadable
    files = play.folders()
    for _ in range(3):
        assert files.receive() == []
    assert [each.state for each in files.store.newest() if each.party == "d"] == ["closing"]
    play.enrolled = lambda: keys
    play.serve()
    assert play.responders() == NAMES


def test_half_an_answer_at_the_end_of_the_wait_is_no_answer(play: Play) -> None:
    whole = answer_of_d(play).read_bytes()
    path = play.folder / "in" / "half.pate"
    path.write_bytes(whole[:-100])
    play.close_step()
    files = play.folders()
    files.receive()
    assert not play.complaints()  # it may be growing
    files.receive()
    (line,) = play.complaints()
    assert "half.pate" in line
    assert "not as long as its manifest says" in line
    assert [each.state for each in files.store.newest() if each.party == "d"] == ["lost"]
    path.write_bytes(whole)
    files.receive()
    (late,) = [each for each in files.store.newest() if each.party == "d"]
    assert late.state == "late"
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")


def test_an_answer_that_grows_is_taken_when_it_is_whole(play: Play) -> None:
    whole = answer_of_d(play).read_bytes()
    path, files = play.folder / "in" / "slow.pate", play.folders()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        files.receive()
    assert not play.complaints()
    path.write_bytes(whole)
    files.receive()
    files.receive()
    assert not play.complaints()
    assert [each.state for each in files.store.newest() if each.party == "d"] == ["answered"]


def test_another_file_of_the_same_size_and_date_is_looked_at(play: Play) -> None:
    source = answer_of_d(play)
    whole, path, files = source.read_bytes(), play.folder / "in" / "same.pate", play.folders()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    os.utime(path, ns=(0, 0))
    files.receive()
    os.utime(source, ns=(0, 0))
    source.replace(path)
    files.receive()
    assert [each.state for each in files.store.newest() if each.party == "d"] == ["answered"]


def test_links_folders_pipes_and_odd_names_end_no_wait_and_stop_nothing(play: Play) -> None:
    place, outside = play.folder / "in", answer_of_d(play)
    (place / "link.pate").symlink_to(outside)
    (place / "nowhere.pate").symlink_to(play.root / "nothing")
    (place / "folder.pate").mkdir()
    os.mkfifo(place / "pipe.pate")
    (place / "empty.pate").touch()
    (place / "[b]\x1b[31mred\n.pate").write_bytes(b"x")
    play.close_step()
    look_twice(play)
    assert [each.state for each in last(play) if each.party == "d"] == ["lost"]
    said = play.complaints()
    assert len(said) == 6


def test_a_huge_file_is_not_read(play: Play) -> None:
    """Sparse files of gigabytes: refused by their size, or by the head of the manifest."""
    place = play.folder / "in"
    with (place / "larger.pate").open("wb") as file:
        file.write(FIRST_LINE)
        file.truncate(2 * MOST_BYTES)
    key = Ed25519PrivateKey.generate()
    with opened(answer_of_d(play)) as envelope:
        manifest = envelope.manifest
    many = tuple(Part(MOST_MESSAGE, bytes(32)) for _ in range(MOST_BYTES // MOST_MESSAGE))
    head = replace(manifest, parts=many, key=key.public_key().public_bytes_raw())
    for name, forged in {
        "stranger": replace(head, party="zoe"),
        "other": replace(head, campaign="1e" * 16),
        "parts": head,
    }.items():
        with (place / f"{name}.pate").open("wb") as file:
            for line in (FIRST_LINE, forged.line, forged.sign(key).hex().encode() + b"\n"):
                file.write(line)
            file.truncate(file.tell() + sum(part.size for part in many))
    play.close_step()
    look_twice(play)
    assert [each.state for each in last(play) if each.party == "d"] == ["lost"]
    said = {line.split(".")[0]: line for line in play.complaints()}
    assert "too large for an envelope" in said["larger"]
    assert "zoe does not take part by envelope" in said["stranger"]
    assert "of campaign 1e1e1e1e" in said["other"]
    assert f"{len(many)} replies to 1 requests" in said["parts"]


def test_a_receipt_is_small(tmp_path: Path) -> None:
    """An enrolled party cannot fill the memory with answers to the pieces of the public set."""
    play = Play(tmp_path)
    play.carrier = lambda: False
    with pytest.raises(StuckError):
        play.serve()
    path = play.outgoing("a")
    assert path is not None
    with opened(play.answer(path, "a", play.root).path) as envelope:
        manifest, (first, _) = envelope.manifest, envelope.messages()
    messages = [first, bytes(2**20)]
    forged = replace(manifest, parts=tuple(map(Part.of, messages)))
    write(play.folder / "in" / "large.pate", forged, identity_key(play.home("a")), messages)
    with pytest.raises(StuckError):
        play.serve()
    assert "a receipt of 1,048,576 bytes" in play.complaints()[0]


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
