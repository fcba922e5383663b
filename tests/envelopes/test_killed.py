"""Kill -9 between every two steps, on either side: the same bytes, and nothing counted twice."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from aggregator_server.ledger.verify import read_campaign, verify
from tests.support.world.envelopes import NAMES, Play
from tests.support.world.in_process import killed_first

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Where processes of a plain sum die: of the server, of parties, of either.
PLAIN = {
    "envelope-noted", "answer-taken", "roster-recorded", "votes-arrived", "votes-recorded",
    "replies-deleted", "round-ended", "campaign-closed", "entry-written",
    "envelope-answered", "envelope-recorded", "offer-recorded", "answer-recorded", "ending-recorded",
    "party-entry-written", "file-drafted",
}  # fmt: skip
#: And of a masked one.
MASKED = PLAIN | {
    "opening-listed", "bundles-kept", "round-begun", "masked-kept", "list-signed",
    "opening-recorded", "list-kept",
}  # fmt: skip
#: Failpoints that have their case here.
FAILPOINTS = MASKED


class Killed:
    """A campaign in which each step of the server and of one party is done by processes that are killed.

    Each process dies at the first failpoint at which none of the step has died so far, until one gets
    through. Between a charge and its release none dies: that costs the charge, see
    ``promises/test_every_campaign.py``.
    """

    def __init__(self, play: Play) -> None:
        self.play = play
        self.points: set[str] = set()

    def through(self, work: Callable[[], object]) -> None:
        died: set[str] = set()

        def dies(passed: Counter[str], name: str) -> bool:
            passed[name] += 1
            paid = passed["charge-recorded"] > passed["release-recorded"]
            return not paid and name not in died

        while (point := killed_first(partial(dies, Counter()), work)) is not None:
            self.play.note()
            died.add(point)
        self.play.note()
        self.points |= died

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
                work = partial(self.play.answer, path, name)
                self.through(work) if name == "a" else work()
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
        verify(play.path)
        kinds = [entry.kind for entry in read_campaign(play.path)[1]]
        charged, released = kinds.count("charge"), kinds.count("release")
        assert charged == released == kinds.count("votes") == 1
        assert play.votes_on_disk() == []
        assert drafts(play) == set()
        for name in play.names:
            ledger = play.ledger(name)
            ledger.verify()
            (record,) = ledger.campaigns()
            numbers = [each.number for each in record.files.values()]
            # One that was numbered and never came out is replaced by another one.
            assert numbers == sorted(set(numbers))
            assert len(record.batches) == 1
            assert record.ending is not None


class KilledWriting(Killed):
    """The same, and each process dies with the draft of another file.

    Those at the top of a home are removed by its lock, which there is none of here.
    """

    def through(self, work: Callable[[], object]) -> None:
        def dies(name: str) -> bool:
            return name == "file-drafted" and not drafts(self.play) <= self.points

        while killed_first(dies, work) is not None:
            self.points |= drafts(self.play)
        self.play.note()


def drafts(play: Play) -> set[str]:
    """Return the names of files below homes, and in the folders of envelopes, of which there is a draft.

    Without those beside a campaign's ledger, which a server removes as it starts.
    """
    below = play.root.glob("*/*/.*")
    return {path.stem.removeprefix(".") for path in below if path.parent != play.path.parent}


def masked(folder: Path, parties: int = 4) -> Play:
    """Masked sums that one party may miss, so that all others sign who is in them."""
    return Play(
        folder,
        NAMES[:parties],
        aggregation="masked",
        min_parties=parties - 1,
        colluders=parties - 3,
    )


def test_the_same_command_again_continues(tmp_path: Path) -> None:
    killed = Killed(Play(tmp_path, names=NAMES[:2], min_parties=2))
    killed.play_on()
    killed.check()
    assert killed.points >= PLAIN
    assert killed.play.responders() == killed.play.names
    assert {name.split(".")[1] for name in killed.play.files} == {"round-1", "round-2", "round-3"}


def test_a_masked_sum_is_unmasked_once_with_one_list(tmp_path: Path) -> None:
    killed = Killed(play := masked(tmp_path, 3))
    killed.play_on()
    killed.check()
    assert killed.points >= MASKED
    assert play.responders() == play.names
    assert {openings(play, name) for name in play.names} == {(play.names,)}


def test_of_a_write_that_was_killed_nothing_is_left(tmp_path: Path) -> None:
    killed = KilledWriting(Play(tmp_path, names=NAMES[:3]))
    killed.play_on()
    killed.check()
    died = {name.partition(".round-")[2] or name.rpartition(".")[2] for name in killed.points}
    assert died == {
        "bin", "reply", "pate", "sent",
        *(f"{at}.for-{name}.pate" for at in (1, 2, 3) for name in NAMES[:3]),
        *(f"{at}.from-a.pate" for at in (1, 2, 3)),
    }  # fmt: skip


@pytest.mark.slow
def test_keys_that_come_with_the_description_are_asked_for_once(tmp_path: Path) -> None:
    killed = Killed(play := masked(tmp_path).enrol())
    killed.play_on()
    killed.check()
    assert play.responders() == play.names
    for name in play.names:
        assert len(play.ledger(name).campaigns()[0].files) == 5
        (bundle,) = play.ledger(name).bundles()
        assert bundle.round


@pytest.mark.slow
def test_a_late_answer_that_a_restart_finds_does_not_change_the_list(tmp_path: Path) -> None:
    """Three of four are in the sum; the fourth answer comes as soon as the list is on disk.

    It lies in the inbox at every later start.
    """
    killed = Killed(play := masked(tmp_path))
    while not any("round-3" in name for name in play.files):  # until votes are asked for
        killed.serve()
        killed.answer(without="d" if play.outgoing("d") and _votes_are_out(play) else "")
    late = play.outgoing("d")
    assert late is not None
    kept = play.answer(late, "d", tmp_path).path
    killed.serve()  # it takes the other answers
    assert play.close_step() == ["d"]
    assert killed_first("opening-listed".__eq__, play.look)
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
