"""``python -m benchmarks.scale.server FILE``: one campaign; prints the server's costs as JSON.

This process is only the server: ledger, campaign, exchange. The parties have their own processes, so memory
and CPU are the server's. Flower's transport is not included: it runs in a SuperLink process.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator_server.campaign.batches import BATCH_COUNTS
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE
from benchmarks.scale.inputs import class_names, open_public, write_public
from pate.campaign.settings import spec_of
from pate.runtime.screen import Screen
from protos.terms import exact_bits
from simulation.campaign import run_campaign
from simulation.party_processes import PartyProcesses, default_processes
from simulation.simulate import quorum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator_server.exchange.wire import Arrival, Wire
    from pate.campaign.choices import Aggregation


@dataclass(frozen=True)
class Size:
    """One campaign.

    Attributes:
        parties: n, of one teacher each.
        queries: rows of the public set; each is asked and gets its label.
        classes: columns of a vote matrix.
        aggregation: masked or plain.
        batch: counts of one batch.
    """

    parties: int
    queries: int
    classes: int
    aggregation: Aggregation = "masked"
    batch: int = BATCH_COUNTS

    @property
    def packed_bytes(self) -> int:
        """Bytes of all packed votes, in the width of transport."""
        bits = exact_bits(self.parties) if self.aggregation == "masked" else 8
        return self.parties * self.queries * self.classes * bits // 8


class CountedWire:
    """Forwards messages and counts their bytes."""

    def __init__(self, link: Wire) -> None:
        self._link = link
        self.up = self.down = self.messages = 0

    def nodes(self) -> frozenset[int]:
        """See :class:`~aggregator_server.exchange.wire.Wire`."""
        return self._link.nodes()

    def send(self, node: int, body: bytes) -> str:
        """See :class:`~aggregator_server.exchange.wire.Wire`."""
        self.down += len(body)
        self.messages += 1
        return self._link.send(node, body)

    def receive(self) -> list[Arrival]:
        """See :class:`~aggregator_server.exchange.wire.Wire`."""
        arrivals = self._link.receive()
        self.up += sum(len(each.body or b"") for each in arrivals)
        return arrivals

    def close(self) -> None:
        """See :class:`~aggregator_server.exchange.wire.Wire`."""
        self._link.close()


class Quiet(Screen):
    """A screen that writes only to the log, without progress bars."""

    @contextmanager
    def bar(self, name: str, **_: object) -> Iterator[object]:  # type: ignore[override]
        """Show nothing."""
        del name
        yield lambda *_: None


def run(size: Size, place: Path, processes: int) -> dict[str, object]:
    """Run a campaign in the empty folder ``place``, and return its costs.

    Raises:
        AssertionError: if a query has no label.
    """
    write_public(place / "public.npy", size.queries, size.classes)
    inputs = open_public(place / "public.npy")
    least, colluders = quorum(size.parties) if size.aggregation == "masked" else (None, None)
    asked = CampaignOptions(
        campaign="scale", aggregator="gnmax", parties=str(size.parties), min_parties=least,
        classes=",".join(class_names(size.classes)), epsilon=9e5, sigma2="40",
        aggregation=size.aggregation, colluders=colluders,
    )  # fmt: skip
    spec = spec_of(asked, inputs)
    arguments = [str(place), "1", str(size.classes)]
    before = memory()
    wall, processor = time.monotonic(), time.process_time()
    with (
        PartyProcesses(
            "benchmarks.scale.parties", arguments, parties=size.parties, processes=processes,
            log=place / "parties.log",
        ) as parties,
        Ledger.create(place / LEDGER_FILE, spec) as ledger,
    ):  # fmt: skip
        link = CountedWire(parties)
        run_campaign(ledger, inputs, link, screen=Quiet("scale"), batch=size.batch)
        state = ledger.state()
        assert len(state.labels) == size.queries, "not every query has its label"
        batches = len(state.batches)
    return {
        **asdict(size),
        "min_parties": spec.sums.min_parties,
        "colluders": spec.sums.colluders,
        "batches": batches,
        "seconds": round(time.monotonic() - wall, 2),
        "server_cpu_seconds": round(time.process_time() - processor, 2),
        "server_memory_before": before["VmRSS"],
        "server_memory_peak": memory()["VmHWM"],
        "bytes_up": link.up,
        "bytes_down": link.down,
        "messages": link.messages,
        "packed_vote_bytes": size.packed_bytes,
        "ledger_bytes": (place / LEDGER_FILE).stat().st_size,
    }


def memory() -> dict[str, int]:
    """Return the kernel's figures of this process's memory, in bytes; the peak is ``VmHWM``."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    pairs = (line.partition(":") for line in lines if line.startswith(("VmHWM", "VmRSS")))
    return {name: int(value.split()[0]) * 1024 for name, _, value in pairs}


def main() -> None:
    """Run the campaign of a JSON file, in its folder."""
    path = Path(sys.argv[1])
    asked = json.loads(path.read_text(encoding="utf-8"))
    processes = asked.pop("processes") or default_processes(asked["parties"])
    print(json.dumps(run(Size(**asked), path.parent, processes)))


if __name__ == "__main__":
    main()
