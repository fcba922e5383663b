"""``python -m benchmarks.masking [--out DIR] [--quick]``: the cost of masked sums.

Compares a masked sum with a plain one, for 5 to 250 simulated parties and 1,000 and 9,000 queries of 10
classes, and with Flower's secure aggregation primitives for 25 parties and 9,000 queries. The parties run one
after another in one process, which separates their CPU seconds; there is no network. Ratios are of figures of
the same run.
"""

from __future__ import annotations

from benchmarks.masking.report import run

__all__ = ["run"]
