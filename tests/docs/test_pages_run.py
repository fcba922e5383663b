"""The commands of the quickstart, of the page of encoders and of the plugin page, run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pate.encoders.encoder import read_description
from pate.runtime.child import free_port
from tests.support.encoders import drawn_jpegs as drawn
from tests.support.encoders import tiny_encoders as tiny
from tests.support.pages import blocks

#: All of a page on a loaded machine.
DEADLINE_S = 600


def typed(script: str, folder: Path) -> str:
    """Type a page's commands in a folder, and return all that was printed.

    The page has the ports that everybody has; here others may be taken, by tests that run at the same time.
    """
    script = script.replace("9092", parties := str(free_port()))
    script = script.replace("9093", student := str(free_port()))
    script = script.replace(
        "pate-server --public",
        f"pate-server {'' if 'envelope' in script else f'--port {parties} '}"
        f"--student-port {student} --page-port 0 --public",
    )
    scripts = str(Path(sys.executable).parent)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PATE_")}
    environment |= {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ["bash", "-c", f"set -eu\n{script}"], cwd=folder, env=environment, text=True,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as reader:  # fmt: skip
        try:
            said, _ = reader.communicate(timeout=DEADLINE_S)
        finally:
            if reader.poll() is None:
                os.killpg(reader.pid, signal.SIGKILL)
    assert reader.returncode == 0, said
    return said


@pytest.mark.e2e
def test_the_code_of_the_page_of_plugins_runs() -> None:
    (code,) = blocks("plugins.md", "python")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.e2e
def test_the_quickstart_does_what_it_says(tmp_path: Path) -> None:
    script = "".join(blocks("quickstart.md", "bash"))
    assert script.count("pate-party start") == 3
    said = typed(script.replace("pate-student train", "pate-student train --steps 60"), tmp_path)
    assert (tmp_path / "trial" / "student" / "privacy.json").is_file()
    assert "of 297 right" in said
    assert "finished" in said


@pytest.mark.e2e
def test_a_stranger_gets_a_student_of_photographs_by_the_page_of_encoders(tmp_path: Path) -> None:
    encoder = tiny.image_folder(tmp_path / "encoder", pixels=16, width=32)
    hospitals = [tmp_path / f"hospital_{name}" for name in "abc"]
    for at, folder in enumerate(hospitals):
        drawn.write(folder, 60, seed=at)
    drawn.write(tmp_path / "public", 60, seed=3, flat=True)
    drawn.write(tmp_path / "test", 30, seed=4)
    assert len(drawn.sizes(hospitals)) > 300
    script = "".join(blocks("encoders.md", "bash"))
    assert script.count("pate-party start") == 3
    # The server, one hospital, the student and its evaluation.
    assert script.count("--encoder encoder") == 4
    said = typed(script, tmp_path)
    right = re.search(r"([\d.]+)% of 90 right", said)
    assert right is not None, said
    assert float(right[1]) > 60  # by chance a third of 90: 54 or more in less than one of a million
    statement = json.loads((tmp_path / "student" / "privacy.json").read_text())
    digest = read_description(encoder).digest
    assert f"tiny, SHA-256 {digest}" in statement["encoder"]
    assert statement["epsilon"] == 2.0
    # Who has a folder is sent nothing; the two others have got it, and keep it.
    assert said.count("received the campaign's encoder") == 2
    assert not (tmp_path / "a" / "encoders").exists()
    for name in "bc":
        assert read_description(tmp_path / name / "encoders" / digest).digest == digest


@pytest.mark.e2e
def test_the_page_of_envelopes_does_what_it_says(tmp_path: Path) -> None:
    said = typed("".join(blocks("envelopes.md", "bash")), tmp_path)
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
