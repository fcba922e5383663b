"""Runs a row from its data to its result: campaign, student, evaluation, once per seed."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from benchmarks import measure
from benchmarks.papers import cost, reference
from benchmarks.papers.campaign import Outcome, hold, lesson, run_campaign
from benchmarks.papers.choose import choose
from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import Embedder
from benchmarks.papers.published import published
from benchmarks.papers.record import Result, Run, surroundings
from benchmarks.papers.split import Split, deal, units_in
from pate.errors import DataError
from simulation.report import majority_accuracy
from student.trainers.base import Effort
from student.trainers.choose import train as teach

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from benchmarks.papers.row import Row
    from benchmarks.standard_models import Floats
    from pate.data.values import Dataset
    from pate.runtime.screen import Screen
    from student.trainers.base import Lesson, Student


def run_row(row: Row, *, seeds: int, work: Path, screen: Screen) -> Result:
    """Run a row, once per seed from 0; each deals the records to the parties anew, but for sites.

    Args:
        row: to run.
        seeds: number of seeds.
        work: folder shared by seeds and rows: the parties' homes with their teachers and votes.
        screen: for lines and progress.

    Raises:
        PateError: if the data are missing, or do not allow the campaign.
    """
    if missing := [name for name in row.files if not (data_folder() / name).is_file()]:
        lacking = f"{', '.join(missing)} of PATE_TEST_DATA would make this row run"
        if row.votes is None:
            raise DataError(f"{row.name}: {lacking}")
        screen.say(f"{row.name}: {lacking}; a campaign over the published votes is run instead")
        runs = tuple(_of_votes(row, seed, work, screen) for seed in range(seeds))
        note = f"{lacking} whole; here are the votes that were published, and no student"
        return _result(row, runs, None, {}, note)
    module = module_of(row)
    embedder = Embedder.of(row.encoder, work) if row.encoder else None
    split: Split = module.load() if embedder is None else module.load(embedder)
    screen.say(
        f"{row.name}: {len(split.private)} private records, {len(split.public)} public, "
        f"{len(split.test)} to test; {split.note}"
    )
    chosen, why = choose(row, split, work=work, screen=screen) if row.tries else (row.options, "")
    taken = replace(row, options=chosen)
    done = [_run(taken, split, module, seed, work, screen) for seed in range(seeds)]
    runs = tuple(run for run, _ in done)
    said = [scores for _, scores in done]
    intervals = {
        name: (found.low, found.high)
        for name, figure in measure.figures_of(split.test).items()
        for found in [measure.estimate(figure, said, split.test)]
    }
    # Where parties agree on few columns, the non-private model still uses all of them.
    beside: Split = module.every_column() if hasattr(module, "every_column") else split
    named = "" if embedder is None else embedder.in_words
    told = _without_privacy(row, beside, work, screen)
    result = _result(row, runs, split, told, "", encoder=named)
    if why:
        settings = {**result.settings, "chosen": chosen.told(), "choice": why}
        result = replace(result, settings=settings)
    return replace(result, dealings=1 if row.sites else seeds, intervals=intervals)


def module_of(row: Row) -> ModuleType:
    """Return the module of the row's data."""
    return importlib.import_module(f"benchmarks.papers.data.{row.data}")


