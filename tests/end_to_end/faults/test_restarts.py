"""Programs that end within a campaign, and who may continue it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from pate.data.read import read_inputs
from pate.errors import StateError
from pate.formats.labels import LabelRow
from simulation.programs import children, is_alive, until
from student.arrivals import RoundEnd
from student.client import StudentClient
from student.session import identify
from tests.support.needs import require
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program
    from tests.support.world.commands import Homes, Play


pytestmark = pytest.mark.slow

REFUSED = "does not admit this party"


def test_it_is_back_at_once_and_the_living_one_of_two_stays(tmp_path: Path) -> None:
    sites = Sites(tmp_path).deal()
    with Campaign(tmp_path / "campaign", sites) as campaign:
        campaign.enrol(lenient(3, 2))
        # Flower considers a killed node connected for a minute, longer than the server's patience.
        server = campaign.serve(
            sites.public(0, 40), "--min-parties", "2", "--colluders", "0", "--patience", "40",
            "--aggregator", "gnmax", "--sigma2", "2", parties=",".join(sites.names),
        )  # fmt: skip
        first = campaign.party("south")
        server.says("south joined")

        # Its SuperNode cannot end with it, nor say that it has gone.
        (orphan,) = supernodes(first)
        os.kill(orphan, signal.SIGSTOP)
        first.kill()
        south = campaign.party("south")
        server.says("south is back")
        os.kill(orphan, signal.SIGCONT)
        until(lambda: not is_alive(orphan), "the SuperNode that was left behind has ended")

        # A copy of its home, while it lives.
        shutil.copytree(sites.home("south"), tmp_path / "homes" / "copy")
        copy = campaign.run(
            "copy", "party", "start", "--data", sites.data("south"), "--model", "linear",
            "--teachers", "3", "--home", tmp_path / "homes" / "copy",
        )  # fmt: skip
        copy.says(REFUSED)
        copy.kill()

        # Killed before it has given its keys; the others have given theirs.
        west = campaign.party("west")
        server.says("west joined")
        west.send(signal.SIGSTOP)
        north = campaign.party("north")
        server.says("the roster is complete")
        west.kill()
        west = campaign.party("west")
        for program in (server, north, south, west):
            program.ends(0)
        assert server.text.count("south is back") == 1
        for party in (south, west):
            assert REFUSED not in party.text
        assert campaign.body("votes")["responders"] == list(sites.names)
        campaign.verified()


def supernodes(party: Program) -> list[int]:
    return [pid for pid in children(party.pid) if b"supernode" in names_of(pid)]


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


#: Nobody has this number.
STRANGER = 43_210


def give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, user, user)


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Owner, mode and content of everything in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_uid,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (folder, *folder.rglob("*"))
    }


def is_refused(command: Program) -> None:
    command.ends(StateError.exit_code)
    assert f"belongs to user {STRANGER}, and this is user root" in command.lines[-1]
    assert "Traceback" not in command.text


def test_root_does_not_go_on_in_the_home_of_another(homes: Homes, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve(failpoint="noise-drawn:2")
        west = play.party("west", failpoint="votes-cached")
        others = [play.party(name) for name in homes.names if name != "west"]
        west.ends(-signal.SIGKILL)
        home = play.sites.home("west")
        give(home, STRANGER)
        before = state(home)
        is_refused(play.party("west"))
        assert state(home) == before
        give(home, 0)
        west = play.party("west")

        server.ends(-signal.SIGKILL)
        stand = play.stand()
        assert stand is not None
        assert stand.labels
        give(play.home, STRANGER)
        before = state(play.home)
        is_refused(play.serve())
        # Reading is another matter, and leaves nothing either.
        play.run(
            "server", "aggregator_server", "ledger", "verify", "--json", "--home", play.home
        ).ends(0)
        assert {name: owner for name, (owner, *_) in state(play.home).items()} == {
            name: owner for name, (owner, *_) in before.items()
        }
        give(play.home, 0)
        play.serve().ends(0)
        for party in (west, *others):
            party.ends(0)
        end = play.stand()
        assert end is not None
        end.follows(stand)
        assert end.phase == "finished"
        play.check_parties()
