"""Diabetes 130: which groups of diagnoses a stay has, from the other columns."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.data import diabetes

load = partial(diabetes.asked, "groups")
every_column = partial(diabetes.asked, "groups", every_column=True)
