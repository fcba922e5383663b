"""Odd names, given to every program: one line and an exit code, never a traceback.

Names that a terminal would obey, or that end a line, are shown as their escapes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

import aggregator_server.cli.main
import party.cli.main
import simulation.cli
import student.cli
from pate.runtime.child import python, python_environment
from tests.support.world.commands import signals_restored

#: One name in the path has more bytes than a file system takes; or all of it has.
ODD = {"name": "a" * 300, "umlauts": "\u00e4" * 200, "path": "/".join(["b" * 200] * 25)}
#: Sets a terminal's title, erases a line, forges one, conceals and reverses what follows.
HOSTILE = "a\x1b]0;x\x07\x1b[2K\r\nforged\x1b[8m\x9b7m\u202e\u2028"
#: Stands for the odd path in a command.
HERE = "HERE"
COMMANDS: dict[Callable[[], NoReturn], list[str]] = {
    aggregator_server.cli.main.main: [
        "--public PUBLIC --home HERE", "--public HERE", "--public PUBLIC --campaign HERE",
        "--config HERE", "resume --home HERE", "resume --campaign HERE", "status --home HERE",
        "status --campaign HERE", "init --home HERE", "enroll hospital_a --home HERE",
        "admit HERE", "parties --home HERE", "rotate --home HERE", "export --home HERE --out OUT",
        "ledger show --home HERE", "ledger verify --home HERE",
        "ledger backup --home HERE --out OUT", "ledger backup --out HERE", "ledger restore HERE",
        "check --public HERE --home OUT",
    ],
    party.cli.main.main: [
        "start --data HERE", "start --data DATA --home HERE",
        "start --data DATA --home OUT --policy HERE", "enroll HERE", "enroll HERE --home OUT",
        "ledger --home HERE", "ledger --home OUT --policy HERE", "verify HERE --home OUT",
        "verify PUBLIC --home HERE", "backup --home HERE --out OUT",
        "restore HERE --entries-lost", "forget --entries-lost --home HERE",
    ],
    student.cli.main: [
        "train --public HERE --out OUT --labels DATA",
        "train --public PUBLIC --out HERE --labels DATA",
        "train --public PUBLIC --out OUT --labels HERE",
        "train --public PUBLIC --out OUT --server 127.0.0.1:1 --ca HERE",
        "evaluate --model HERE --data DATA",
        "predict --model HERE --data DATA --out OUT",
        "export --model HERE --out OUT",
    ],
    simulation.cli.main: ["simulate --data HERE", "account --votes HERE"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    with signals_restored():
        yield


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("main", "command"),
    [(main, command) for main, commands in COMMANDS.items() for command in commands],
)
def test_a_path_that_cannot_be_is_one_line(
    main: Callable[[], NoReturn],
    command: str,
    odd: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8)).astype(np.uint8)
    np.savez(tmp_path / "public.npz", images=images)
    np.savez(tmp_path / "data.npz", images=images, labels=np.array(["a", "b"] * 6))
    words = {
        HERE: tmp_path / ODD[odd],
        "OUT": tmp_path / "out",
        "PUBLIC": tmp_path / "public.npz",
        "DATA": tmp_path / "data.npz",
    }
    if "--campaign" in command:
        words[HERE] = ODD[odd]  # type: ignore[assignment]
    typed = [str(words.get(word, word)) for word in command.split()]
    monkeypatch.setattr(sys, "argv", ["command", *typed])
    with pytest.raises(SystemExit) as ended:
        main()  # an unexpected error would come out as itself
    shown = capsys.readouterr().err
    # The option is wrong, and not the disk; a name that is no path is found out by the disk.
    if "--campaign" in command:
        assert ended.value.code in {2, 12, 43}
        assert shown.count("\n") == 1
    else:
        assert ended.value.code == 2
        assert "File name too long" in " ".join(shown.replace("│", " ").split())
        assert len(shown) < 2000
    assert not (tmp_path / "out").exists()


def test_a_path_in_a_file_of_options_may_not_hold_a_zero_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server.toml").write_text('public = "a\\u0000b"\n')
    typed = ["pate-server", "--config", str(tmp_path / "server.toml")]
    monkeypatch.setattr(sys, "argv", typed)
    with pytest.raises(SystemExit) as ended:
        aggregator_server.cli.main.main()
    assert ended.value.code == 2
    assert "null" in capsys.readouterr().err


def require_printable(shown: str) -> None:
    """Check what a program wrote: printable characters and line ends, and no line that a name forged."""
    assert not {each for each in shown if each != "\n" and not each.isprintable()}, ascii(shown)
    assert not any(line.startswith("forged") for line in shown.split("\n")), ascii(shown)


@pytest.mark.parametrize(
    ("main", "command"),
    [
        (main, command)
        for main, commands in COMMANDS.items()
        for command in commands
        if "--ca" not in command  # it would wait for a server
    ],
)
def test_a_name_is_shown_with_printable_characters(
    main: Callable[[], NoReturn],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    np.savez(tmp_path / "data.npz", images=np.zeros((12, 8, 8), np.uint8), labels=["a", "b"] * 6)
    np.savez(tmp_path / "public.npz", images=np.zeros((12, 8, 8), np.uint8))
    words = {
        HERE: str(tmp_path / HOSTILE),
        "OUT": str(tmp_path / "out"),
        "PUBLIC": str(tmp_path / "public.npz"),
        "DATA": str(tmp_path / "data.npz"),
    }
    # Of no use as a folder, images or options: every program refuses it.
    (tmp_path / HOSTILE).write_text("?")
    monkeypatch.setattr(
        sys, "argv", ["command", *[words.get(each, each) for each in command.split()]]
    )
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr()
    require_printable(shown.out + shown.err)


def test_programs_show_columns_classes_and_files_with_printable_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The names are in the data, in the folder and among the files of a carrier."""
    folder = tmp_path / HOSTILE
    for each in ("inbox", "outbox"):
        (folder / each).mkdir(parents=True)
    (folder / "inbox" / f"{HOSTILE}.pate").write_bytes(b"no envelope")
    column, classes = f'"{HOSTILE}"', (f'"b{HOSTILE}"', "plain")
    lines = [f"{at % 7},{at % 3},{classes[at % 2]}" for at in range(60)]
    data, public = folder / "data.csv", folder / "public.csv"
    data.write_text("\n".join((f"x,{column},label", *lines)) + "\n")
    public.write_text("\n".join((f"x,{column}", *(f"{at % 7},{at % 3}" for at in range(9)))) + "\n")
    home = ("--home", folder / "home")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATE_LOG", "lines")
    mains: dict[str, Callable[[], NoReturn]] = {
        "pate": simulation.cli.main,
        "pate-party": party.cli.main.main,
        "pate-server": aggregator_server.cli.main.main,
        "pate-student": student.cli.main,
    }
    for typed in (
        ("pate-party", "check", "--data", data, *home),
        ("pate-party", "check", "--data", data, "--label", HOSTILE, *home),
        ("pate-party", "start", "--data", data, "--name", "a", "--server", "127.0.0.1:1", *home),
        ("pate-party", "watch", folder / "inbox", folder / "outbox", "--once", "--name", "a",
         "--data", data, *home),
        ("pate-party", "ledger", *home),
        ("pate-server", "check", "--public", public, "--classes", f"{HOSTILE},b", *home),
        ("pate-server", "--public", public, "--classes", f"{HOSTILE},b", *home),
        ("pate-student", "predict", "--model", folder, "--data", data, "--out", folder / "out"),
        ("pate", "schema", "draft", "--public", public, "--out", folder / "schema.json"),
        ("pate", "envelope", "show", folder / "inbox" / f"{HOSTILE}.pate"),
        ("pate", "simulate", "--data", folder / "none"),
        ("pate", HOSTILE),
        ("pate-party", f"--{HOSTILE}"),
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", list(map(str, typed)))
        with pytest.raises(SystemExit):
            mains[str(typed[0])]()
        shown = capfd.readouterr()
        assert shown.out + shown.err
        require_printable(shown.out + shown.err)


def test_what_the_encoding_of_the_output_has_not_is_an_escape() -> None:
    done = subprocess.run(
        python("simulation", "plan", "--queries", 100, "--teachers", 250, "--epsilon", 2, "--delta", "1e-5"),
        env={**python_environment(), "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "\\xb1" in done.stdout
