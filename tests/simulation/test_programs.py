"""Supervised programs: the report of a failure, a refused threshold, and no process left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.voting.voter import Voter
from pate.campaign.settings import spec_of
from pate.data.values import Dataset, Table
from pate.errors import PateError, ProcessError, UsageError
from pate.runtime.screen import Screen
from simulation.parties import open_ensemble, open_voter, party_home
from simulation.programs import Programs, is_alive
from simulation.simulate import carrier_to, run_campaign
from tests.support.processes.programs import Program, until
from tests.support.world.commands import Commands
from tests.support.world.sites import Sites, lenient

ROOT = Path(__file__).resolve().parents[2]


def script(folder: Path, code: str) -> Program:
    return Program(folder, "script", [sys.executable, "-c", code])


def test_it_knows_what_was_said_and_how_it_ended(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; print('{\"a\": 1}'); sys.exit('no luck')")
    program.says("no luck")
    assert program.ends(0, 1) == 1
    assert program.result() == {"a": 1}
    with pytest.raises(ProcessError, match=r"script ended \(1\) without 'luck, then'"):
        program.says("luck, then")
    with pytest.raises(ProcessError, match="script ended with 1, not"):
        program.ends(0)


def test_each_start_has_files_of_its_own(tmp_path: Path) -> None:
    for word in ("first", "second"):
        program = script(tmp_path, f"print('{word}')")
        program.ends(0)
        assert program.output == f"{word}\n"
        with pytest.raises(ProcessError, match="not its result"):
            program.result()
    assert len(list(tmp_path.glob("script*.log"))) == 2


def test_the_settings_of_this_process_are_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATE_LEDGER", "postgresql://elsewhere")
    program = script(tmp_path, "import os; print(sorted(k for k in os.environ if 'PATE_' in k))")
    program.ends(0)
    assert program.output == "[]\n"


def test_a_program_and_its_children_are_swept(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, "
        "flush=True)\n"
        "time.sleep(600)"
    )
    program = script(tmp_path, code)
    until(lambda: bool(program.output), "its child has started")
    program.sweep()
    assert program.code == -9
    until(lambda: not is_alive(int(program.output)), "the child has ended")


def test_one_role_that_fails_ends_all_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Programs(Screen("test"), tmp_path) as programs:
        programs.start("waits", "http.server", "--bind", "127.0.0.1", "0")
        programs.start("broken", "http.server", "not a port")
        with pytest.raises(ProcessError, match=r"broken ended with exit code 2: .*broken\.log"):
            programs.wait("waits")
    said = capsys.readouterr().err
    assert "broken      " in said
    assert programs._roles["waits"].code is not None


#: Says how far it is, and what it does once it may continue.
TALK = """
import pathlib, sys, time
say = lambda text: print(f"12:00:00 pate: {text}", file=sys.stderr, flush=True)
say("working: 3 of 10, about 2 s left")
while not pathlib.Path("go").exists(): time.sleep(0.02)
say("votes have left")
print("{}")
"""
SHOW = """
import pathlib, sys
from pate.runtime.screen import Screen
from simulation.programs import Programs
screen = Screen("pate")
with Programs(screen, pathlib.Path("."), tellers=("server",)) as programs:
    for name in ("server", "hospital"):
        programs.start(name, "talk")
    programs.wait("server", "hospital")
screen.say("all is over")
"""


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown)


def works(name: str, shown: str) -> bool:
    return re.search(rf"{name} +working .* 3/10", plain(shown)) is not None


def test_on_a_terminal_each_program_has_one_line_and_only_the_tellers_scroll(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talk.py").write_text(TALK)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{tmp_path}")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "PATE_LOG"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", SHOW], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    ) as program:
        os.close(theirs)
        shown = ""
        # A terminal whose other end is closed gives an error and not an end.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                shown += piece.decode()
                if all(works(name, shown) for name in ("server", "hospital")):
                    (tmp_path / "go").touch()
    os.close(ours)
    assert program.returncode == 0, shown
    assert works("hospital", shown)
    scrolled = [line for line in plain(shown).splitlines() if re.match(r"\d\d:\d\d:\d\d ", line)]
    assert [line.split(maxsplit=1)[1].rstrip() for line in scrolled] == [
        "server      votes have left", "all is over",
    ]  # fmt: skip
    assert "votes have left" in (tmp_path / "hospital.log").read_text()


def test_an_enrolment_that_fails_is_an_error(tmp_path: Path) -> None:
    with Commands(tmp_path / "campaign", Sites(tmp_path, ("north", "NO NAME"))) as commands:
        with pytest.raises(PateError, match="NO NAME"):
            commands.enrol(lenient(2, 2))
        assert not commands.is_enrolled


PARTIES, TEACHERS = 3, 4
RECORDS = Dataset(Table(("x",), (np.arange(40.0),)), np.arange(40) // 20, ("low", "high"))


def voters(place: Path) -> list[Voter]:
    homes = [party_home(place, number) for number in range(PARTIES)]
    return [
        open_voter(home, open_ensemble(home, RECORDS, TEACHERS, model="linear")) for home in homes
    ]


def test_parties_learn_that_it_has_ended_before_it_asked(tmp_path: Path) -> None:
    public = Table(("x",), (np.linspace(0, 40, 30),))
    spec = spec_of(
        CampaignOptions(
            campaign="too high", aggregator="confident-gnmax", parties=str(PARTIES), epsilon=20.0,
            delta=1e-5, threshold="500", sigma1="4", sigma2="2", classes="low,high",
        ),
        public,
    )  # fmt: skip
    key = Ed25519PrivateKey.generate()
    with Ledger.create(tmp_path / "campaign.db", spec) as ledger:
        # And again when it is resumed, with parties that come back.
        for _ in range(2):
            parties = voters(tmp_path)
            with (
                carrier_to(parties) as carrier,
                pytest.raises(UsageError, match="Nothing was asked"),
            ):
                run_campaign(ledger, public, carrier, screen=Screen("test"), signing_key=key)
            endings = [party.ending for party in parties]
            assert [end and (end.cause, end.votes_given) for end in endings] == [
                ("threshold", 0)
            ] * PARTIES
        state = ledger.state()
        assert (state.phase, state.queries_asked, float(state.spent)) == ("voting", 0, 0.0)
    for number in range(PARTIES):
        own = PartyLedger(party_home(tmp_path, number) / LEDGER_FILE, read_only=True)
        (record,) = own.campaigns()
        assert record.ending is not None
        assert (record.ending.cause, record.asked) == ("threshold", 0)
