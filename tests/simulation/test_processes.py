"""Simulated parties in separate processes: messages arrive, and failures are reported."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from aggregator_server.campaign.sums import BATCH_COUNTS
from aggregator_server.exchange.carrier import Arrival
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import CampaignState
from aggregator_server.ledger.verify import verify
from aggregator_server.options import CampaignOptions
from pate.campaign.settings import spec_of
from pate.data.values import Dataset, Images
from pate.errors import ProcessError
from pate.runtime.screen import Screen
from pate.votes import Counts
from simulation.parties import Opener, open_ensemble, party_home
from simulation.processes import PartyProcesses, memory_peak
from simulation.simulate import run_campaign
from tests.support.echo_parties import open_echo

DEADLINE_S = 120.0


def start(folder: Path, parties: int, processes: int) -> PartyProcesses:
    return PartyProcesses(
        lambda _: open_echo, parties=parties, processes=processes, log=folder / "log"
    )


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
    assert len(five._lanes) == 2
    body = bytes(1 << 20)
    sent = {(at % 5, b"%d" % at) for at in range(60)}
    for at in range(60):
        five.send(at % 5, b"%d" % at, body)
    found = all_of(five, 60)
    assert {(each.node, each.digest) for each in found} == sent
    assert all(each.body == body + b" %d end" % each.node for each in found)
    assert five.receive() == []


def test_a_party_that_fails_ends_it_by_name_and_its_reason_is_in_the_log(tmp_path: Path) -> None:
    with start(tmp_path, 2, 1) as link:
        link.send(1, b"digest", b"fail")
        with pytest.raises(ProcessError, match=r"party 1 failed \(raised ValueError\)") as caught:
            all_of(link, 1)
        assert "secret" not in str(caught.value)
    assert "secret 42" in (tmp_path / "log").read_text()


def test_a_process_that_dies_is_noticed(tmp_path: Path) -> None:
    with start(tmp_path, 1, 3) as link:
        assert len(link._lanes) == 1, "no more processes than parties"
        link.send(0, b"digest", b"die")

        with pytest.raises(ProcessError, match="ended with exit code 3"):
            until(lambda: not link.nodes())


def test_the_peak_of_memory_is_that_of_this_process() -> None:
    before = memory_peak()
    held = b"x" * (64 << 20)
    assert memory_peak() >= max(before, len(held))


CLASSES = tuple(f"class {at:03d}" for at in range(100))
ASKED = 128


def campaign(place: Path, queries: int) -> tuple[CampaignState, Counts, int]:
    """Run a campaign of two parties of three teachers, in one other process; return its end, sums, and the
    server's memory at the peak in bytes."""
    inputs = random_images(queries, 0)
    options = CampaignOptions(
        aggregator="gnmax", parties="2", min_parties=2, classes=",".join(CLASSES), epsilon=1e5,
        max_queries=ASKED, sigma2="40", aggregation="plain",
    )  # fmt: skip
    with (
        PartyProcesses(
            lambda _: Opener(place, {at: records_of(at) for at in range(2)}, 3, inputs),
            parties=2,
            processes=1,
            log=place / "log",
        ) as link,
        Ledger.create(place / "ledger.db", spec_of(options, inputs)) as ledger,
    ):
        tracemalloc.start()
        run_campaign(ledger, inputs, link, screen=Screen("memory"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return ledger.state(), ledger.counts(), peak


def records_of(number: int) -> Dataset:
    return Dataset(random_images(300, number + 1), np.arange(300) % 100, CLASSES)


def random_images(count: int, seed: int) -> Images:
    return Images(np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 1), dtype=np.uint8))


@pytest.mark.slow
def test_the_votes_of_twenty_thousand_queries_never_lie_in_memory_together(tmp_path: Path) -> None:
    """Parties are in another process, so only the server's memory is traced."""
    queries = 20_000
    campaign(tmp_path / "imports", ASKED)  # what is imported late is no memory of a campaign
    state, counts, peak = campaign(tmp_path / "traced", queries)
    assert len(state.batches) == -(-queries * len(CLASSES) // BATCH_COUNTS)
    assert state.queries_asked == ASKED
    whole = 8 * queries * len(CLASSES)  # all summed votes as int64
    assert counts.nbytes == whole
    assert peak < whole / 2, f"{peak} bytes at the peak"
    rows = range(0, queries, 500)
    homes = [party_home(tmp_path / "traced", number) for number in range(2)]
    teachers = [open_ensemble(home, records_of(at), 3) for at, home in enumerate(homes)]
    expected = sum(each.vote(random_images(queries, 0), rows, CLASSES) for each in teachers)
    np.testing.assert_array_equal(counts[::500], expected)
    verify(tmp_path / "traced" / "ledger.db")