def _run(
    row: Row, split: Split, module: ModuleType, seed: int, work: Path, screen: Screen
) -> tuple[Run, Floats]:
    """Run one seed; return what its student says of the test records, too."""
    began = time.monotonic()
    dealing = 0 if row.sites else seed
    parties: Sequence[Dataset] = (
        tuple(module.sites().values()) if row.sites else deal(split.private, row.parties, dealing)
    )

    def train(held: Lesson, number: int) -> Student:
        title = f"student for round {number}" if number else "last student"
        screen.say(f"seed {seed}: {title}, on {len(held.queries)} labels")
        with screen.bar(title) as move:
            return teach(
                held,
                model=row.student,
                # A multiplier beyond any number of rounds: no two trainings share a seed.
                seed=1_000 * seed + number,
                effort=Effort(row.steps),
                progress=lambda step, total, _loss: move(step, total),
            )

    place = work / f"{row.data}-{len(parties)}-{dealing}"
    reused = place.exists()
    outcome = run_campaign(
        parties, split.queries, row.options, place=place, screen=screen, train=train
    )
    taught = time.monotonic()
    student = train(lesson(outcome.labels, split.queries), 0)
    ended = time.monotonic()
    seconds = {"student": ended - taught, "total": ended - began}
    run = _told(outcome, split.public, seed, reused=reused)
    said = reference.output(student, split.test)
    measured = measure.judged(said, split.test)
    told = ", ".join(f"{name} {value:.4f}" for name, value in measured.items())
    right = "" if run.right is None else f"{run.right} of {run.kept} labels right, "
    screen.say(
        f"seed {seed}: {right}{run.asked} asked; student: {told}; "
        f"epsilon {run.guarantee['epsilon']:.4g}"
    )
    return replace(run, student=measured, seconds={**run.seconds, **seconds}), said


def _of_votes(row: Row, seed: int, work: Path, screen: Screen) -> Run:
    """Run one seed on published votes, without a student."""
    assert row.votes is not None  # checked by the caller
    ensembles, public = published(row.votes, row.parties)
    place = work / f"published-{row.votes}"
    reused = place.exists()
    outcome = hold(ensembles, public.inputs, row.options, place=place, screen=screen)
    return _told(outcome, public, seed, reused=reused)


def _told(outcome: Outcome, public: Dataset, seed: int, *, reused: bool) -> Run:
    """Return the figures of a campaign, without its student."""
    bounds = cost.costs(outcome)
    statement, labels = outcome.statement, outcome.labels
    right = None
    if public.kind == "class":
        truth = public.with_classes(labels.classes).labels
        right = sum(int(truth[held.query]) == held.label for held in labels.rows)
    return Run(
        seed=seed,
        asked=statement.queries_asked,
        kept=len(labels.rows),
        right=right,
        guarantee={
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "unit": statement.unit,
            "adjacency": statement.adjacency,
            "observer": statement.observer,
            "server_epsilon": outcome.server_epsilon,
        },
        charged=outcome.charged_epsilon,
        bounds={bound.name: bound.epsilon for bound in bounds},
        classical={bound.name: bound.classical for bound in bounds},
        student={},
        seconds=dict(outcome.seconds),
        reused=reused,
    )


def _result(
    row: Row,
    runs: tuple[Run, ...],
    split: Split | None,
    told: Mapping[str, float | str],
    note: str,
    *,
    encoder: str = "",
) -> Result:
    commit, versions, machine = surroundings()
    settings = row.settings()
    if encoder:
        settings["encoder"] = encoder
    return Result(
        row=row.name,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        versions=versions,
        machine=machine,
        settings=settings,
        split=_sizes(split),
        majority=(
            majority_accuracy(split.test)
            if split is not None and split.test.kind == "class"
            else 0.0
        ),
        reference=told,
        runs=runs,
        note=note,
    )


def _without_privacy(row: Row, split: Split, work: Path, screen: Screen) -> dict[str, float | str]:
    """Return the measures of the non-private model; rows over the same records share it."""
    kept = work / f"{row.data}-without-privacy-{row.chooser}.json"
    if kept.is_file():
        return cast("dict[str, float | str]", json.loads(kept.read_text()))
    screen.say("the same without privacy, on all parties' records pooled")
    began = time.monotonic()
    with screen.bar("without privacy") as move:
        told = reference.pooled(
            split,
            figure=row.chooser,
            seed=0,
            progress=lambda step, total, _loss: move(step, total),
        )
    told["seconds"] = time.monotonic() - began
    kept.write_text(json.dumps(told))
    return told


def _sizes(split: Split | None) -> dict[str, int | str]:
    if split is None:
        return {"note": "the images are not here: published votes"}
    units = {
        name: units_in(part)
        for name, part in (
            ("private", split.private),
            ("public", split.public),
            ("test", split.test),
        )
    }
    return {
        "private": len(split.private),
        "public": len(split.public),
        "test": len(split.test),
        **{f"{name}_units": count for name, count in units.items()},
        "note": split.note,
    }
