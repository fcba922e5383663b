"""Results of each campaign of a soak, what its processes held, and the report: a table and a JSON file."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.soak.leaks import BOUNDS, CONFIDENCE, Slope

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.soak.leaks import Held


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


def tell(out: Path, seed: int, results: Sequence[Result]) -> list[str]:
    """Print the table, write ``soak.json`` into ``out``, and return the leaks."""
    held = list(results)
    found, leaks = slopes(held), list[str]()
    kills, faults = sum(r.kills for r in held), Counter(" ".join(r.fault.split()[:2]) for r in held)
    print(f"\n{len(held)} campaigns, seed {seed}, {kills} processes killed; {dict(faults)}")
    print(f"ledgers that verify: {sum(not r.wrong for r in held)} of {len(held)}")
    print(
        f"\n{'process':9}{'what':10}{'first':>9}{'last':>9}   growth a campaign ({CONFIDENCE:.0%})"
    )
    for process, each in found.items():
        values = [h for r in held if (h := getattr(r, process)) is not None]
        for what, slope in each.items():
            ends = [getattr(values[at], what) for at in (0, -1)]
            line = f"{process:9}{what:10}{ends[0]:9}{ends[1]:9}   "
            if slope is None:
                print(line + "too few campaigns to say")
                continue
            verdict = slope.verdict(BOUNDS[what])
            print(
                f"{line}{slope.each:+.4f} ({slope.low:+.4f} to {slope.high:+.4f}), "
                f"bound {BOUNDS[what]}: {verdict}"
            )
            if verdict == "LEAKS":
                leaks.append(f"{process}: {what} grows by {slope.each:.4f} a campaign")
    print(f"disk of the parties' homes: {held[0].disk} to {held[-1].disk} bytes")
    told = {
        "seed": seed,
        "campaigns": [asdict(each) for each in held],
        "confidence": CONFIDENCE,
        "bounds": BOUNDS,
        "slopes": {
            process: {what: None if s is None else asdict(s) for what, s in each.items()}
            for process, each in found.items()
        },
        "leaks": leaks,
    }
    (out / "soak.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return leaks
