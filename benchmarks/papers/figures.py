"""The figures of a row: how they are written, and whether they reach its goals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.papers.record import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.papers.record import Result
    from benchmarks.papers.row import Basis, Wanted

#: Means of binary numbers are off by less: that of three times 0.1 is above 0.1.
_HAIR: Final = 1e-9
#: Figures that are no percentages, and what figures are called.
_PLAIN: Final = ("auc", "mae", "r2")
_NAMES: Final = {"auc": "AUC", "macro auc": "macro AUC", "mae": "mean absolute error", "r2": "R2"}
#: Those of which less is better.
_ERRORS: Final = ("student.mae",)


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


def epsilon_of(result: Result, basis: Basis) -> float | None:
    """Return the mean epsilon by a basis; those of the papers by their conversion.

    Where exact votes never existed, there is no data-dependent bound, and the cap is used for all.
    """
    if basis == "cap" or not result.runs[0].bounds:
        return result.mean("epsilon")
    return result.mean(f"{'bounds' if basis == 'sharp' else 'classical'}.{basis}")


def delta_of(result: Result) -> float:
    """Return the delta of the guarantee, the largest of its runs."""
    return max(float(run.guarantee["delta"] or 0.0) for run in result.runs)


def shortfalls(result: Result, wanted: Wanted, *, form: str = "") -> list[str] | None:
    """Return the gap to a goal, in words; empty if it is reached, None if it was not run.

    Args:
        result: of the row.
        wanted: the goal.
        form: prefix of the non-private measures that it is relative to: ``other.`` for those of the
            form that validation records did not choose.
    """
    reached = result.mean(wanted.figure)
    if reached is None:
        return None
    missing = []
    least = _least(result, wanted, form)
    if least is None:
        return None
    if wanted.figure in _ERRORS and reached > least + _HAIR:
        over = single(wanted.figure, reached - least)
        missing.append(f"{name_of(wanted.figure)} {over} too high")
    elif wanted.figure not in _ERRORS and reached < least - _HAIR:
        missing.append(f"{name_of(wanted.figure)} {single(wanted.figure, least - reached)} too low")
    for basis, most in wanted.epsilon.items():
        epsilon = epsilon_of(result, basis)
        if epsilon is None:
            missing.append(f"no epsilon by {basis}")
        elif epsilon > most + _HAIR:
            missing.append(f"epsilon {rounded(epsilon)} by {basis} above {most:g}")
    delta = delta_of(result)
    if wanted.delta is not None and delta > wanted.delta:
        missing.append(f"delta {delta:g} above {wanted.delta:g}")
    return missing


def goal_in_words(wanted: Wanted) -> str:
    """Return what was asked for."""
    name = "" if wanted.figure == "student.accuracy" else f" {name_of(wanted.figure)}"
    size = (
        f"{single(wanted.figure, wanted.least)}{name}"
        if wanted.least is not None
        else f"{name.strip()} within {wanted.within:.0%} of no privacy"
        if wanted.figure in _ERRORS and wanted.within is not None
        else f"within {single(wanted.figure, wanted.within or 0.0)}{name} of no privacy"
    )
    most = ", ".join(f"{limit:g} ({basis})" for basis, limit in wanted.epsilon.items())
    most += "" if wanted.delta is None else f", delta {wanted.delta:g}"
    return f"{size} at <= {most}"


def verdict(result: Result, wanted: Wanted) -> str:
    """Return whether it was reached, or the gaps; beside the other form of the non-private model, if any."""
    said = _reached(shortfalls(result, wanted))
    if wanted.within is None or "other.accuracy" not in result.reference:
        return said
    return f"{said}; of the form not chosen: {_reached(shortfalls(result, wanted, form='other.'))}"


def _least(result: Result, wanted: Wanted, form: str) -> float | None:
    if wanted.least is not None:
        return wanted.least
    assert wanted.within is not None  # a goal is one or the other
    known = result.reference.get(form + wanted.figure.partition(".")[2])
    if not isinstance(known, float | int):
        return None
    if wanted.figure in _ERRORS:
        return float(known) * (1 + wanted.within)
    return float(known) - wanted.within


def _reached(missing: Sequence[str] | None) -> str:
    if missing is None:
        return "not run"
    return "yes" if not missing else "no: " + ", ".join(missing)
