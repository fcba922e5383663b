"""This project: records vote, or teachers, and a student learns from what is released.

A row of a campaign has its own options. In a comparison they follow from epsilon, and all numbers of the
defaults from public ones by rule: records vote in rounds, teachers cast arrays; of images nearest votes and
labels. Beside them are records in one release, of two codes, and teachers by labels, with a search.
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

from benchmarks.data.images import svhn_teachers
from benchmarks.methods import campaign
from benchmarks.methods.campaign import Outcome, bounds_of, lesson
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
from party.teachers.linear import OF_MANY, OF_PARTIES
from pate.accounting.gdp import epsilon_from_delta
from pate.campaign.choices import ARRAYS
from pate.campaign.defaults import PAPERS
from pate.campaign.representatives import choose as choose_representatives
from pate.campaign.settings import spec_of
from pate.codes import DENSE, NEAREST, code_of
from pate.data.values import Images, Inputs, Table, content_hash
from pate.errors import BudgetError, DataError, UsageError
from pate.planning.forecast import teachers_wanted
from pate.runtime.home import private_directory
from pate.runtime.screen import Screen
from student.chances.evidence import ONLY_NOISE
from student.lesson import Effort, Lesson, Student, learns_from_counts
from student.training import train

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
#: Settings of records' votes in one release.
ONCE: Final[tuple[Setting, ...]] = (
    {"code": NEAREST, "student": "auto"},
    {"code": f"{DENSE}-128", "answer": "class", "student": "auto"},
)
_OPTIONS: Final = {one.name for one in fields(Options)}


def methods(row: Row, work: Path, screen: Screen) -> list[Method]:
    """Return all kinds of votes: the defaults, records in one release, teachers whose labels each cost."""
    usual, asked = records(row, work, screen), teachers(row, work, screen)
    return [
        usual,
        asked,
        replace(usual, name="records-once", settings=lambda _: [*ONCE]),
        replace(
            asked, name="teachers-labels", settings=by_labels, widens={"teachers": 2, "noise": 2}
        ),
    ]


def records(row: Row, work: Path, screen: Screen) -> Method:
    """Return records' votes, with a folder for the parties' homes."""
    chosen: dict[tuple[bytes, int], tuple[int, ...]] = {}

    def representatives(inputs: Inputs, number: int, say: Any) -> tuple[int, ...]:
        key = (content_hash(inputs), number)
        if key not in chosen:
            chosen[key] = choose_representatives(inputs, number, say)
        return chosen[key]

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        if row.options is None:
            options = options_of_records(problem, setting, needed(epsilon))
        else:
            options = _options(setting)
        parts = [problem.split.private.take(part) for part in problem.parts(seed)]
        place = _homes(work)
        outcome = campaign.run(
            campaign.records_of(parts, place, screen), problem.split.queries,
            scaled(options, problem.fewer), place=place, screen=screen, chosen=representatives,
        )  # fmt: skip
        return learnt(row, problem, setting, outcome, seed, screen)

    return Method(
        name="records", settings=lambda problem: _own(row) or of_comparison(problem), fit=fit,
        rehearses=True, trials=(_TRIALS, 0), delta=delta_of,
    )  # fmt: skip


def _homes(work: Path) -> Path:
    """Return an empty folder for parties' homes: in those of another campaign patients would have voted."""
    place = work / "homes"
    shutil.rmtree(place, ignore_errors=True)
    return place


