"""The figures of a row: how they are written, and whether they reach its goals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.measure import ERRORS, PLAIN
from benchmarks.papers.record import rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.papers.record import Result
    from benchmarks.papers.row import Basis, Wanted

#: Means of binary numbers are off by less: that of three times 0.1 is above 0.1.
_HAIR: Final = 1e-9
#: What figures are called.
_NAMES: Final = {"auc": "AUC", "macro auc": "macro AUC", "mae": "mean absolute error", "r2": "R2"}


def share(result: Result, figure: str) -> str:
    """Return the mean over seeds, and in brackets how sure it is; "-" if it was not measured.

    In brackets is the 95 % interval of a student's figure, and the largest minus the least of others and of
    earlier results.
    """
    mean, spread = result.mean(figure), result.spread(figure)
    if mean is None or spread is None:
        return "-"
    if ends := result.intervals.get(figure.removeprefix("student.")):
        return f"{single(figure, mean)} {between(figure, *ends)}"
    if figure.endswith(PLAIN):
        return f"{mean:.3f} ({spread:.3f})"
    return f"{100 * mean:.2f} % ({100 * spread:.2f})"


def single(figure: str, value: float) -> str:
    """Return a value, or a difference of two, of a figure."""
    return f"{value:.3f}" if figure.endswith(PLAIN) else f"{100 * value:.2f} %"


def between(figure: str, low: float, high: float) -> str:
    """Return an interval in square brackets.

    >>> between("accuracy", 0.8912, 0.9)
    '[89.1 to 90.0]'
    """
    if figure.endswith(PLAIN):
        return f"[{low:.3f} to {high:.3f}]"
    return f"[{100 * low:.1f} to {100 * high:.1f}]"


def ranged(result: Result, name: str, value: float) -> str:
    """Return a figure of the model without privacy with its 95 % interval; of earlier results its range."""
    low, high, spread = (
        result.reference.get(f"{each}.{name}") for each in ("low", "high", "spread")
    )
    told = single(name, value)
    if isinstance(low, float | int) and isinstance(high, float | int):
        return f"{told} {between(name, low, high)}"
    if not isinstance(spread, float | int):
        return told
    return f"{told} ({spread:.3f})" if name.endswith(PLAIN) else f"{told} ({100 * spread:.2f})"


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
        form: prefix of the non-private figures that it is relative to: ``other.`` for the best on test
            of the models that validation records did not choose.
    """
    reached = result.mean(wanted.figure)
    if reached is None:
        return None
    missing = []
    least = _least(result, wanted, form)
    if least is None:
        return None
    if wanted.figure.endswith(ERRORS) and reached > least + _HAIR:
        over = single(wanted.figure, reached - least)
        missing.append(f"{name_of(wanted.figure)} {over} too high")
    elif not wanted.figure.endswith(ERRORS) and reached < least - _HAIR:
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
        if wanted.figure.endswith(ERRORS) and wanted.within is not None
        else f"within {single(wanted.figure, wanted.within or 0.0)}{name} of no privacy"
    )
    most = ", ".join(f"{limit:g} ({basis})" for basis, limit in wanted.epsilon.items())
    most += "" if wanted.delta is None else f", delta {wanted.delta:g}"
    return f"{size} at <= {most}"


def verdict(result: Result, wanted: Wanted) -> str:
    """Return whether it was reached, or the gaps; also beside a model not chosen that is better on test."""
    said = _reached(shortfalls(result, wanted))
    name = wanted.figure.removeprefix("student.")
    chosen, other = (result.reference.get(f"{form}{name}") for form in ("", "other."))
    if wanted.within is None or not isinstance(other, float) or not isinstance(chosen, float):
        return said
    if other <= chosen if name not in ERRORS else other >= chosen:
        return said
    beside = _reached(shortfalls(result, wanted, form="other."))
    return f"{said}; beside a model that validation did not choose: {beside}"


def _least(result: Result, wanted: Wanted, form: str) -> float | None:
    if wanted.least is not None:
        return wanted.least
    assert wanted.within is not None  # a goal is one or the other
    known = result.reference.get(form + wanted.figure.partition(".")[2])
    if not isinstance(known, float | int):
        return None
    if wanted.figure.endswith(ERRORS):
        return float(known) * (1 + wanted.within)
    return float(known) - wanted.within


def _reached(missing: Sequence[str] | None) -> str:
    if missing is None:
        return "not run"
    return "yes" if not missing else "no: " + ", ".join(missing)
