"""A student leaves between two rounds: the campaign waits, spends nothing, and accepts another."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from pate.data.read import read_inputs
from pate.formats.labels import LabelRow
from student.arrivals import RoundEnd
from student.client import StudentClient
from student.session import identify

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.world.commands import Homes, Play

pytestmark = pytest.mark.slow

_WAITS = "round 2: waiting for the student's predictions"


def reads_a_round_and_leaves(play: Play) -> dict[int, int]:
    """Follow as a student does, to the end of the first round; return the labels."""
    labels = dict[int, int]()
    address, public = f"127.0.0.1:{play.student_port}", read_inputs(play.public)
    with StudentClient(address, identify(public), max_wait=300) as client:
        for event in client.events():
            if isinstance(event, LabelRow):
                labels[event.query] = event.label
            elif isinstance(event, RoundEnd):
                assert event.wants_predictions
                break
    return labels


def labels_of(play: Play) -> dict[int, int]:
    told = json.loads((play.folder / "labels.json").read_text())["labels"]
    return {query: label for query, label, *_ in told}


def test_none_comes_and_then_another_does(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign", "interactive") as play:
        server = play.serve()
        parties = [play.party(name) for name in homes.names]
        first = reads_a_round_and_leaves(play)
        server.says(_WAITS)
        left = play.stand()
        assert left is not None
        assert first == left.labels != {}
        # Nobody comes: stopped and killed, it waits again, and nothing is asked or spent.
        for how, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
            server.send(how)
            server.ends(code)
            server = play.serve()
            server.says(_WAITS)
            assert play.stand() == left
        another = play.student()
        for program in (another, server, *parties):
            program.ends(0)
        end = play.stand()
        assert end is not None
        end.follows(left)
        assert end.phase == "finished"
        assert end.vain == 0
        # It gets what the first one got, and what came after.
        assert labels_of(play) == end.labels
        assert first.items() <= end.labels.items()
        play.check_parties()
