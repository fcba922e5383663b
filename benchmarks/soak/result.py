"""Results of each campaign of a soak, and their growth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.soak.leaks import BOUNDS, Slope

if TYPE_CHECKING:
    from benchmarks.soak.leaks import Held


@dataclass
class Result:
    """One campaign of the soak."""

    number: int
    kind: str
    fault: str
    seconds: float
    kills: int
    labels: int
    wrong: str = ""
    party: Held | None = None
    server: Held | None = None
    harness: Held | None = None
    disk: int = 0


def as_json(results: list[Result]) -> list[dict[str, object]]:
    return [asdict(result) for result in results]


def slopes(results: list[Result]) -> dict[str, dict[str, Slope | None]]:
    """Return the growth of each resource of the long-lived processes."""
    found: dict[str, dict[str, Slope | None]] = {}
    for process in ("party", "server", "harness"):
        held = [(r.number, h) for r in results if (h := getattr(r, process)) is not None]
        numbers = [number for number, _ in held]
        found[process] = {
            what: Slope.of(numbers, [getattr(each, what) for _, each in held]) for what in BOUNDS
        }
    return found
