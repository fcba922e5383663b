"""``python -m benchmarks.costs.scale [--out DIR]``: the server's resources, and their growth.

Whole campaigns, each with a fresh server process and separate party processes: the server's CPU seconds, peak
memory, bytes each way, and the time to send the size of the packed votes over the loopback interface right
after. Ratios and slopes are of one run. Votes are masked; each party has one made-up teacher without cost;
every query is asked and gets a label. Flower's transport is not included: it runs in a SuperLink process.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from aggregator_server.campaign.batches import BATCH_COUNTS
from aggregator_server.exchange.wire import Arrival, Wire
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.options import CampaignOptions
from aggregator_server.results.report import LEDGER_FILE
from benchmarks.costs import add_out, publish
from pate.campaign.choices import Aggregation
from pate.campaign.settings import spec_of
from pate.codes import Code
from pate.data.values import Images, Inputs
from pate.runtime.child import python, python_environment
from pate.runtime.screen import Screen
from pate.votes import Counts
from protos.terms import exact_bits
from simulation.campaign import run_campaign
from simulation.party import open_voter, party_home
from simulation.party_processes import PartyProcesses, arguments_of, default_processes, serve
from simulation.simulate import quorum

_MODULE: Final = "benchmarks.costs.scale"
#: Inputs of 8 x 8 pixels, one of which is the class, written a few at a time.
_SIDE: Final = 8
_AT_A_TIME: Final = 10_000
#: Share of a teacher's answers with the pixel's class; the others are random.
_RIGHT: Final = 0.9
#: Bytes of peak memory for each query more, at most: its inputs, mapped, and its label in the ledger.
MEMORY_A_QUERY: Final = 256
#: From so many queries on. With fewer, costs that do not grow with them are most of the difference.
MEMORY_FROM: Final = 10_000
_LONGEST_S: Final = 7200.0
_FIGURES: Final = (
    "server_cpu_seconds", "server_memory_peak", "bytes_up", "bytes_down", "seconds",
)  # fmt: skip


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


#: Fixed values of the other axes while one grows.
MIDDLE: Final = Size(parties=10, queries=10_000, classes=10)
#: Queries of the axis of parties: a thousand parties take minutes with any number of queries.
_FEW_QUERIES: Final = 1_000


def write_public(path: Path, queries: int, classes: int) -> None:
    """Write ``queries`` inputs."""
    rng = np.random.default_rng([queries, classes])
    whole = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.uint8, shape=(queries, _SIDE, _SIDE, 1)
    )
    for first in range(0, queries, _AT_A_TIME):
        rows = min(_AT_A_TIME, queries - first)
        some = rng.integers(0, 256, (rows, _SIDE, _SIDE, 1), dtype=np.uint8)
        some[:, 0, 0, 0] = rng.integers(0, classes, rows)
        whole[first : first + rows] = some
    whole.flush()


def open_public(path: Path) -> Images:
    """Return what :func:`write_public` wrote, mapped."""
    return Images(np.load(path, mmap_mode="r"))


def class_names(classes: int) -> tuple[str, ...]:
    """Return names for a number of classes."""
    return tuple(f"class {at:03d}" for at in range(classes))


class PixelTeachers:
    """A party's teachers that read one pixel and err on fixed queries."""

    unit = "record"
    answer = "class"
    schema = f"images {_SIDE}x{_SIDE}x1"

    def __init__(self, number: int, teachers: int, classes: int) -> None:
        self.teachers = teachers
        self.classes = class_names(classes)
        self.fingerprint = number.to_bytes(32, "big")
        self._number = number

    def conform(self, inputs: Inputs) -> Inputs:
        """Return the inputs as they are."""
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], _code: Code
    ) -> Counts:
        """Return (n, m) votes."""
        inputs = public.take(list(rows))
        assert isinstance(inputs, Images)
        flat = np.ascontiguousarray(inputs.pixels.reshape(len(inputs), -1))
        seen, noise = flat[:, 0].astype(np.int64), flat.view("<u8")[:, -1].astype(np.uint64)
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        for teacher in range(self.teachers):
            drawn = _mixed(noise, self._number * self.teachers + teacher)
            right = (drawn >> np.uint64(32)).astype(np.float64) < _RIGHT * 2**32
            other = (drawn % np.uint64(len(classes))).astype(np.int64)
            np.add.at(votes, (np.arange(len(inputs)), np.where(right, seen, other)), 1)
        return votes


