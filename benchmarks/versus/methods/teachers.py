"""This project with teachers: each labels the public inputs with its part of a party's records."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from benchmarks.papers.campaign import ensemble
from benchmarks.papers.row import Options
from benchmarks.versus.method import DELTA, Cost, Fitted, Method, Setting, needed, product
from benchmarks.versus.methods import protocol
from party.teachers.training import Ensemble
from pate.campaign.default_noise import PAPERS
from pate.data.values import Images, Table, content_hash
from pate.errors import BudgetError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.versus.problem import Problem
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen
    from pate.votes import Counts

#: Teachers of all parties, and noise as a share of them, that the search begins with.
_TEACHERS: Final = (50, 250)
_NOISE: Final = (0.16, 0.5)
#: The fewest units of a teacher; and of a table with units enough, where a teacher of fewer records is a
#: prior-fitted network: a thousand of them take a quarter of an hour for 9,000 votes each.
_FEWEST: Final = 6
_FEWEST_OF_TABLE: Final = 60
#: Of Confident-GNMax: noise of the check relative to that of the label, and the threshold as a share of the
#: teachers, as the project's defaults have them.
_CHECK, _THRESHOLD = PAPERS["sigma1"] / PAPERS["sigma2"], PAPERS["threshold"]


@dataclass(frozen=True, eq=False)
class Remembering(Ensemble):
    """Teachers that answer the same queries once: the campaigns of a search differ in what follows."""

    answered: dict[tuple[bytes, tuple[str, ...]], Counts] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Ensemble) -> Remembering:
        """Return the same teachers."""
        return cls(**{each.name: getattr(made, each.name) for each in fields(made)})

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        """Return how many teachers answer each class."""
        key = content_hash(inputs), tuple(classes)
        if key not in self.answered:
            self.answered[key] = super().vote(inputs, classes)
        return self.answered[key].copy()


def settings(problem: Problem) -> list[Setting]:
    """Return what is tried first: two mechanisms, and numbers of teachers that the records suffice for.

    Of images only the project's defaults, since each student there takes minutes.
    """
    if isinstance(problem.split.private.inputs, Images):
        return product(aggregator=("confident-gnmax",))
    numbers = [each for each in _TEACHERS if problem.units >= fewest(problem) * each]
    return product(aggregator=("gnmax", "confident-gnmax"), teachers=tuple(numbers), noise=_NOISE)


def fewest(problem: Problem) -> int:
    """Return the fewest units that a teacher has."""
    table = isinstance(problem.split.private.inputs, Table)
    many = problem.units >= _TEACHERS[0] * _FEWEST_OF_TABLE
    return _FEWEST_OF_TABLE if table and many else _FEWEST


def shares_of(problem: Problem, teachers: int, dealing: int) -> tuple[int, ...]:
    """Return the teachers of each party, in proportion to its records; none if records are too few."""
    parts = problem.parts(dealing)
    if problem.units < fewest(problem) * teachers:
        return ()
    whole = sum(map(len, parts))
    return tuple(max(2, round(teachers * len(part) / whole)) for part in parts)


def method(work: Path, screen: Screen) -> Method:
    """Return the method, with a folder for the parties' homes."""
    trained: dict[tuple[str, tuple[int, ...], int], tuple[list[Ensemble], float]] = {}

    def ensembles(
        problem: Problem, shares: tuple[int, ...], seed: int
    ) -> tuple[list[Ensemble], float]:
        """Return the parties' teachers, and the most seconds that a party's training and votes took."""
        key = (problem.name, shares, seed)
        if key not in trained:
            place = work / "teachers"
            shutil.rmtree(place, ignore_errors=True)
            made: list[Ensemble] = []
            longest = 0.0
            for number, (part, share) in enumerate(zip(problem.parts(seed), shares, strict=True)):
                began = time.process_time()
                records = problem.split.private.take(part)
                home = protocol.home(place, number)
                made.append(Remembering.of(ensemble(home, records, share, screen)))
                made[-1].vote(problem.split.queries, problem.split.private.classes)
                longest = max(longest, time.process_time() - began)
            trained[key] = made, longest
        return trained[key]

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        from pate.campaign.settings import spec_of

        shares = shares_of(problem, int(setting.get("teachers", _TEACHERS[-1])), seed)
        if not shares:
            return _untaught(problem)
        made, seconds = ensembles(problem, shares, seed)
        public = problem.split.queries
        options = replace(
            options_of(problem, setting, needed(epsilon), sum(shares)), parties=str(len(made))
        )
        spec = spec_of(options, public, say=screen.say)
        place = work / "homes"
        shutil.rmtree(place, ignore_errors=True)
        try:
            labels, cost = protocol.campaign(made, public, spec, place, screen)
        except BudgetError:  # not even one answer is paid for
            return _untaught(problem)
        return protocol.taught(
            problem, labels, replace(cost, seconds=cost.seconds + seconds), "auto", seed
        )

    return Method(name="teachers", settings=settings, fit=fit, widens={"teachers": 2, "noise": 2})


def options_of(problem: Problem, setting: Setting, epsilon: float, teachers: int) -> Options:
    """Return the options of a campaign with so many teachers in all."""
    confident = setting["aggregator"] == "confident-gnmax"
    made = Options(
        aggregator="confident-gnmax" if confident else "gnmax",
        epsilon=epsilon,
        delta=DELTA,
        unit=problem.unit,
        campaign="versus",
        aggregation="masked",
        classes=",".join(problem.split.private.classes),
    )
    if "noise" not in setting:
        return made
    noise = Fraction(setting["noise"]) * teachers
    return replace(
        made,
        sigma2=str(math.ceil(noise)),
        sigma1=str(math.ceil(noise * _CHECK)) if confident else None,
        threshold=str(math.ceil(teachers * _THRESHOLD)) if confident else None,
    )


def _untaught(problem: Problem) -> Fitted:
    """Return what no model says."""
    validation, test = problem.validation, problem.split.test
    return Fitted(protocol.nothing(validation), protocol.nothing(test), Cost(0, 0, 0, 0.0))
