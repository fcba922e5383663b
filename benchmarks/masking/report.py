"""Runs every size, and compares masked, plain and Flower's sums."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from benchmarks.masking.flower import flower_sum
from benchmarks.masking.sums import CLASSES, Size, masked_sum, plain_sum
from pate.masking.context import threshold_for

if TYPE_CHECKING:
    from benchmarks.masking.meter import Meter

PARTIES = (5, 25, 100, 250)
QUERIES = (1_000, 9_000)
#: The size at which the promised bounds are checked.
MEASURED = Size(25, 9_000)
#: Repetitions of measurements that take milliseconds.
REPEATS = 5
#: The promised bounds.
BYTES_RATIO, PARTY_SECONDS, TIMES_LESS = 1.15, 1.0, 10.0


class PartyCost(TypedDict):
    """Of one sum: medians over the parties."""

    party_seconds: dict[str, float]
    party_bytes_up: dict[str, float]


class Cost(PartyCost):
    """With what parties got, and the totals of the server."""

    party_bytes_down: dict[str, float]
    server_seconds: dict[str, float]
    server_bytes: dict[str, float]


class Case(TypedDict):
    """One size, both ways."""

    parties: int
    queries: int
    bits: int
    plain: Cost
    masked: Cost


class Check(TypedDict):
    """A promised bound and the measured value."""

    found: float
    promised: str
    holds: bool


class Figures(TypedDict):
    """All results of one run."""

    cores: int | None
    classes: int
    measured: dict[str, int]
    growth: list[Case]
    flower: PartyCost
    third_lost: Cost
    bytes_over_least_width: float
    checks: dict[str, Check]


def cost_of(meter: Meter) -> Cost:
    both = meter.party_bytes()
    return {
        "party_seconds": _short(meter.party_seconds()),
        "party_bytes_up": both["up"],
        "party_bytes_down": both["down"],
        "server_seconds": _short(meter.server_seconds()),
        "server_bytes": meter.server_bytes(),
    }


def case(size: Size) -> Case:
    """Measure a size masked and plain; the best of several runs if they take milliseconds."""
    times = REPEATS if size.parties <= MEASURED.parties else 1
    return {
        "parties": size.parties,
        "queries": size.queries,
        "bits": size.bits,
        "plain": best([cost_of(plain_sum(size)) for _ in range(times)]),
        "masked": best([cost_of(masked_sum(size)) for _ in range(times)]),
    }


def best(costs: list[Cost]) -> Cost:
    """Return the cost with the least party time: other load can only add."""
    return min(costs, key=lambda cost: cost["party_seconds"]["total"])


def run(*, quick: bool = False) -> Figures:
    """Measure all sizes, or with ``quick`` those of up to 25 parties."""
    case(Size(5, 10))  # the warm up: first calls pay for imports and tables
    here, flower = beside_flower()
    growth = [
        here if (n, queries) == (MEASURED.parties, MEASURED.queries) else case(Size(n, queries))
        for n in PARTIES
        for queries in QUERIES
        if not quick or n <= MEASURED.parties
    ]
    threshold, _ = threshold_for(MEASURED.parties)
    lost = masked_sum(MEASURED, lost_after_shares=MEASURED.parties - threshold)
    return {
        "cores": os.cpu_count(),
        "classes": CLASSES,
        "measured": {"parties": MEASURED.parties, "queries": MEASURED.queries},
        "growth": growth,
        "flower": {
            "party_seconds": flower["party_seconds"],
            "party_bytes_up": flower["party_bytes_up"],
        },
        "third_lost": cost_of(lost),
        "bytes_over_least_width": round(
            here["masked"]["party_bytes_up"]["votes"] / here["plain"]["party_bytes_up"]["votes"], 3
        ),
        "checks": checks(here, flower),
    }


def beside_flower() -> tuple[Case, Cost]:
    """Measure the size of the bounds, alternating our sum and Flower's primitives."""
    threshold, _ = threshold_for(MEASURED.parties)
    votes = {number + 1: MEASURED.votes(number) for number in range(MEASURED.parties)}
    here, theirs, ours = case(MEASURED), [], []
    for _ in range(REPEATS):
        theirs.append(cost_of(flower_sum(votes, threshold=threshold, modulus=2**MEASURED.bits)))
        ours.append(cost_of(masked_sum(MEASURED)))
    return {**here, "masked": best([here["masked"], *ours])}, best(theirs)


def checks(here: Case, flower: Cost) -> dict[str, Check]:
    """Check the promised bounds at 25 parties and 9,000 queries.

    The plain matrix has the width of the ring, as a masked count does; ``bytes_over_least_width`` is the
    ratio to the least width for one party's counts.
    """
    masked = here["masked"]
    moved = masked["party_bytes_up"]["total"] + masked["party_bytes_down"]["total"]
    least = here["queries"] * CLASSES * here["bits"] // 8 + sum(
        masked[way].get(phase, 0.0)
        for way in ("party_bytes_up", "party_bytes_down")
        for phase in ("keys", "shares")
    ) + masked["party_bytes_down"]["votes"]  # fmt: skip
    ours = masked["party_seconds"]["total"]
    theirs = flower["party_seconds"]["total"]
    return {
        "bytes over packed matrix, keys and shares": {
            "found": round(moved / least, 4),
            "promised": f"at most {BYTES_RATIO}",
            "holds": moved <= BYTES_RATIO * least,
        },
        "processor seconds of a party": {
            "found": ours,
            "promised": f"less than {PARTY_SECONDS}",
            "holds": ours < PARTY_SECONDS,
        },
        "times less than Flower's primitives": {
            "found": round(theirs / ours, 2),
            "promised": f"at least {TIMES_LESS}",
            "holds": theirs >= TIMES_LESS * ours,
        },
    }


def _short(seconds: dict[str, float]) -> dict[str, float]:
    return {phase: round(value, 6) for phase, value in seconds.items()}
