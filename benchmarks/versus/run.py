"""Runs the methods on a data set, and stores each figure as soon as it is there."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import metadata
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks import dated, measure
from benchmarks.versus import record
from benchmarks.versus.choose import choose
from benchmarks.versus.data import PROBLEMS
from benchmarks.versus.method import EPSILONS, Cost
from benchmarks.versus.methods import all_methods
from benchmarks.versus.record import Cell, Result
from pate.errors import UsageError
from pate.runtime.screen import listed
from simulation.report import majority_accuracy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.versus.method import Method
    from benchmarks.versus.problem import Problem
    from pate.runtime.screen import Screen

_PACKAGES: Final = ("numpy", "scikit-learn", "torch", "flwr", "opacus")


def run(
    name: str,
    *,
    methods: Sequence[str],
    epsilons: Sequence[float],
    dealings: int,
    work: Path,
    out: Path,
    screen: Screen,
    dirty: bool = False,
    go_on: bool = False,
) -> Path:
    """Run methods on one data set; figures of other methods in today's file stay.

    Args:
        name: of the data set.
        methods: names; none: all.
        epsilons: at which private methods run; none: all.
        dealings: number of dealings.
        work: folder for what may be used again.
        out: folder of the results.
        screen: for lines.
        dirty: whether to run although files are not committed.
        go_on: with the newest file of this data set, and only what it lacks.

    Raises:
        UsageError: for an unknown method, files that are not committed, or a file to go on with
            of other records or packages.
    """
    commit = record.commit()
    if commit.endswith("+") and not dirty:
        raise UsageError("results come from a clean commit: commit first, or use --dirty to try")
    known = all_methods(work, screen)
    if odd := set(methods) - set(known):
        raise UsageError(f"no method {min(odd)!r}; there is {', '.join(known)}")
    problem = PROBLEMS[name](work)
    result = _newest(problem, out) if go_on else _begun(problem, out)
    for method in known.values():
        if not method.fits(problem) or (methods and method.name not in methods):
            continue
        for epsilon in epsilons or EPSILONS if method.private else (None,):
            if go_on and result.cell(method.name, epsilon) is not None:
                continue
            cell = run_cell(method, problem, epsilon, dealings, commit, screen)
            # Read again: another process may run another part.
            result = (_newest if go_on else _begun)(problem, out).with_cell(cell)
            dated.write(result, out)
    return out / result.file


def run_cell(
    method: Method,
    problem: Problem,
    epsilon: float | None,
    dealings: int,
    commit: str,
    screen: Screen,
) -> Cell:
    """Choose a setting, train with it once per dealing, and measure on the test records."""
    chosen = choose(method, problem, epsilon, screen.say)
    setting, validation = chosen.setting, chosen.figure
    fitted = [method.fit(problem, setting, epsilon, number) for number in range(dealings)]
    test, scores = problem.split.test, [each.test for each in fitted]
    cell = Cell(
        method=method.name,
        epsilon=epsilon,
        delta=method.delta(setting) if method.private else None,
        setting=setting,
        tried=chosen.tried,
        validation=None if np.isnan(validation) else validation,
        accuracy=measure.estimate(measure.accuracy, scores, test),
        auc=measure.estimate(measure.auc, scores, test),
        cost=_mean([each.cost for each in fitted]),
        commit=commit,
    )
    at = "without privacy" if epsilon is None else f"at {epsilon:g}"
    screen.say(
        f"{problem.name}: {method.name} {at}: accuracy {cell.accuracy.mean:.4f} "
        f"({cell.accuracy.low:.4f} to {cell.accuracy.high:.4f}), AUC {cell.auc.mean:.4f}; {setting}"
    )
    return cell


def _mean(costs: Sequence[Cost]) -> Cost:
    return Cost(
        round(float(np.mean([cost.exchanges for cost in costs]))),
        round(float(np.mean([cost.up for cost in costs]))),
        round(float(np.mean([cost.down for cost in costs]))),
        float(np.mean([cost.seconds for cost in costs])),
        float(np.mean([cost.waiting for cost in costs])),
        costs[0].numbers,
        costs[0].steps,
    )


def _newest(problem: Problem, out: Path) -> Result:
    """Return the newest result, or an empty one; raise UsageError if it is of another problem."""
    fresh = _empty(problem)
    newest = record.latest(out).get(problem.name, fresh)
    same = ("sizes", "unit", "versions")
    if odd := [each for each in same if getattr(newest, each) != getattr(fresh, each)]:
        raise UsageError(
            f"{newest.file} has other {listed(odd)}: its figures and new ones cannot be compared. "
            "Run all of it anew, without --continue"
        )
    return newest


def _begun(problem: Problem, out: Path) -> Result:
    """Return today's result, or an empty one."""
    fresh = _empty(problem)
    path = out / fresh.file
    return Result.from_json(path.read_text(encoding="utf-8")) if path.is_file() else fresh


def _empty(problem: Problem) -> Result:
    today, split = datetime.now(UTC).date().isoformat(), problem.split
    return Result(
        name=problem.name,
        date=today,
        sizes={
            "private": len(split.private),
            "units": problem.units,
            "public": len(split.public),
            "validation": len(problem.validation),
            "test": len(split.test),
            "parties": problem.parties,
            "classes": problem.classes,
        },
        unit=problem.unit,
        goal=problem.goal,
        note=split.note,
        majority=majority_accuracy(split.test),
        versions={name: metadata.version(name) for name in _PACKAGES},
        cells=(),
    )
