"""Kill -9 between every two steps, on either side: the same bytes, and nothing counted twice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from aggregator_server.ledger.verify import read_campaign, verify
from pate.runtime.failpoints import NAMES as POINTS
from tests.support.needs import others_slow
from tests.support.world.envelopes import NAMES, Play
from tests.support.world.in_process import killed_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Where a process dies.
PLAIN = (
    "envelope-noted", "answer-taken", "roster-recorded", "votes-arrived", "votes-recorded",
    "replies-deleted", "round-ended", "campaign-closed", "entry-written",
    "envelope-answered", "envelope-recorded", "offer-recorded", "answer-recorded", "ending-recorded",
    "party-entry-written", "file-drafted",
)  # fmt: skip
#: The same of masked sums.
MASKED = (
    "answer-taken", "opening-listed", "votes-arrived", "votes-recorded", "replies-deleted",
    "envelope-recorded", "bundles-kept",
    "round-begun", "masked-kept", "list-signed", "opening-recorded", "list-kept",
    "party-entry-written",
)  # fmt: skip
#: Those at which a server dies; ``file-drafted`` is anybody's, and at the others a party does.
OF_SERVER = {
    "envelope-noted", "answer-taken", "roster-recorded", "opening-listed", "votes-arrived",
    "votes-recorded", "replies-deleted", "round-ended", "campaign-closed", "entry-written",
}  # fmt: skip
#: Failpoints that have their case here.
FAILPOINTS = {*PLAIN, *MASKED}


class Killed:
    """A campaign whose every process is killed at a failpoint, and then started again.

    The second process of a step dies at its second passage, and so on, until one gets through.
    """

    def __init__(self, play: Play, point: str) -> None:
        assert point in POINTS
        self.play = play
        self.point = point
        self.deaths = 0

    def through(self, work: Callable[[], object]) -> None:
        """Do a step in processes, one after the other, until one gets through.

        All that a step knows is on disk, so one that does not pass the failpoint is done in this process.
        """
        if (work == self.play.look) != (self.point in OF_SERVER) and self.point != "file-drafted":
            work()
            return
        for times in range(1, 50):
            killed = killed_at(f"{self.point}:{times}", work)
            self.play.note()
            if not killed:
                return
            self.deaths += 1
        raise AssertionError("no process gets through")

    def serve(self) -> None:
        """Let the server look at its files until it waits or has ended."""
        self.play.carrier = lambda: False
        self.through(self.play.look)

    def answer(self, *, without: str = "") -> bool:
        """Have each party answer what is out for it; return whether anything was."""
        moved = False
        for name in self.play.names:
            path = self.play.outgoing(name)
            if path is None or name == without:
                continue
            back = self.play.folder / "in" / path.name.replace(".for-", ".from-")
            if not back.exists():
                self.through(partial(self.play.answer, path, name))
                moved = True
        return moved

    def play_on(self) -> None:
        """Go on until the campaign is over on both sides."""
        for _ in range(20):
            over = self.play.state().phase == "finished"
            self.serve()
            if not self.answer() and over:
                return
        raise AssertionError("the campaign does not end")

    def check(self) -> None:
        """Check what all ledgers hold in the end."""
        play = self.play
        assert self.deaths
        verify(play.path)
        kinds = [entry.kind for entry in read_campaign(play.path)[1]]
        charged, released = kinds.count("charge"), kinds.count("release")
        # Of a release that was written and not committed only the charge is left.
        assert charged - released in ((0, 1) if self.point == "entry-written" else (0,))
        assert released == kinds.count("votes") == 1
        assert play.votes_on_disk() == []
        for name in play.names:
            ledger = play.ledger(name)
            ledger.verify()
            (record,) = ledger.campaigns()
            numbers = [each.number for each in record.files]
            assert numbers == list(range(1, len(numbers) + 1))
            assert len(record.batches) == 1
            assert record.ending is not None


@pytest.mark.parametrize(
    "point", others_slow(PLAIN, {"votes-recorded", "answer-recorded"}.__contains__)
)
def test_the_same_command_again_continues(tmp_path: Path, point: str) -> None:
    killed = Killed(Play(tmp_path, names=NAMES[:3]), point)
    killed.play_on()
    killed.check()
    assert killed.play.responders() == killed.play.names
    assert {name.split(".")[1] for name in killed.play.files} == {"round-1", "round-2", "round-3"}


@pytest.mark.parametrize(
    "point", others_slow(MASKED, {"opening-listed", "list-signed"}.__contains__)
)
def test_a_masked_sum_is_unmasked_once_with_one_list(tmp_path: Path, point: str) -> None:
    play = Play(tmp_path, names=NAMES[:4], aggregation="masked", min_parties=3, colluders=1)
    killed = Killed(play, point)
    killed.play_on()
    killed.check()
    assert play.responders() == play.names
    assert {openings(play, name) for name in play.names} == {(play.names,)}


@pytest.mark.slow
@pytest.mark.parametrize("point", ["envelope-noted", "roster-recorded", "bundles-kept"])
def test_keys_that_come_with_the_description_are_asked_for_once(tmp_path: Path, point: str) -> None:
    play = Play(tmp_path, names=NAMES[:4], aggregation="masked", min_parties=3, colluders=1)
    killed = Killed(play.enrol(), point)
    killed.play_on()
    killed.check()
    assert play.responders() == play.names
    assert {name.split(".")[1] for name in play.files} == {f"round-{at}" for at in range(1, 6)}
    for name in play.names:
        (bundle,) = play.ledger(name).bundles()
        assert bundle.round


@pytest.mark.slow
@pytest.mark.parametrize("point", ["opening-listed", "list-signed", "opening-recorded"])
def test_a_late_answer_that_a_restart_finds_does_not_change_the_list(
    tmp_path: Path, point: str
) -> None:
    """Three of four are in the sum; the fourth answer lies in the inbox at every later start."""
    play = Play(tmp_path, names=NAMES[:4], aggregation="masked", min_parties=3, colluders=1)
    killed = Killed(play, point)
    while not any("round-3" in name for name in play.files):  # until votes are asked for
        killed.serve()
        killed.answer(without="d" if play.outgoing("d") and _votes_are_out(play) else "")
    late = play.outgoing("d")
    assert late is not None
    kept = play.answer(late, "d", tmp_path).path
    killed.serve()  # it takes the other answers
    assert play.close_step() == ["d"]
    if point == "opening-listed":
        # The server dies as soon as the list is on disk; then the answer is there.
        assert killed_at(point, play.look)
        killed.deaths += 1
    else:
        killed.serve()
    kept.rename(play.folder / "in" / kept.name)
    killed.play_on()
    killed.check()
    assert play.responders() == ("a", "b", "c")
    assert {openings(play, name) for name in "abc"} == {(("a", "b", "c"),)}
    assert openings(play, "d") == ()


def _votes_are_out(play: Play) -> bool:
    return any((play.folder / "out").glob("*.round-3.*"))


def openings(play: Play, name: str) -> tuple[tuple[str, ...], ...]:
    """Return the lists of survivors that a party revealed shares for."""
    (record,) = play.ledger(name).campaigns()
    return tuple(each.survivors or () for each in record.opened)
