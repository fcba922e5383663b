"""A small result of an existing row, to be written, read and displayed."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.papers.record import Result, Run
from benchmarks.papers.rows import ROWS


def run(*, seed: int, accuracy: float = 0.8, epsilon: float = 1.5) -> Run:
    """Return a run with 9 of 10 labels right."""
    return Run(
        seed=seed,
        asked=20,
        kept=10,
        right=9,
        guarantee={
            "epsilon": epsilon,
            "delta": 1e-5,
            "unit": "record",
            "adjacency": "one record added or removed",
            "observer": "public",
            "server_epsilon": None,
        },
        charged=1.25,
        bounds={"paper-2018": 0.9, "sharp": 0.5},
        classical={"paper-2018": 1.0, "sharp": 0.6},
        student={"accuracy": accuracy, "auc": 0.7},
        seconds={"teachers": 2.0, "student": 3.0},
        reused=False,
    )


def result(*, row: str = "heart", **changes: Any) -> Result:
    """Return a result of a row, with the fields that are given."""
    fields: dict[str, Any] = {
        "row": row,
        "settings": {"aggregator": "gnmax", "picked": "by hand"},
        "date": "2026-01-01",
        "commit": None,
        "versions": {"python": "3.11.0"},
        "machine": {"cores": 2.0, "ram_gib": 8.0, "gpu": None},
        "split": {
            "private": 100, "public": 20, "test": 10, "private_units": 100, "public_units": 20,
            "test_units": 10, "note": "one line",
        },
        "majority": 0.55,
        "reference": {"model": "boosted trees", "accuracy": 0.85, "auc": 0.72},
        "runs": (run(seed=0), run(seed=1)),
    }  # fmt: skip
    if row in ROWS:
        # As they are after a visit to the file.
        fields["settings"] = json.loads(json.dumps(ROWS[row].settings()))
    return Result(**(fields | changes))
