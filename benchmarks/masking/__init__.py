"""``python -m benchmarks.masking [--out DIR] [--quick]``: the cost of masked sums.

A masked sum beside a plain one, at 5 to 250 simulated parties and 1,000 and 9,000 queries of 10
classes, and beside Flower's own secure aggregation primitives at 25 parties and 9,000 queries.
Everything runs in one process, one party after another, so that its processor seconds can be
told apart; the network is left out. Ratios are of figures of the same run.
"""

from __future__ import annotations

from benchmarks.masking.report import run

__all__ = ["run"]