def teachers(row: Row, work: Path, screen: Screen) -> Method:
    """Return teachers' votes; teachers and votes are stored in the folder, and used again."""

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        private = problem.split.private
        own = [private.take(part) for part in problem.parts(seed)]
        reused, began, worked = False, time.monotonic(), time.process_time()
        if "release" in setting:  # answers to the whole public set at once, all numbers by rule
            place = _homes(work)
            if row.options is None:
                options = options_of_arrays(problem, setting, needed(epsilon))
                number = teachers_wanted(spec_of(options, problem.split.queries))
            else:
                options = _options(setting)
                number = options.teachers_of(len(own))[0]
            penalty = OF_PARTIES if problem.by_party else OF_MANY
            sources: list[campaign.Source] = [
                Averaged(
                    each,
                    number,
                    shard_key(private_directory(campaign.home(place, at))),
                    penalty,
                    problem.by_party,
                )
                for at, each in enumerate(own)
            ]
        else:
            if row.options is None:
                shares = shares_of(problem, int(setting.get("teachers", _TEACHERS[-1])), seed)
                if not shares:
                    return untaught(problem)
                options = options_of_teachers(problem, setting, needed(epsilon), sum(shares))
            else:
                options = _options(setting)
                shares = options.teachers_of(len(own))
            dealing = 0 if problem.split.sizes else seed
            place = work / f"{problem.name}-{'-'.join(map(str, shares))}-{options.model}-{dealing}"
            reused = place.exists()
            if problem.name == "svhn-votes":
                sources = [*svhn_teachers(len(own))]
            else:
                asked = replace(options, teachers=shares)
                sources = campaign.teachers_of(own, asked, place, screen)
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
            cost=replace(outcome.cost, seconds=outcome.cost.seconds + spent / len(own)),
        )
        made = learnt(row, problem, setting, outcome, seed, screen)
        assert made.run is not None
        return replace(made, run=replace(made.run, reused=reused))

    return Method(
        name="teachers", settings=lambda problem: _own(row) or of_teachers(problem), fit=fit,
        delta=delta_of,
    )  # fmt: skip


def of_comparison(problem: Problem) -> list[Setting]:
    """Return the one setting of records' votes: nearest for images, rounds by rule for all else."""
    images = isinstance(problem.split.private.inputs, Images)
    return product(code=(NEAREST if images else DENSE,), student=("auto",))


def of_teachers(problem: Problem) -> list[Setting]:
    """Return the one setting of teachers: labels of images by default, else arrays, all numbers by rule."""
    if isinstance(problem.split.private.inputs, Images):
        return product(aggregator=("confident-gnmax",))
    return product(aggregator=("gnmax",), release=(ARRAYS,))


def by_labels(problem: Problem) -> list[Setting]:
    """Return the settings that a search for teachers begins with, each answer of which costs."""
    numbers = [each for each in _TEACHERS if problem.units >= fewest(problem) * each]
    return product(aggregator=("gnmax", "confident-gnmax"), teachers=tuple(numbers), noise=_NOISE)


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


def options_of_arrays(problem: Problem, setting: Setting, epsilon: float) -> Options:
    """Return the options of a campaign of teachers' arrays."""
    return Options(
        aggregator="gnmax",
        epsilon=epsilon,
        delta=DELTA,
        unit=problem.unit,
        release=str(setting["release"]),
        expected_records=problem.units,
        # Of many parties as many may fail as the server allows by default.
        min_parties=None if problem.by_party else problem.parties - 1,
        colluders=0,
        parties=str(problem.parties),
        classes=",".join(problem.split.private.classes),
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
    public, labels, statement = problem.split.public, outcome.labels, outcome.statement
    counts = {"asked": statement.queries_asked, "kept": len(labels.rows)}
    if public.kind == "class":
        truth = public.with_classes(labels.classes).labels
        counts["right"] = sum(int(truth[one.query]) == one.label for one in labels.rows)
    began = time.monotonic()
    made = untaught(problem)  # no count stood out of the noise, and there is no student
    if problem.name == "svhn-votes":
        made = replace(made, validation=np.empty((0, 0)), test=np.empty((0, 0)))
    elif labels.rows or learns_from_counts(labels.noisy) or public.kind != "class":
        try:
            student = _trainer(row, setting, seed, screen)(lesson(labels, problem.split.queries), 0)
        except DataError as error:
            if str(error) != ONLY_NOISE:
                raise
            screen.say(str(error))
        else:
            said = [output(student, part) for part in (problem.validation, problem.split.test)]
            made = Fitted(said[0], said[1], made.cost)
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
    return replace(made, cost=outcome.cost, run=told, guarantee=guarantee)


def untaught(problem: Problem) -> Fitted:
    """Return what no model says: all classes are equal."""
    validation, test = (
        np.full((len(part), len(part.classes)), 1 / max(len(part.classes), 1))
        for part in (problem.validation, problem.split.test)
    )
    return Fitted(validation, test, Cost(0, 0, 0, 0.0))


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
