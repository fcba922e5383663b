"""Diabetes 130: readmission within 30 days, from the columns for dense votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.papers.data import diabetes

if TYPE_CHECKING:
    from benchmarks.papers.split import Split


def load() -> Split:
    """Return the parts; errors as :func:`benchmarks.papers.data.diabetes.asked`."""
    return diabetes.asked("readmitted")


def every_column() -> Split:
    """Return them for the non-private model."""
    return diabetes.asked("readmitted", every_column=True)
