"""Diabetes 130: how many days a stay lasted, from the other columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.papers.data import diabetes

if TYPE_CHECKING:
    from benchmarks.papers.split import Split


def load() -> Split:
    """Return the parts; errors as :func:`benchmarks.papers.data.diabetes.asked`."""
    return diabetes.asked("days")


def every_column() -> Split:
    """Return them for the non-private model."""
    return diabetes.asked("days", every_column=True)
