"""How a row's figures are written: percentages, or plain numbers with a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.papers.record import Result

#: Figures that are no percentages, and what figures are called.
_PLAIN: Final = ("auc", "mae", "r2")
_NAMES: Final = {"auc": "AUC", "macro auc": "macro AUC", "mae": "mean absolute error", "r2": "R2"}


def share(result: Result, figure: str) -> str:
    """Return the mean over seeds, the largest minus the least in brackets; "-" if it was not measured."""
    mean, spread = result.mean(figure), result.spread(figure)
    if mean is None or spread is None:
        return "-"
    if figure.endswith(_PLAIN):
        return f"{mean:.3f} ({spread:.3f})"
    return f"{100 * mean:.2f} % ({100 * spread:.2f})"


def single(figure: str, value: float) -> str:
    """Return a value, or a difference of two, of a figure."""
    return f"{value:.3f}" if figure.endswith(_PLAIN) else f"{100 * value:.2f} %"


def ranged(result: Result, name: str, value: float) -> str:
    """Return a measure of the non-private model, with its range over seeds if there are several."""
    spread = result.reference.get(f"spread.{name}")
    told = single(name, value)
    if not isinstance(spread, float | int):
        return told
    return f"{told} ({spread:.3f})" if name.endswith(_PLAIN) else f"{told} ({100 * spread:.2f})"


def name_of(figure: str) -> str:
    """Return what a figure is called."""
    name = figure.removeprefix("student.").replace("_", " ")
    return _NAMES.get(name, name)


def unit_of(figure: str) -> str:
    """Return what a figure that is no accuracy is called, to follow it."""
    name = figure.removeprefix("student.")
    return "" if name == "accuracy" else f" {name_of(name)}"
