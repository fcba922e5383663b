"""Diabetes 130: how many days a stay lasted, from the other columns."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.data import diabetes

load = partial(diabetes.asked, "days")
every_column = partial(diabetes.asked, "days", every_column=True)
