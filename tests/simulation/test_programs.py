"""Programs that are watched: what is known of one that fails, and that none is left behind."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pate.errors import PateError, ProcessError
from pate.runtime.screen import Screen
from simulation.commands import Commands, Sites, lenient
from simulation.programs import Program, Programs, is_alive, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


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


def test_an_enrolment_that_fails_is_an_error(tmp_path: Path) -> None:
    with Commands(tmp_path / "campaign", Sites(tmp_path, ("north", "NO NAME"))) as commands:
        with pytest.raises(PateError, match="NO NAME"):
            commands.enrol(lenient(2, 2))
        assert not commands.is_enrolled
