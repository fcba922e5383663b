"""The end of a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pate.start import INTERRUPTED

#: A signal arrives while text is executed, as in the making of a dataclass during an import.
_INTERRUPTED = """
import os, signal, typer
from pate.runtime.command import run
app = typer.Typer()
@app.command()
def command():
    exec("import time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)")
run(app, "pate-test")
"""


def test_a_command_that_is_stopped_within_an_import_has_its_exit_code(tmp_path: Path) -> None:
    """Run as ``python -m``, as all commands are in services: without care CPython ends it by SIGINT."""
    (tmp_path / "program.py").write_text(_INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "pate-test: stopped\n")


#: A library swallows the interrupt, and goes on; the clean-up after the next one takes its time.
_SWALLOWED = """
import os, signal, time, typer
from pate.runtime.command import run
app = typer.Typer()
@app.command()
def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
    try:
        time.sleep(60)
    finally:
        time.sleep(3)
        print("cleaned up")
run(app, "pate-test")
"""


def test_an_interrupt_that_is_swallowed_comes_again_and_leaves_the_clean_up_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(_SWALLOWED)
    done = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-m", "program"],
        cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (
        INTERRUPTED,
        "cleaned up\n",
        "pate-test: stopped\n",
    )


#: The screen is slow: stops come while the last lines are written.
_FLUSHED = """
import os, signal, sys, typer
from pate.runtime.command import run
app = typer.Typer()
class Screen:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def flush(self):
        os.kill(os.getpid(), signal.SIGTERM)
        self.stream.flush()
@app.command()
def command():
    print("done")
    sys.stdout = Screen(sys.stdout)
    if {stopped}:
        os.kill(os.getpid(), signal.SIGTERM)
run(app, "pate-test")
"""


@pytest.mark.parametrize(("stopped", "said"), [(False, ""), (True, "pate-test: stopped\n")])
def test_a_stop_while_the_last_lines_are_written_is_no_traceback(
    tmp_path: Path, stopped: bool, said: str
) -> None:
    (tmp_path / "program.py").write_text(_FLUSHED.format(stopped=stopped))
    done = subprocess.run(
        [sys.executable, "-m", "program"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "done\n", said)


def test_a_system_without_what_programs_need_is_named_first() -> None:
    probe = "import os; os.name = 'nt'; from pate.start import start; start('pate-party', 'absent')"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=120, check=False
    )
    said = "pate-party: this system is not supported: on Windows use WSL or a container\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
