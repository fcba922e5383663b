"""What costs are measured by: whole campaigns in processes of their own, and exact sums."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.campaign.batches import BATCH_COUNTS
from aggregator_server.campaign.runner import Campaign
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.options import CampaignOptions
from benchmarks.costs.scale import (
    MIDDLE,
    PixelTeachers,
    Quiet,
    Size,
    class_names,
    measure,
    memory_check,
    open_public,
    write_public,
)  # fmt: skip
from pate.campaign.settings import spec_of
from pate.codes import NEAREST, code_of
from pate.noise.exact import SystemNoise
from simulation.party_processes import PartyProcesses

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

QUERIES, CLASSES, ASKED = 20_000, 100, 128
#: What all summed votes take as a matrix of int64.
WHOLE = 8 * QUERIES * CLASSES
PARTIES = 2


def test_twenty_thousand_queries_never_lie_in_memory_together(tmp_path: Path) -> None:
    """Parties are in another process, so only the server's memory is traced."""
    write_public(tmp_path / "public.npy", QUERIES, CLASSES)
    inputs = open_public(tmp_path / "public.npy")
    asked = CampaignOptions(
        aggregator="gnmax", parties=str(PARTIES), min_parties=PARTIES,
        classes=",".join(class_names(CLASSES)), epsilon=1e5, max_queries=ASKED, sigma2="40",
        aggregation="plain",
    )  # fmt: skip
    spec = spec_of(asked, inputs)
    with (
        PartyProcesses(
            "benchmarks.costs.scale", [str(tmp_path), "3", str(CLASSES)], parties=PARTIES,
            processes=1, log=tmp_path / "log",
        ) as link,
        Ledger.create(tmp_path / "ledger.db", spec) as ledger,
    ):  # fmt: skip
        campaign = Campaign(
            ledger, inputs, link, noise=SystemNoise(), screen=Quiet("memory"),
            signing_key=Ed25519PrivateKey.generate(), patience=60.0,
            await_predictions=lambda _: None,
        )  # fmt: skip
        tracemalloc.start()
        try:
            campaign.run()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        state = ledger.state()
        assert len(state.batches) == -(-QUERIES * CLASSES // BATCH_COUNTS)
        assert state.queries_asked == ASKED
        counts = ledger.counts()
        assert counts.nbytes == WHOLE
    assert peak < WHOLE / 2, f"{peak} bytes at the peak"
    teachers = [PixelTeachers(number, 3, CLASSES) for number in range(PARTIES)]
    some, code = range(0, QUERIES, 500), code_of(NEAREST)
    expected = sum(each.vote(inputs, some, class_names(CLASSES), code) for each in teachers)
    np.testing.assert_array_equal(counts[::500], expected)
    verify(tmp_path / "ledger.db")


def test_a_campaign_is_measured_in_a_process_of_its_own() -> None:
    size = Size(parties=3, queries=200, classes=5, batch=500)
    case = measure(size, 1)
    assert case["batches"] == 2
    assert case["packed_vote_bytes"] == size.packed_bytes == 3 * 200 * 5
    for figure in ("server_cpu_seconds", "loopback_seconds", "server_memory_before"):
        assert float(str(case[figure])) > 0
    assert int(str(case["server_memory_peak"])) >= int(str(case["server_memory_before"]))
    assert int(str(case["bytes_up"])) > size.packed_bytes
    assert int(str(case["bytes_down"])) > 3 * 200 * 64, "the public set, once to each"


@pytest.mark.parametrize(
    ("queries", "each", "holds"),
    [(10_000, 1_000, None), (100_000, 200, True), (100_000, 300, False)],
)
def test_memory_a_query_is_checked_where_it_shows(
    queries: int, each: int, holds: bool | None
) -> None:
    """With few queries fixed costs are most of the difference: nothing is said of them."""
    sizes = {n: Size(MIDDLE.parties, n, MIDDLE.classes) for n in (queries // 10, queries)}
    cases = {size: {"server_memory_peak": 1e8 + each * n} for n, size in sizes.items()}
    found = memory_check(tuple(sizes), cases)
    assert found["holds"] is holds
