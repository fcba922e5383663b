"""Runs rows from their data to their results, and stores each figure as soon as it is there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import measure, record
from benchmarks.choose import Choice, choose
from benchmarks.data import units_in
from benchmarks.methods.method import Method
from benchmarks.problem import Problem, load
from benchmarks.record import RESULTS, Cell, Cost, Result, Run
from benchmarks.rows import Row
from pate.errors import UsageError
from pate.printable import listed
from pate.runtime.screen import Screen
from simulation.report import majority_accuracy


def run_row(
    row: Row,
    *,
    work: Path,
    screen: Screen,
    methods: Sequence[str] = (),
    epsilons: Sequence[float] = (),
    dealings: int | None = None,
    out: Path = RESULTS,
    go_on: bool = False,
) -> Path:
    """Run a row, and write its result; return the file.

    Args:
        row: to run.
        work: folder shared by rows: embeddings, the parties' homes with their teachers and votes.
        screen: for lines and progress.
        methods: of it; none: all. Figures of others in the file stay.
        epsilons: of a comparison, at which private methods run; none: all. Figures at others stay.
        dealings: number of runs; None: the row's.
        out: folder of the result.
        go_on: run only what the file in ``out`` lacks, and leave the rest.
    """
    commit = record.commit()
    if out.resolve() == RESULTS and (commit is None or commit.endswith("+")):
        raise UsageError(
            "results come from a clean commit: commit first, or try with another --out"
        )
    if odd := set(methods) - set(row.methods):
        raise UsageError(f"{row.name} has no method {min(odd)!r}; it has {', '.join(row.methods)}")
    if "series" in row.methods:
        from benchmarks.methods import months

        return months.run(row, dealings or row.dealings, work, screen, commit).write(out)
    problem = load(row, work)
    part = bool(go_on or methods or epsilons)
    result = _begun(row, problem, out, dealings or row.dealings, go_on=part)
    for method in methods_of(row, work, screen):
        if not method.fits(problem) or (methods and method.name not in methods):
            continue
        at = epsilons or row.epsilons if method.private and row.epsilons else (None,)
        for epsilon in at:
            if go_on and _has(result, method.name, epsilon):
                continue
            cell = run_cell(method, problem, epsilon, dealings or row.dealings, screen)
            if part:  # another process may run another part
                result = record.read(row.name, out) or result
            dated = _dated(replace(cell, commit=commit), result)
            result = result.with_cell(dated, at_any=epsilon is None)
            result.write(out)
    return out / f"{row.name}.json"


def _dated(cell: Cell, result: Result) -> Cell:
    """Return a cell with today's date and versions, where they are not those of the result."""
    now = Result.begun(result.row, result.data)
    other = {name: each for name, each in now.versions.items() if result.versions.get(name) != each}
    return replace(cell, date="" if now.date == result.date else now.date, versions=other)


def _has(result: Result, method: str, epsilon: float | None) -> bool:
    """Return whether a method has run; at any epsilon where the row's own options decide it."""
    return any(
        cell.method == method and (epsilon is None or cell.epsilon == epsilon)
        for cell in result.cells
    )


def methods_of(row: Row, work: Path, screen: Screen) -> list[Method]:
    """Return the methods of a row in its order."""
    from benchmarks.methods import linear, standard, votes

    made = [
        *votes.methods(row, work, screen), *linear.METHODS,
        standard.alone(), standard.pooled(screen),
    ]  # fmt: skip
    if any(name.startswith(("dp-sgd", "fedavg")) for name in row.methods):
        from benchmarks.methods import federated, networks

        sgd = networks.pooled_sgd(work)
        made += [sgd, networks.taught(sgd), *federated.methods(work)]
    known = {method.name: method for method in made}
    return [known[name] for name in row.methods]


