"""A whole campaign through files only."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from aggregator_server.exchange import folders
from aggregator_server.exchange.presence import in_words
from pate.envelopes import write as write_envelope
from tests.support.world.envelopes import NAMES, Play, StuckError
from tests.support.world.in_process import Killed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def seldom(play: Play) -> Callable[[], bool]:
    """Return a carrier that comes each sixth time: in between the server gives up, and starts again."""
    turns = 0

    def carrier() -> bool:
        nonlocal turns
        turns += 1
        return play.carry() if turns % 6 == 5 else False

    return carrier


def test_five_parties_vote_through_files_only(play: Play) -> None:
    play.serve()
    assert play.responders() == NAMES
    play.carry()
    play.note()
    # Who are you, with the public set; votes; the end.
    for name in NAMES:
        files = [f"campaign-0f0f0f0f.round-{at}.for-{name}.pate" for at in (1, 2, 3)]
        assert sorted(each for each in play.files if each.endswith(f"for-{name}.pate")) == files
        (record,) = play.ledger(name).campaigns()
        assert [each.number for each in record.files.values()] == [1, 2, 3]
        assert record.ending is not None
        assert len(record.batches) == 1
    assert play.complaints() == []


MASKED: dict[str, Any] = {"aggregation": "masked", "min_parties": 4, "colluders": 1}


def test_masked_sums_come_by_envelope(tmp_path: Path) -> None:
    """Who are you; keys ahead; masked votes; who is in the sum; shares for one list; the end."""
    play = Play(tmp_path, **MASKED)
    play.serve()
    assert play.responders() == NAMES
    rounds = {int(name.split(".")[1].removeprefix("round-")) for name in play.files}
    assert rounds == {1, 2, 3, 4, 5, 6}


def test_a_lost_masked_answer_is_a_dropout_and_a_late_one_is_refused_for_good(
    tmp_path: Path,
) -> None:
    play = Play(tmp_path, **MASKED)
    late: dict[str, bytes] = {}

    def carrier() -> bool:
        masked = any("round-3" in name for name in play.files)
        if masked and not late and (path := play.outgoing("d")) is not None:
            done = play.answer(path, "d", play.root)
            late[done.path.name] = done.path.read_bytes()
        if play.carry(without=["d"] if masked else []):
            return True
        if not masked or not play.close_step(looked=True):
            return False
        for name, content in late.items():
            (play.folder / "in" / name).write_bytes(content)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert any("came too late" in line for line in play.lines.said)
    for name in play.responders():
        (record,) = play.ledger(name).campaigns()
        assert [each.survivors for each in record.opened] == [("a", "b", "c", "e")]


def test_a_server_that_starts_again_goes_on_with_the_same_masked_sum(tmp_path: Path) -> None:
    play = Play(tmp_path, **MASKED)
    play.carrier = seldom(play)
    for _ in range(30):
        try:
            play.serve()
        except StuckError:
            continue
        break
    assert play.responders() == NAMES
    rounds = {int(name.split(".")[1].removeprefix("round-")) for name in play.files}
    assert rounds == {1, 2, 3, 4, 5, 6}


def test_a_lost_envelope_is_a_dropout_once_the_step_is_closed(play: Play) -> None:
    def carrier() -> bool:
        if play.carry(without=["d"] if voting(play) else []):
            return True
        return bool(voting(play) and play.close_step())

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")


def voting(play: Play) -> bool:
    """Whether votes are being asked for."""
    return any("round-2" in name for name in play.files)


def test_without_closing_the_server_waits(play: Play) -> None:
    play.carrier = lambda: play.carry(without=["d"])
    with pytest.raises(StuckError):
        play.serve()


def test_an_answer_after_the_step_was_closed_changes_nothing(play: Play) -> None:
    late: dict[str, bytes] = {}

    def carrier() -> bool:
        if voting(play) and not late and (path := play.outgoing("d")) is not None:
            # Answered in time, and under way for too long.
            done = play.answer(path, "d", play.root)
            late[done.path.name] = done.path.read_bytes()
        if play.carry(without=["d"] if voting(play) else []):
            return True
        if not play.close_step(looked=True):
            return False
        for name, content in late.items():
            (play.folder / "in" / name).write_bytes(content)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "b", "c", "e")
    assert any("came too late" in line for line in play.lines.said)
    (found,) = [each for each in play.folders().store.envelopes() if each.state == "late"]
    assert (found.party, found.number) == ("d", 2)
    assert in_words(found.facts()).endswith("too late: the answer is refused permanently")


def test_a_step_ends_at_the_date_of_its_envelopes(play: Play) -> None:
    play.days = 2.5

    def carrier() -> bool:
        if play.carry(without=["b"] if voting(play) else []):
            return True
        if not voting(play) or play.now.day > 1:
            return False
        play.now += timedelta(days=2.6)
        return True

    play.carrier = carrier
    play.serve()
    assert play.responders() == ("a", "c", "d", "e")
    assert any("b: no answer until the date" in line for line in play.lines.said)


def test_some_are_online_and_the_others_come_by_envelope(play: Play) -> None:
    """One sum of both: nobody online is waited for longer than the slowest envelope."""
    play.by_envelope = ("c", "d", "e")
    for name in ("a", "b"):
        play.parties.start(name)
    play.serve()
    assert play.responders() == NAMES
    assert {name.split("-")[-1] for name in play.files} == {
        f"{name}.pate" for name in ("c", "d", "e")
    }
    assert {step for _, step in play.parties.asked} == {"describe", "public_piece", "ask", "finish"}


def test_a_server_that_starts_again_asks_nothing_twice(play: Play) -> None:
    """Its files are lost in between, in both folders: they come again, as they were."""
    play.carrier = seldom(play)
    for _ in range(20):
        try:
            play.serve()
        except StuckError:
            play.wipe("out")
            continue
        break
    assert play.responders() == NAMES
    assert {name.split(".")[1] for name in play.files} == {"round-1", "round-2", "round-3"}


def test_a_carrier_may_take_a_file_as_soon_as_it_appears(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It moves files, and does not copy them: the server needs none of them again."""
    write, bag = write_envelope, play.root / "bag"
    bag.mkdir()

    def taken(path: Path, *content: Any) -> None:
        write(path, *content)
        path.rename(bag / path.name)

    def carrier() -> bool:
        carried = sorted(bag.iterdir())
        for path in carried:
            play.answer(path, path.stem.rpartition(".for-")[2])
            path.unlink()
        return bool(carried)

    monkeypatch.setattr(folders, "write", taken)
    play.carrier = carrier
    play.serve()
    assert play.responders() == NAMES


def test_what_is_answered_while_the_server_is_dead_counts(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at the moment an envelope is outside; the answer is there when it starts again."""
    write, dead = write_envelope, set[str]()

    def died(path: Path, *content: Any) -> None:
        write(path, *content)
        if path.name not in dead:
            dead.add(path.name)
            raise Killed

    monkeypatch.setattr(folders, "write", died)
    for _ in range(30):
        try:
            play.serve()
        except Killed:
            play.carry()
            play.note()
            continue
        break
    assert play.responders() == NAMES
    assert len(dead) == 3 * len(NAMES)
    assert play.complaints() == []
