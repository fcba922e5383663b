"""Report of a soak: a table, a JSON file and a picture."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.soak.leaks import BOUNDS, CONFIDENCE
from benchmarks.soak.result import as_json, slopes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.soak.result import Result


def tell(out: Path, seed: int, results: Sequence[Result]) -> list[str]:
    """Print the table, write ``soak.json`` and ``soak.png`` into ``out``, and return the leaks."""
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
        "campaigns": as_json(held),
        "confidence": CONFIDENCE,
        "bounds": BOUNDS,
        "slopes": {
            process: {what: None if s is None else asdict(s) for what, s in each.items()}
            for process, each in found.items()
        },
        "leaks": leaks,
    }
    (out / "soak.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    _draw(out / "soak.png", held)
    return leaks


def _draw(path: Path, results: list[Result]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(4, 1, figsize=(8, 10), sharex=True, layout="constrained")
    titles = {"rss_kib": "memory, MiB", "handles": "open handles", "threads": "threads"}
    for axes, (what, title) in zip(rows, titles.items(), strict=False):
        for process in ("party", "server", "harness"):
            held = [(r.number, h) for r in results if (h := getattr(r, process)) is not None]
            scale = 1024 if what == "rss_kib" else 1
            axes.plot(
                [number for number, _ in held],
                [getattr(each, what) / scale for _, each in held],
                label=process,
                linewidth=1,
            )
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
    rows[0].legend(ncols=3)
    rows[0].set_title(
        f"{len(results)} campaigns with random faults: what long-lived processes hold"
    )
    rows[3].plot([r.number for r in results], [r.disk / 2**20 for r in results], linewidth=1)
    rows[3].set_ylabel("parties' homes, MiB")
    rows[3].set_xlabel("campaign")
    figure.savefig(path, dpi=120)
    plt.close(figure)
