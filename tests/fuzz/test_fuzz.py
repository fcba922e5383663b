"""Malformed messages for every parser of network input; `python -m tests.fuzz` feeds many more."""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pate.errors import ProtocolError
from tests.fuzz import guard
from tests.fuzz.campaign import Target, run, run_apart
from tests.fuzz.files import KINDS
from tests.fuzz.targets import targets
from tests.support.needs import others_slow


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("number", others_slow([600, 2_500], lambda number: number < 1_000))
def test_broken_messages_do_no_harm(number: int, tmp_path: Path) -> None:
    # Another seed with each run would find more, but could not be repeated.
    found = run(targets(tmp_path), number, seed=1)
    assert {name: tally.faults for name, tally in found.items() if tally.faults} == {}
    # It is the parsers that are tried: nearly all must be refused, and not all at the first check.
    refused = [sum(tally.outcomes.values()) - tally.outcomes["taken"] for tally in found.values()]
    assert sum(refused) > 0.6 * number


def _made(feed: Callable[[], object]) -> tuple[Target]:
    def make(_: random.Random) -> Callable[[], object]:
        return feed

    return (Target("made up", "party", make),)


def _work() -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("feed", "fault"),
    [
        (lambda: int("one"), "ValueError"),
        (lambda: bytearray(2 * guard.ROOM_BYTES), "more than 256 MiB"),
        (_work, "took longer than"),
    ],
)
def test_what_does_harm_is_seen(
    feed: Callable[[], object], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "LIMIT_S", 0.2)
    (tally,) = run(_made(feed), 1, seed=0).values()
    (seen,) = tally.faults
    assert fault in seen


@pytest.mark.slow
def test_waiting_for_what_never_comes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "LIMIT_WAIT_S", 0.2)
    (tally,) = run(_made(threading.Event().wait), 1, seed=0).values()
    (seen,) = tally.faults
    assert "waited longer than" in seen


def test_an_error_of_ours_is_no_fault() -> None:
    def refuse() -> None:
        raise ProtocolError("no")

    (tally,) = run(_made(refuse), 3, seed=0).values()
    assert dict(tally.outcomes) == {"ProtocolError": 3}


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
