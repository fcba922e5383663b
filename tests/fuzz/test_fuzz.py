"""Malformed messages for every parser of network input; `python -m tests.fuzz` feeds many more."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pate.errors import ProtocolError
from tests.fuzz import guard
from tests.fuzz.campaign import Target, run
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
