"""This project: records vote, or teachers, and a student learns from what is released.

A row of a campaign has its own options. In a comparison they follow from epsilon: of records' votes the
default and dense votes, with one to three settings; of teachers two mechanisms, with numbers of teachers
and noise from a search, and arrays, whose numbers follow from public ones by rule.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.data.images import svhn_teachers
from benchmarks.methods import campaign
from benchmarks.methods.bounds import bounds_of
from benchmarks.methods.campaign import Outcome, Source, lesson
from benchmarks.methods.method import (
    DELTA,
    Fitted,
    Method,
    Setting,
    altered_epsilon,
    mu,
    needed,
    product,
)  # fmt: skip
from benchmarks.methods.standard import output
from benchmarks.problem import Problem
from benchmarks.record import Cost, Run
from benchmarks.rows import Options, Row
from party.identity.keys import shard_key
from party.teachers.ensemble import Averaged
from pate.accounting.gdp import epsilon_from_delta
from pate.campaign.choices import ARRAYS
from pate.campaign.default_noise import PAPERS
from pate.campaign.outlook import Outlook
from pate.campaign.representatives import choose as choose_representatives
from pate.campaign.settings import spec_of
from pate.codes import DENSE, NEAREST, code_of
from pate.data.values import Dataset, Images, Inputs, Table, content_hash
from pate.errors import BudgetError, UsageError
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from student.trainers.base import Effort, Lesson, Student, learns_from_counts
from student.trainers.choose import train

#: Trials of each setting of a row's own.
_TRIALS: Final = 5
#: Teachers of all parties, and noise as a share of them, that a search begins with.
_TEACHERS: Final = (50, 250)
_NOISE: Final = (0.16, 0.5)
#: The fewest units of a teacher; and of a table with units enough, where a teacher of fewer records is a
#: prior-fitted network: a thousand of them take a quarter of an hour for 9,000 votes each.
_FEWEST: Final = 6
_FEWEST_OF_TABLE: Final = 60
#: Of Confident-GNMax: noise of the check relative to that of the label, and the threshold as a share of the
#: teachers, as the project's defaults have them.
_CHECK, _THRESHOLD = PAPERS["sigma1"] / PAPERS["sigma2"], PAPERS["threshold"]
_OPTIONS: Final = {one.name for one in fields(Options)}


def records(row: Row, work: Path, screen: Screen) -> Method:
    """Return records' votes, with a folder for the parties' homes."""
    chosen: dict[tuple[bytes, int], tuple[int, ...]] = {}

    def representatives(inputs: Inputs, number: int, say: Any) -> tuple[int, ...]:
        key = (content_hash(inputs), number)
        if key not in chosen:
            chosen[key] = choose_representatives(inputs, number, say)
        return chosen[key]

    def settings(problem: Problem) -> list[Setting]:
        return _own(row) or of_comparison(problem)

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        if row.options is None:
            options = options_of_records(problem, setting, needed(epsilon))
        else:
            options = _options(setting)
        options = scaled(options, problem.fewer)
        place = work / "homes"
        shutil.rmtree(place, ignore_errors=True)  # patients would have voted
        parts = [problem.split.private.take(part) for part in problem.parts(seed)]
        sources = campaign.records_of(parts, place, screen)
        outcome = campaign.run(
            sources, problem.split.queries, options, place=place, screen=screen, chosen=representatives
        )  # fmt: skip
        return learnt(row, problem, setting, outcome, seed, screen)

    return Method(
        name="records", settings=settings, fit=fit, rehearses=True,
        trials=(_TRIALS, 0), delta=delta_of,
    )  # fmt: skip


def teachers(row: Row, work: Path, screen: Screen) -> Method:
    """Return teachers' votes; teachers and votes are stored in the folder, and used again."""

    def settings(problem: Problem) -> list[Setting]:
        if own := _own(row):
            return own
        # Of images only the project's defaults, since each student there takes minutes.
        if isinstance(problem.split.private.inputs, Images):
            return product(aggregator=("confident-gnmax",))
        numbers = [each for each in _TEACHERS if problem.units >= fewest(problem) * each]
        by_label = product(
            aggregator=("gnmax", "confident-gnmax"), teachers=tuple(numbers), noise=_NOISE
        )
        return [*by_label, {"aggregator": "gnmax", "release": ARRAYS}]

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        parts = problem.parts(seed)
        if "release" in setting:
            return at_once(row, problem, setting, needed(epsilon), seed, work, screen)
        if row.options is None:
            shares = shares_of(problem, int(setting.get("teachers", _TEACHERS[-1])), seed)
            if not shares:
                return untaught(problem)
            options = options_of_teachers(problem, setting, needed(epsilon), sum(shares))
        else:
            options = _options(setting)
            shares = options.teachers_of(len(parts))
        dealing = 0 if problem.split.sizes else seed
        place = work / f"{problem.name}-{'-'.join(map(str, shares))}-{options.model}-{dealing}"
        reused = place.exists()
        began, worked = time.monotonic(), time.process_time()
        if problem.name == "svhn-votes":
            sources: list[Source] = [*svhn_teachers(len(parts))]
        else:
            own = [problem.split.private.take(part) for part in parts]
            taught = replace(options, teachers=shares)
            sources = campaign.teachers_of(own, taught, place, screen)
        seconds, spent = time.monotonic() - began, time.process_time() - worked
        try:
            outcome = campaign.run(
                sources, problem.split.queries, options, place=place, screen=screen,
                train=_trainer(row, setting, seed, screen),
            )  # fmt: skip
        except BudgetError:
            if row.options is not None:
                raise
            return untaught(problem)  # not even one answer is paid for
        outcome = replace(
            outcome,
            seconds={"teachers": seconds, **outcome.seconds},
            cost=replace(outcome.cost, seconds=outcome.cost.seconds + spent / len(parts)),
        )
        made = learnt(row, problem, setting, outcome, seed, screen)
        assert made.run is not None
        return replace(made, run=replace(made.run, reused=reused))

    return Method(
        name="teachers", settings=settings, fit=fit, delta=delta_of,
        widens={} if row.options else {"teachers": 2, "noise": 2},
    )  # fmt: skip