def _mixed(seeds: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """Return 64 pseudorandom bits, by seed and number (the finalizer of SplitMix64)."""
    made = seeds + np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        made = (made ^ (made >> np.uint64(shift))) * np.uint64(factor)
    mixed: NDArray[np.uint64] = made ^ (made >> np.uint64(31))
    return mixed


class _Counted:
    """Forwards messages and counts their bytes."""

    def __init__(self, link: Wire) -> None:
        self._link = link
        self.up = self.down = self.messages = 0

    def nodes(self) -> frozenset[int]:
        return self._link.nodes()

    def send(self, node: int, body: bytes) -> str:
        self.down += len(body)
        self.messages += 1
        return self._link.send(node, body)

    def receive(self) -> list[Arrival]:
        arrivals = self._link.receive()
        self.up += sum(len(each.body or b"") for each in arrivals)
        return arrivals

    def close(self) -> None:
        self._link.close()


class Quiet(Screen):
    """A screen that writes only to the log, without progress bars."""

    @contextmanager
    def bar(self, name: str, **_: object) -> Iterator[object]:  # type: ignore[override]
        """Show nothing."""
        del name
        yield lambda *_: None


def serve_campaign(size: Size, place: Path, processes: int) -> dict[str, Any]:
    """Run a campaign in the empty folder ``place`` with this process as the server; return its costs.

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
    before = memory()
    wall, processor = time.monotonic(), time.process_time()
    with (
        PartyProcesses(
            _MODULE, [str(place), "1", str(size.classes)], parties=size.parties,
            processes=processes or default_processes(size.parties), log=place / "parties.log",
        ) as parties,
        Ledger.create(place / LEDGER_FILE, spec) as ledger,
    ):  # fmt: skip
        link = _Counted(parties)
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


def serve_parties() -> None:
    """Answer for the parties of the command line: the process that :func:`serve_campaign` starts."""
    (place, teachers, classes), numbers = arguments_of(sys.argv[1:])
    serve(
        lambda number: (
            open_voter(
                party_home(Path(place), number), PixelTeachers(number, int(teachers), int(classes))
            ).handle
        ),
        numbers,
    )


def memory() -> dict[str, int]:
    """Return the kernel's figures of this process's memory, in bytes; the peak is ``VmHWM``."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    pairs = (line.partition(":") for line in lines if line.startswith(("VmHWM", "VmRSS")))
    return {name: int(value.split()[0]) * 1024 for name, _, value in pairs}


def loopback_seconds(size: int) -> float:
    """Return the least of seven times, in seconds, to send ``size`` bytes over one TCP connection."""

    def send(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(bytes(size))

    def once() -> float:
        with socket.create_server(("127.0.0.1", 0)) as client:
            sender = threading.Thread(target=send, args=(client.getsockname()[1],), daemon=True)
            sender.start()
            taken, _ = client.accept()
            room = bytearray(1 << 20)
            with taken:
                began, left = time.perf_counter(), size
                while left > 0 and (got := taken.recv_into(room)):
                    left -= got
                spent = time.perf_counter() - began
            sender.join()
        return spent

    return min(once() for _ in range(7))


def measure(size: Size, processes: int) -> dict[str, Any]:
    """Return the costs of one campaign, with the physical bound measured right after.

    Raises:
        RuntimeError: if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="pate-scale-") as place:
        text = json.dumps({**asdict(size), "processes": processes})
        ended = subprocess.run(
            python(_MODULE, "--serve", text, place),
            capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            env={**python_environment(), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"{size} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    case: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    case["loopback_seconds"] = round(loopback_seconds(size.packed_bytes), 7)
    return case


def slopes(points: Sequence[tuple[float, float]]) -> list[float]:
    """Return the log-log slope between consecutive points: 1 is linear, 2 quadratic.

    >>> slopes([(1, 5.0), (10, 50.0), (100, 5000.0)])
    [1.0, 2.0]
    """
    return [
        round(math.log(y2 / y1) / math.log(x2 / x1), 2)
        for (x1, y1), (x2, y2) in pairwise(points)
        if y1 > 0 and y2 > 0
    ]


def memory_check(queries: Sequence[int], done: dict[Size, dict[str, Any]]) -> dict[str, Any]:
    """Compare peak memory at the most queries with that at a tenth of them, if both were run."""
    most = Size(MIDDLE.parties, max(queries), MIDDLE.classes)
    tenth = Size(MIDDLE.parties, max(queries) // 10, MIDDLE.classes)
    if most not in done or tenth not in done or tenth.queries < MEMORY_FROM:
        return {"what": f"needs {10 * MEMORY_FROM} queries and a tenth of them", "holds": None}
    grown = done[most]["server_memory_peak"] - done[tenth]["server_memory_peak"]
    each = grown / (most.queries - tenth.queries)
    return {
        "what": f"bytes of the server's memory a query, from {tenth.queries} to {most.queries}",
        "found": round(each, 1),
        "wanted": f"at most {MEMORY_A_QUERY}",
        "holds": each <= MEMORY_A_QUERY,
    }


def run(axes: dict[str, tuple[int, ...]], processes: int) -> dict[str, Any]:
    """Run the campaigns of each axis, each size once, and return their figures and growth."""
    least = min((_FEW_QUERIES, *axes["queries"]))
    middle = min(MIDDLE.queries, max(axes["queries"]))
    sizes = {
        "parties": [Size(n, least, MIDDLE.classes) for n in axes["parties"]],
        "queries": [Size(MIDDLE.parties, n, MIDDLE.classes) for n in axes["queries"]],
        "classes": [Size(MIDDLE.parties, middle, n) for n in axes["classes"]],
    }
    done: dict[Size, dict[str, Any]] = {}
    for size in (one for each in sizes.values() for one in each):
        if size not in done:
            done[size] = measure(size, processes)
            print(json.dumps(done[size]), file=sys.stderr)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "cases": list(done.values()),
        "growth": {
            axis: {
                figure: slopes([(getattr(one, axis), done[one][figure]) for one in each])
                for figure in _FIGURES
            }
            for axis, each in sizes.items()
        },
        "checks": {"memory": memory_check(axes["queries"], done)},
    }


def main() -> None:
    """Run the command line: the benchmark, its server, or its parties."""
    if sys.argv[1:2] == ["--serve"]:
        asked = json.loads(sys.argv[2])
        processes = asked.pop("processes")
        print(json.dumps(serve_campaign(Size(**asked), Path(sys.argv[3]), processes)))
        return
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        serve_parties()
        return
    parser = argparse.ArgumentParser(description=__doc__)
    axes = {
        "parties": (10, 100, 1000), "queries": (1_000, 10_000, 100_000), "classes": (2, 10, 100),
    }  # fmt: skip
    for axis, values in axes.items():
        text = ",".join(map(str, values))
        parser.add_argument(f"--{axis}", type=_numbers, default=values, help=f"default: {text}")
    parser.add_argument(
        "--processes", type=int, default=0, help="of the parties; default: one a core"
    )
    add_out(parser)
    given = parser.parse_args()
    publish(run({axis: getattr(given, axis) for axis in axes}, given.processes), given.out, "scale")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


if __name__ == "__main__":
    main()
