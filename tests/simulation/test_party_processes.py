"""Simulated parties in separate processes: messages arrive, and failures are reported."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from pate.errors import ProcessError
from simulation.party_processes import PartyProcesses, memory_peak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aggregator_server.exchange.wire import Arrival

DEADLINE_S = 120.0


def start(folder: Path, parties: int, processes: int) -> PartyProcesses:
    return PartyProcesses(
        "tests.support.echo_parties", ["end"], parties=parties, processes=processes,
        log=folder / "log",
    )  # fmt: skip


@pytest.fixture
def five(tmp_path: Path) -> Iterator[PartyProcesses]:
    with start(tmp_path, 5, 2) as made:
        yield made


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def all_of(link: PartyProcesses, count: int) -> list[Arrival]:
    found: list[Arrival] = []

    def look() -> bool:
        found.extend(link.receive())
        return len(found) >= count

    until(look)
    return found


def test_messages_and_answers_find_each_other_and_large_ones_wait_for_room(
    five: PartyProcesses,
) -> None:
    """Both sides send more than pipes and queues can buffer, without a deadlock."""
    assert five.nodes() == frozenset(range(5))
    assert len(five.pids) == 2
    body = bytes(1 << 20)
    sent = {five.send(at % 5, body): at % 5 for at in range(60)}
    found = all_of(five, 60)
    assert {each.handle: each.node for each in found} == sent
    assert all(each.body == body + b" %d end" % each.node for each in found)
    assert five.receive() == []


def test_a_party_that_fails_ends_it_by_name_and_its_reason_is_in_the_log(tmp_path: Path) -> None:
    with start(tmp_path, 2, 1) as link:
        link.send(1, b"fail")
        with pytest.raises(ProcessError, match=r"party 1 failed \(raised ValueError\)") as caught:
            all_of(link, 1)
        assert "secret" not in str(caught.value)
    assert "secret 42" in (tmp_path / "log").read_text()


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    with start(tmp_path, 1, 3) as link:
        assert len(link.pids) == 1, "no more processes than parties"
        link.send(0, b"die")

        with pytest.raises(ProcessError, match="ended with exit code 3"):
            until(lambda: not link.nodes())


def test_the_peak_of_memory_is_that_of_this_process() -> None:
    before = memory_peak()
    held = b"x" * (64 << 20)
    assert memory_peak() >= max(before, len(held))