def at_once(
    row: Row,
    problem: Problem,
    setting: Setting,
    epsilon: float,
    seed: int,
    work: Path,
    screen: Screen,
) -> Fitted:
    """Return what a student learns from teachers' answers to the whole public set, all numbers by rule."""
    private, public = problem.split.private, problem.split.queries
    parts = problem.parts(seed)
    options = Options(
        aggregator="gnmax",
        epsilon=epsilon,
        delta=DELTA,
        unit=problem.unit,
        release=str(setting["release"]),
        expected_records=problem.units,
        min_parties=len(parts) - 1,
        colluders=0,
        parties=str(len(parts)),
        classes=",".join(private.classes),
    )
    teachers = Outlook.teachers_wanted(spec_of(options, public))
    place = work / "homes"
    shutil.rmtree(place, ignore_errors=True)
    homes = [private_directory(campaign.home(place, at)) for at in range(len(parts))]
    sources: list[Source] = [
        Averaged(private.take(part), teachers, shard_key(each))
        for part, each in zip(parts, homes, strict=True)
    ]
    outcome = campaign.run(sources, public, options, place=place, screen=screen)
    return learnt(row, problem, setting, outcome, seed, screen)


def of_comparison(problem: Problem) -> list[Setting]:
    """Return the one setting of records' votes: nearest for images, rounds by rule for all else."""
    images = isinstance(problem.split.private.inputs, Images)
    return product(code=(NEAREST if images else DENSE,), student=("auto",))


def options_of_records(problem: Problem, setting: Setting, epsilon: float) -> Options:
    """Return the options of the campaign that costs ``epsilon`` where a unit is added or removed.

    In directions records vote in rounds, in as many as the setting says or by rule, unless it says an answer;
    the code ``dense`` has as many directions as the rule says.
    """
    code, delta = str(setting["code"]), delta_of(setting)
    return Options(
        aggregator="neighbour",
        epsilon=altered_epsilon(epsilon, f"{DENSE}-2" if code == DENSE else code, delta),
        delta=delta,
        unit=problem.unit,
        rounds=setting.get("rounds"),
        answer=setting.get("answer"),
        noise_law="geometric" if delta == 0 else "gaussian",
        code=code,
        representatives=int(code.partition("-")[2] or 0) or None,
        expected_records=problem.units,
        min_parties=problem.parties - 1,
        colluders=0,
    )


def options_of_teachers(problem: Problem, setting: Setting, epsilon: float, number: int) -> Options:
    """Return the options of a campaign with so many teachers in all."""
    confident = setting["aggregator"] == "confident-gnmax"
    made = Options(
        aggregator="confident-gnmax" if confident else "gnmax",
        epsilon=epsilon,
        delta=DELTA,
        unit=problem.unit,
    )
    if "noise" not in setting:
        return made
    noise = Fraction(setting["noise"]) * number
    return replace(
        made,
        sigma2=str(math.ceil(noise)),
        sigma1=str(math.ceil(noise * _CHECK)) if confident else None,
        threshold=str(math.ceil(number * _THRESHOLD)) if confident else None,
    )


def delta_of(setting: Setting) -> float:
    """Return the delta of a setting: in a comparison nearest votes have geometric noise, which needs none."""
    if "delta" in setting:
        return float(setting["delta"])
    return 0.0 if setting.get("code") == NEAREST else DELTA


