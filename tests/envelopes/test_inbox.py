"""What lies in the server's inbox when it stops waiting: true answers, halves, links, huge files."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from party.identity.keys import identity_key
from pate.envelopes import FIRST_LINE, MOST_BYTES, MOST_MESSAGE, Part, opened, write
from pate.errors import StateError
from tests.support.world.envelopes import NAMES, Play, StuckError

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator_server.exchange.presence import Out


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """A campaign that waits for the votes of d; all others have answered."""
    return waiting_for_d(Play(tmp_path))


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
