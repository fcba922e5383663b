"""Runs all sizes, each in its own process, and computes the growth along each axis."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.scale.loopback import push_seconds
from benchmarks.scale.server import Size
from pate.runtime.child import python, python_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Fixed values of the other axes while one grows.
MIDDLE: Final = Size(parties=10, queries=10_000, classes=10)
#: Queries of the axis of parties: a thousand parties take minutes with any number of queries.
FEW_QUERIES: Final = 1_000
FIGURES: Final = (
    "server_cpu_seconds", "server_memory_peak", "bytes_up", "bytes_down", "seconds",
)  # fmt: skip
#: Bytes of peak memory for each query more, at most: its inputs, mapped, and its label in the ledger.
MEMORY_A_QUERY: Final = 256
#: From so many queries on. With fewer, costs that do not grow with them are most of the difference.
MEMORY_FROM: Final = 10_000
_LONGEST_S: Final = 7200.0

Case = dict[str, object]


@dataclass(frozen=True)
class Axes:
    """The values of each axis, ascending."""

    parties: tuple[int, ...] = (10, 100, 1000)
    queries: tuple[int, ...] = (1_000, 10_000, 100_000)
    classes: tuple[int, ...] = (2, 10, 100)

    def sizes(self) -> dict[str, list[Size]]:
        """Return the campaigns of each axis."""
        least = min((FEW_QUERIES, *self.queries))
        return {
            "parties": [Size(n, least, MIDDLE.classes) for n in self.parties],
            "queries": [Size(MIDDLE.parties, n, MIDDLE.classes) for n in self.queries],
            "classes": [
                Size(MIDDLE.parties, min(MIDDLE.queries, max(self.queries)), n)
                for n in self.classes
            ],
        }


def run(
    axes: Axes, *, processes: int = 0, say: Callable[[str], None] = lambda _: None
) -> dict[str, object]:
    """Run all campaigns, each size once, and return their figures and growth."""
    done: dict[Size, Case] = {}
    grown = {}
    for axis, sizes in axes.sizes().items():
        for size in sizes:
            if size not in done:
                say(f"{size.parties} parties, {size.queries} queries, {size.classes} classes")
                done[size] = measure(size, processes)
                say(json.dumps(done[size]))
        grown[axis] = {
            figure: slopes([(float(getattr(s, axis)), _number(done[s], figure)) for s in sizes])
            for figure in FIGURES
        }
    return {
        "setting": {
            "mechanism": "gnmax, sigma 40, every query labelled",
            "teachers_each": 1,
            "transport": "pipes to processes of parties; no Flower, no network",
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
        },
        "cases": list(done.values()),
        #: By axis: its cases.
        "axes": {
            axis: [list(done).index(s) for s in sizes] for axis, sizes in axes.sizes().items()
        },
        "growth": grown,
        "checks": {"memory": memory_check(axes, done)},
    }


def measure(size: Size, processes: int) -> Case:
    """Return the costs of one campaign, with the physical bound measured right after.

    Raises:
        RuntimeError: if it failed.
    """
    with tempfile.TemporaryDirectory(prefix="pate-scale-") as place:
        asked = Path(place) / "size.json"
        asked.write_text(json.dumps({**asdict(size), "processes": processes}), encoding="utf-8")
        ended = subprocess.run(
            python("benchmarks.scale.server", asked),
            capture_output=True, text=True, timeout=_LONGEST_S, check=False,
            env={**python_environment(), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"{size} ended with {ended.returncode}: {ended.stderr[-2000:]}")
    case: Case = json.loads(ended.stdout.splitlines()[-1])
    bound = push_seconds(size.packed_bytes)
    case["loopback_seconds"] = round(bound, 7)
    case["up_over_packed"] = round(_number(case, "bytes_up") / size.packed_bytes, 3)
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


def memory_check(axes: Axes, done: dict[Size, Case]) -> dict[str, object]:
    """Compare peak memory at the most queries with that at a tenth of them, if both were run."""
    most = Size(MIDDLE.parties, max(axes.queries), MIDDLE.classes)
    tenth = Size(MIDDLE.parties, max(axes.queries) // 10, MIDDLE.classes)
    if most not in done or tenth not in done:
        return {"what": "needs a size and a tenth of it", "holds": None}
    if tenth.queries < MEMORY_FROM:
        return {"what": f"a query's memory shows from {MEMORY_FROM} queries on", "holds": None}
    memory = [_number(done[each], "server_memory_peak") for each in (tenth, most)]
    each = (memory[1] - memory[0]) / (most.queries - tenth.queries)
    return {
        "what": f"bytes of the server's memory a query, from {tenth.queries} to {most.queries}",
        "found": round(each, 1),
        "wanted": f"at most {MEMORY_A_QUERY}",
        "holds": each <= MEMORY_A_QUERY,
    }


def _number(case: Case, name: str) -> float:
    value = case[name]
    assert isinstance(value, int | float)
    return float(value)
