"""What a release of synthetic rows chooses among."""

from __future__ import annotations

from typing import Literal

#: Generators of rows, the default first.
Method = Literal["l1", "cfs", "marginals", "uniform"]
Release = Literal["seedless", "seeded"]
#: Of a seeded release: how the cost of an attempt is bounded, and the test of its rows.
Accounting = Literal["paper", "tight"]
Test = Literal["randomised", "deterministic"]
