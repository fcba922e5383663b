"""Diabetes 130: which groups of diagnoses a stay has, from the other columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.papers.data import diabetes

if TYPE_CHECKING:
    from benchmarks.papers.split import Split


def load() -> Split:
    """Return the parts; errors as :func:`benchmarks.papers.data.diabetes.asked`."""
    return diabetes.asked("groups")


def every_column() -> Split:
    """Return them for the non-private model."""
    return diabetes.asked("groups", every_column=True)
