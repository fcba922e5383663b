"""Invalid paths, given to every program: one line and an exit code, never a traceback."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import aggregator_server.cli.main
import party.cli.main
import simulation.cli
import student.cli

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import NoReturn

#: One name in the path has more bytes than a file system takes; or all of it has.
ODD = {"name": "a" * 300, "umlauts": "\u00e4" * 200, "path": "/".join(["b" * 200] * 25)}
#: Stands for the odd path in a command.
HERE = "HERE"
COMMANDS: dict[Callable[[], NoReturn], list[str]] = {
    aggregator_server.cli.main.main: [
        "--public PUBLIC --home HERE",
        "--public HERE",
        "--public PUBLIC --campaign HERE",
        "--config HERE",
        "resume --home HERE",
        "resume --campaign HERE",
        "status --home HERE",
        "status --campaign HERE",
        "init --home HERE",
        "enroll hospital_a --home HERE",
        "admit HERE",
        "parties --home HERE",
        "rotate --home HERE",
        "export --home HERE --out OUT",
        "certificate --home HERE",
        "ledger show --home HERE",
        "ledger verify --home HERE",
        "ledger backup --home HERE --out OUT",
        "ledger backup --out HERE",
        "ledger restore HERE",
        "check --public HERE --home OUT",
    ],
    party.cli.main.main: [
        "start --data HERE",
        "start --data DATA --home HERE",
        "start --data DATA --home OUT --policy HERE",
        "enroll HERE",
        "enroll HERE --home OUT",
        "ledger --home HERE",
        "ledger --home OUT --policy HERE",
        "verify HERE --home OUT",
        "verify PUBLIC --home HERE",
        "backup --home HERE --out OUT",
        "restore HERE --entries-lost",
        "forget --entries-lost --home HERE",
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
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


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
