"""The README: its length, its commands, and the output of its code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import DOCS, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = Path(sys.executable).parent

#: So short that it is read, as a limit that somebody has to raise by hand.
MOST_WORDS = 700


def test_it_is_short() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert "make demo" in README
    assert "make test" in README
    assert "\ndemo: $(VENV)/.installed\n\t$(BIN)/pate demo\n" in makefile
    assert (
        "\ntest: $(VENV)/.tools\n\t$(BIN)/python -m pytest --numprocesses $(PROCESSES) " in makefile
    )


def test_its_pictures_exist_in_light_and_dark() -> None:
    shown = re.findall(r'src(?:set)?="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', README)
    pictures = [ROOT / (tag or link) for tag, link in shown]
    assert len(pictures) >= 2
    assert all(picture.is_file() for picture in pictures)
    assert "prefers-color-scheme: dark" in (DOCS / "overview.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_installs_from_its_folder(tmp_path: Path) -> None:
    assert "pip install ." in README
    # A copy, since building writes next to the sources; what it depends on is installed here already.
    left = shutil.ignore_patterns(
        ".*", "*.egg-info", "build", "site", "demo-output", "tests", "__pycache__"
    )
    shutil.copytree(ROOT, tmp_path / "source", ignore=left)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
         "--no-build-isolation", "--target", tmp_path / "there", "."],
        cwd=tmp_path / "source", check=True,
    )  # fmt: skip
    code = "import pate; print(pate.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "there")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.startswith(str(tmp_path / "there"))
    assert (
        tmp_path / "there" / "aggregator_server" / "monitoring" / "static" / "page.html"
    ).is_file()


@pytest.mark.slow
def test_the_demo_runs_both_campaigns(tmp_path: Path) -> None:
    ran = subprocess.run(
        [PROGRAMS / "pate", "demo", "--json", "--out", tmp_path / "out"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    json.loads(ran.stdout)
    for student in ("student", "student-neighbour"):
        promised = json.loads((tmp_path / "out" / student / "privacy.json").read_text())
        assert promised
    assert (tmp_path / "out" / "campaign.png").stat().st_size > 10_000
