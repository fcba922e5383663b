"""Choices of a release of synthetic rows."""

from __future__ import annotations

from typing import Literal

#: Generators of rows, the default first.
Method = Literal["l1", "cfs", "marginals", "uniform"]
Release = Literal["seedless", "seeded"]
#: For a seeded release: the bound on an attempt's cost, and the test of its rows.
Accounting = Literal["paper", "tight"]
Test = Literal["randomised", "deterministic"]
