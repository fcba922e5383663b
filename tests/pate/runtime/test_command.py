"""The end of a command."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pate.start import INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.e2e
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
