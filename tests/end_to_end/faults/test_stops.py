"""SIGINT and SIGTERM, while a command starts or is at work: one line, one exit code, no traceback.

The moments of a start are random, from the first instruction on: before it a process is only the interpreter,
which SIGTERM ends without a word. PATE_TEST_STOPS is the number of moments of each program and signal.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pate.runtime.child import python
from pate.start import INTERRUPTED
from simulation.datasets import deal, digits, write_split
from simulation.programs import DEADLINE_S, STOP_S, Program, Surroundings, until
from tests.support.world.commands import Campaign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world.sites import Sites

pytestmark = pytest.mark.slow

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
