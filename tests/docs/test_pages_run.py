"""The commands of the quickstart and of the plugin page, run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pate.runtime.child import free_port
from tests.support.pages import blocks

#: All of a page on a loaded machine.
DEADLINE_S = 600


@pytest.mark.e2e
def test_the_code_of_the_page_of_plugins_runs() -> None:
    (code,) = blocks("plugins.md", "python")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.e2e
def test_the_quickstart_does_what_it_says(tmp_path: Path) -> None:
    script = "set -eu\n" + "".join(blocks("quickstart.md", "bash"))
    assert script.count("pate-party start") == 3
    # The page has the ports that everybody has; here others may be taken, by tests that run at the same time.
    script = script.replace("9092", parties := str(free_port()))
    script = script.replace("9093", student := str(free_port()))
    script = script.replace("pate-student train", "pate-student train --steps 60")
    script = script.replace(
        "pate-server --public",
        f"pate-server --port {parties} --student-port {student} --page-port 0 --public",
    )
    said = typed(script, tmp_path)
    assert (tmp_path / "trial" / "student" / "privacy.json").is_file()
    assert "of 297 right" in said
    assert "finished" in said


@pytest.mark.e2e
def test_the_page_of_envelopes_does_what_it_says(tmp_path: Path) -> None:
    script = "set -eu\n" + "".join(blocks("envelopes.md", "bash"))
    script = script.replace(
        "pate-server --public",
        f"pate-server --student-port {free_port()} --page-port 0 --public",
    )
    said = typed(script, tmp_path)
    # Every file of the page, and no other: three for each party, of which two answers went back.
    post = tmp_path / "trial" / "post"
    assert len(list((post / "out").iterdir())) == 3
    assert len(list((post / "in").iterdir())) == 6
    for line in (
        "asks, in this order:",
        "what leaves: your name, classes, unit and number of teachers",
        "votes on 500 queries from hospital_a, hospital_b, hospital_c",
        "envelope 3 answered",
    ):
        assert line in said, line


def typed(script: str, place: Path) -> str:
    """Run a page's commands in a folder, and return what they printed."""
    scripts = str(Path(sys.executable).parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PATE_")}
    environment |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ["bash", "-c", script], cwd=place, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as reader:  # fmt: skip
        try:
            said, _ = reader.communicate(timeout=DEADLINE_S)
        finally:
            if reader.poll() is None:
                os.killpg(reader.pid, signal.SIGKILL)
    assert reader.returncode == 0, said
    return said