def run_cell(
    method: Method, problem: Problem, epsilon: float | None, dealings: int, screen: Screen
) -> Cell:
    """Choose a setting, train with it once per dealing, and measure on the test records."""
    chosen = choose(method, problem, epsilon, screen.say)
    if method.once:
        fitted = [chosen.first[0]]
    else:
        fitted = [method.fit(problem, chosen.setting, epsilon, seed) for seed in range(dealings)]
    test = problem.split.test
    scores = [each.test for each in fitted if len(each.test)]
    said = [measure.judged(each, test) for each in scores] or [{} for _ in fitted]
    figures = measure.estimates(scores, test) if scores else {}
    guarantee = dict(fitted[0].guarantee)
    delta = method.delta(chosen.setting) if method.private else None
    if epsilon is None and guarantee:  # of a row's own options: the campaign's cap
        epsilon, delta = guarantee.pop("epsilon"), guarantee.pop("delta")
    else:  # of a comparison, whose epsilon is for a unit added or removed
        guarantee = {}
    cell = Cell(
        method=method.name,
        epsilon=epsilon,
        delta=delta,
        guarantee=guarantee,
        setting={**chosen.setting, **({"encoder": problem.encoder} if problem.encoder else {})},
        tried=chosen.tried,
        validation=chosen.figure,
        choice=_words(chosen, problem) if method.once else chosen.words,
        figures=figures,
        beside=_beside(chosen, problem) if method.once else {},
        runs=tuple(
            replace(one.run or Run(seed=seed), seed=seed, figures=of)
            for seed, (one, of) in enumerate(zip(fitted, said, strict=True))
        ),
        cost=Cost.mean([each.cost for each in fitted]),
    )
    told = ", ".join(
        f"{name} {one.mean:.4f} ({one.low:.4f} to {one.high:.4f})" for name, one in figures.items()
    )
    at = "" if cell.epsilon is None else f" at epsilon {cell.epsilon:.4g}"
    screen.say(f"{problem.name}: {method.name}{at}: {told}; {cell.setting}")
    return cell


def _of_each(chosen: Choice, problem: Problem) -> list[tuple[float, float]]:
    """Return the choosing figure of each model on validation and on test records, the chosen one's first."""
    figure, test = measure.figures_of(problem.split.test)[problem.chooser], problem.split.test
    return [
        (
            figure(one.validation, measure.truth_of(problem.validation)),
            figure(one.test, measure.truth_of(test)),
        )
        for one in chosen.first
    ]


def _words(chosen: Choice, problem: Problem) -> str:
    """Return what the choice of a model rests on, with the test figures of all."""
    pairs = _of_each(chosen, problem)
    best = f"{chosen.setting['model']}: {pairs[0][0]:.4f} there and {pairs[0][1]:.4f} on test"
    others = ", ".join(f"{on_test:.4f}" for _, on_test in pairs[1:])
    return f"{chosen.words}; {best}" + (f", the others on test {others}" if others else "")


def _beside(chosen: Choice, problem: Problem) -> dict[str, float]:
    """Return the best test figure of the models that were not chosen."""
    best: Any = min if problem.chooser in measure.ERRORS else max
    others = [on_test for _, on_test in _of_each(chosen, problem)[1:]]
    return {problem.chooser: best(others)} if others else {}


def _begun(row: Row, problem: Problem, out: Path, dealings: int, *, go_on: bool) -> Result:
    """Return the stored result to go on with, or an empty one."""
    split = problem.split
    parts = {"private": split.private, "public": split.public, "test": split.test}
    if row.epsilons and split.validation is not None:
        parts["validation"] = split.validation
    sizes: dict[str, Any] = {}
    for name, part in parts.items():
        sizes |= {name: len(part), f"{name}_units": units_in(part)}
    data = {
        "unit": problem.unit, "parties": problem.parties, "dealings": 1 if split.sizes else dealings,
        **sizes, "classes": problem.classes,
        "majority": majority_accuracy(split.test) if split.test.kind == "class" else None,
        "note": split.note,
    }  # fmt: skip
    fresh = Result.begun(row.name, data, note=row.lacks)
    stored = record.read(row.name, out) if go_on else None
    if stored is None:
        return fresh
    odd = [
        name
        for name in ("private", "public", "test", "unit")
        if stored.data.get(name, fresh.data[name]) != fresh.data[name]
    ]
    if odd:
        raise UsageError(
            f"{row.name}.json has other {listed(odd)}: its figures and new ones cannot be compared. "
            "Run all of it anew, without --continue"
        )
    return stored
