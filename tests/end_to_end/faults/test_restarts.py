"""Programs that end within a campaign or are stopped, and who may continue it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pate.data.read import read_inputs
from pate.errors import StateError
from pate.formats.labels import LabelRow
from pate.runtime.child import python
from pate.start import INTERRUPTED
from simulation.datasets import deal, digits, write_split
from simulation.programs import STOP_S, children, is_alive
from student.arrivals import RoundEnd
from student.client import StudentClient
from student.session import identify
from tests.support.needs import require
from tests.support.processes.programs import DEADLINE_S, Program, Surroundings, until
from tests.support.world.commands import Campaign, names_of
from tests.support.world.sites import Sites, lenient

if TYPE_CHECKING:
    from collections.abc import Iterator

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


#: The command of each program, by its module: none ends by itself within seconds.
PROGRAMS: Final = {
    "pate-server": "aggregator_server",
    "pate-party": "party",
    "pate-student": "student",
    "pate": "simulation",
}
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: Seconds after the first instruction within which the signal comes.
_WITHIN_S: Final = 5.0
_SEED: Final = 35
#: Moments of each program and signal.
_COUNT: Final = int(os.environ.get("PATE_TEST_STOPS", "1"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stops")
    write_split(folder, deal(digits(), 1, public=100, test=20), ["north"])
    return folder


def _arguments(name: str, data: Path, home: Path) -> tuple[object, ...]:
    public, nobody = data / "public.npz", "127.0.0.1:9"
    return {
        "pate-server": (
            "--public", public, "--parties", "a,b", "--epsilon", "1000", "--delta", "1e-4",
            "--port", 0, "--student-port", 0, "--page-port", 0, "--home", home,
        ),
        "pate-party": (
            "start", "--data", data / "north", "--teachers", 3, "--model", "linear",
            "--server", nobody, "--home", home,
        ),
        "pate-student": ("train", "--server", nobody, "--public", public, "--out", home / "out"),
        "pate": ("simulate", "--parties", 4, "--out", home / "out"),
    }[name]  # fmt: skip


def _has_begun(program: Program) -> bool:
    """Whether its handlers are in place: the system knows which signals a process catches."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


def _moments(name: str, how: signal.Signals, count: int) -> Iterator[float]:
    """Seconds after the first instruction, the same in each run."""
    chance = random.Random(f"{_SEED} {name} {how.name}")  # noqa: S311 - moments of a test
    return (chance.uniform(0, _WITHIN_S) for _ in range(count))


def _check_moments(name: str, how: signal.Signals, data: Path, folder: Path, count: int) -> None:
    for at, moment in enumerate(_moments(name, how, count)):
        home = folder / str(at)
        home.mkdir()
        # Its SIGINT is that of a terminal, also if this process was started in the background.
        program = Program(
            home,
            name,
            ["env", "--default-signal=INT", *python(PROGRAMS[name], *_arguments(name, data, home))],
            around=Surroundings(),
        )
        try:
            until(lambda: _has_begun(program), f"{name} begins")  # noqa: B023 - called at once
            time.sleep(moment)
            program.send(how)
            program.ends(INTERRUPTED, deadline_s=DEADLINE_S)
            _check_lines(name, program, f"{how.name} after {moment:.3f} s")
            program.leaves_nobody()
        finally:
            program.sweep()


def _check_lines(name: str, program: Program, when: str, first: int = 0) -> None:
    *before, last = program.lines[first:]
    assert re.fullmatch(rf"{name}( [\w.-]+)?: stopped", last), (when, program.text)
    # Others are progress: lines that begin with the time.
    assert all(line[:2].isdecimal() for line in before), (when, program.text)


@pytest.mark.parametrize("how", SIGNALS, ids=lambda how: how.name)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_stop_during_the_start_is_clean(
    name: str, how: signal.Signals, data: Path, tmp_path: Path
) -> None:
    _check_moments(name, how, data, tmp_path, _COUNT)


@pytest.mark.parametrize("form", ["option", "environment"])
def test_the_first_line_of_a_stop_is_json_where_lines_are(
    form: str, data: Path, tmp_path: Path
) -> None:
    """It is written before the modules of lines are imported, and has the same fields.

    The party's name is not known yet.
    """
    options = ("--log", "json") if form == "option" else ()
    around = Surroundings({"PATE_LOG": "json"} if form == "environment" else {})
    lines = []
    for wait in (0.0, 3600.0):
        home = tmp_path / str(wait)
        home.mkdir()
        command = python("party", *_arguments("pate-party", data, home), *options)
        program = Program(
            home, "pate-party", ["env", "--default-signal=INT", *command], around=around
        )
        try:
            until(lambda: _has_begun(program), "it begins")  # noqa: B023 - called at once
            if wait:
                program.says("trying again")
            program.send(signal.SIGTERM)
            program.ends(INTERRUPTED)
            lines.append(program.lines[-1])
        finally:
            program.sweep()
    stamp = r'"time": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"'
    first, last = (re.sub(stamp, "TIME", line) for line in lines)
    assert first == re.sub(r'"party": "[^"]+", ', "", last) != last
    assert first.startswith("{TIME, ")


def test_ctrl_c_in_the_middle_of_a_vote_is_clean(sites: Sites, tmp_path: Path) -> None:
    with Campaign(tmp_path, sites) as campaign:
        server = campaign.serve(
            sites.public(480, 60), "--aggregator", "gnmax", "--sigma2", "1", parties="north,south"
        )
        north = campaign.party("north")
        # It dies before its votes are sent, so the campaign stands where it is.
        campaign.party("south", failpoint="voting").ends(-signal.SIGKILL)
        for name, program in (("pate-server", server), ("pate-party", north)):
            assert program.family(), f"{name} has no child to leave behind"
            said = len(program.lines)
            program.send(signal.SIGINT)
            program.ends(INTERRUPTED, deadline_s=STOP_S)
            program.leaves_nobody()
            _check_lines(name, program, "at work", said)
        assert campaign.verified()["phase"] == "voting"