def scaled(options: Options, fewer: float) -> Options:
    """Return the options with an epsilon at which noise is less by as much as voters are fewer in a trial.

    Epsilon times the standard deviation is a constant only as long as both laws' epsilon is small.

    >>> votes = Options(aggregator="neighbour", epsilon=1.0, delta=0.0, noise_law="geometric")
    >>> round(scaled(votes, 8.0).epsilon, 3)
    5.812
    """
    if fewer == 1:
        return options
    if options.noise_law == "geometric":
        # A scale of two-sided geometric noise has the variance 2 a / (1 - a)^2, a = exp(-epsilon / 2).
        halves = options.epsilon / 2
        root = math.exp(-halves / 2) / (1 - math.exp(-halves)) / fewer
        return replace(options, epsilon=4 * math.asinh(1 / (2 * root)))
    if options.noise_law is None and code_of(options.code or NEAREST).name == NEAREST:
        raise UsageError("a trial needs options that name the law of the noise")
    ratio = fewer * mu(options.epsilon, options.delta)
    return replace(options, epsilon=epsilon_from_delta(ratio, options.delta))


def fewest(problem: Problem) -> int:
    """Return the fewest units that a teacher has."""
    table = isinstance(problem.split.private.inputs, Table)
    many = problem.units >= _TEACHERS[0] * _FEWEST_OF_TABLE
    return _FEWEST_OF_TABLE if table and many else _FEWEST


def shares_of(problem: Problem, number: int, dealing: int) -> tuple[int, ...]:
    """Return the teachers of each party, in proportion to its records; none if records are too few."""
    if problem.units < fewest(problem) * number:
        return ()
    parts = problem.parts(dealing)
    whole = sum(map(len, parts))
    return tuple(max(2, round(number * len(part) / whole)) for part in parts)


def learnt(
    row: Row, problem: Problem, setting: Setting, outcome: Outcome, seed: int, screen: Screen
) -> Fitted:
    """Return what a student of a campaign says, and what the campaign tells of itself."""
    validation, test = problem.validation, problem.split.test
    public, labels, statement = problem.split.public, outcome.labels, outcome.statement
    counts = {"asked": statement.queries_asked, "kept": len(labels.rows)}
    if public.kind == "class":
        truth = public.with_classes(labels.classes).labels
        counts["right"] = sum(int(truth[one.query]) == one.label for one in labels.rows)
    began = time.monotonic()
    said: tuple[NDArray[np.floating], NDArray[np.floating]]
    if problem.name == "svhn-votes":
        said = np.empty((0, 0)), np.empty((0, 0))
    elif labels.rows or learns_from_counts(labels.noisy) or public.kind != "class":
        student = _trainer(row, setting, seed, screen)(lesson(labels, problem.split.queries), 0)
        said = output(student, validation), output(student, test)
    else:  # no count stood out of the noise, and there is no student
        said = nothing(validation), nothing(test)
    told = Run(
        seed=seed,
        counts=counts,
        epsilons={"charged": outcome.charged},
        bounds=bounds_of(outcome),
        seconds={**outcome.seconds, "student": time.monotonic() - began},
    )
    guarantee = {
        "epsilon": statement.epsilon,
        "delta": statement.delta,
        "unit": statement.unit,
        "observer": statement.observer,
        "server_epsilon": outcome.server_epsilon,
        "adjacency": statement.adjacency,
    }
    return Fitted(said[0], said[1], outcome.cost, told, guarantee)


def nothing(data: Dataset) -> NDArray[np.floating]:
    """Return the scores of no model: all classes are equal."""
    return np.full((len(data), len(data.classes)), 1 / len(data.classes))


def untaught(problem: Problem) -> Fitted:
    """Return what no model says."""
    return Fitted(nothing(problem.validation), nothing(problem.split.test), Cost(0, 0, 0, 0.0))


def _own(row: Row) -> list[Setting]:
    """Return the settings of a row's own options, none without any."""
    if row.options is None:
        return []
    made = [row.options.with_code(code) for code in row.tries] or [row.options]
    student = {"student": row.student} | ({"steps": row.steps} if row.steps else {})
    return [{**each.told(), **student} for each in made]


def _options(setting: Setting) -> Options:
    return Options(**{name: value for name, value in setting.items() if name in _OPTIONS})


def _trainer(
    row: Row, setting: Setting, seed: int, screen: Screen
) -> Callable[[Lesson, int], Student]:
    """Return the training of a student for a round; 0 is the final one."""

    def teach(held: Lesson, number: int) -> Student:
        with screen.bar(f"student for round {number}" if number else "student") as move:
            return train(
                held,
                model=str(setting.get("student", "auto")),
                # A multiplier beyond any number of rounds: no two trainings share a seed.
                seed=1_000 * seed + number,
                effort=Effort(row.steps),
                progress=lambda step, total, _loss: move(step, total),
            )

    return teach
