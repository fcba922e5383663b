"""Diabetes 130: readmission within 30 days, from the columns for dense votes."""

from __future__ import annotations

from functools import partial

from benchmarks.papers.data import diabetes

load = partial(diabetes.asked, "readmitted")
every_column = partial(diabetes.asked, "readmitted", every_column=True)
