"""Broken files of every kind that is read: each is refused or read, in bounded memory and processor time.

`python -m tests.fuzz --files 2000` feeds many more.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.campaign import Target, run_apart
from tests.fuzz.files import KINDS


@pytest.mark.parametrize(
    ("what", "files"),
    [("dicom", 1_000), ("parquet", 500), ("pictures", 500), ("onnx", 2_000), ("texts", 750)],
)
def test_broken_files_do_no_harm(what: str, files: int, tmp_path: Path) -> None:
    found = run_apart(KINDS[what], tmp_path, files, seed=1)
    assert {name: tally.faults for name, tally in found.items() if tally.faults} == {}
    # Half of the files are read as a party's own, from which a broken record is left out; nearly all others
    # are refused. No change at all would be refused nowhere, or read nowhere.
    taken = sum(tally.outcomes["taken"] for tally in found.values())
    assert 0.01 < taken / sum(sum(tally.outcomes.values()) for tally in found.values()) < 0.9


def crashing(_: Path) -> tuple[Target, ...]:
    """One reader that a C library ends, at every third file."""
    count = 0

    def make(_: random.Random) -> Callable[[], object]:
        nonlocal count
        count += 1
        return (lambda: os.kill(os.getpid(), signal.SIGSEGV)) if count % 3 == 0 else (lambda: None)

    return (Target("made up", "party", make),)


def test_a_crash_is_seen_and_the_rest_is_fed(tmp_path: Path) -> None:
    (tally,) = run_apart(crashing, tmp_path, 8, seed=0).values()
    # Each child begins with a file that counts for nothing, and ends with its third.
    assert tally.faults == [f"message {at}: the process ended with SIGSEGV" for at in (1, 3, 5, 7)]
    assert dict(tally.outcomes) == {"taken": 4}
