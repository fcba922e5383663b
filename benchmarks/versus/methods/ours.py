"""This project: records vote by the real protocol, and a student learns from the noisy counts."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks.papers.row import Options
from benchmarks.versus.calibrate import altered_epsilon
from benchmarks.versus.method import DELTA, Fitted, Method, Setting, needed, product
from benchmarks.versus.methods import protocol
from pate.codes import NEAREST
from pate.data.values import Images, Table

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.versus.problem import Problem
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen

#: Directions of dense votes, with a public set that has as many rows.
_DIRECTIONS, _FEW_DIRECTIONS, _MANY = 128, 32, 1_000


def settings(problem: Problem) -> list[Setting]:
    """Return what is tried: the default, and dense votes; the number of representatives is the default.

    Of tables two students are tried, of images only the default.
    """
    places = _DIRECTIONS if len(problem.split.public) >= _MANY else _FEW_DIRECTIONS
    inputs = problem.split.private.inputs
    if isinstance(inputs, Images):
        return product(code=(NEAREST,), student=("auto",))
    dense = product(code=(f"dense-{places}",), student=("auto",))
    if isinstance(inputs, Table):
        return product(code=(NEAREST,), student=("auto", "smoothing")) + dense
    return product(code=(NEAREST,), student=("auto",)) + dense


def options_of(problem: Problem, setting: Setting, epsilon: float) -> Options:
    """Return the options of the campaign that costs ``epsilon`` where a unit is added or removed."""
    code, delta = str(setting["code"]), delta_of(setting)
    return Options(
        aggregator="neighbour",
        epsilon=altered_epsilon(epsilon, code, delta),
        delta=delta,
        unit=problem.unit,
        noise_law="geometric" if delta == 0 else "gaussian",
        code=code,
        representatives=None if code == NEAREST else int(code.partition("-")[2]),
        expected_records=problem.units,
        min_parties=problem.parties - 1,
        colluders=0,
    )


def delta_of(setting: Setting) -> float:
    """Return the delta of a setting: nearest votes have geometric noise, which needs none."""
    return 0.0 if setting["code"] == NEAREST else DELTA


def method(work: Path, screen: Screen) -> Method:
    """Return the method, with a folder for the parties' homes."""
    representatives: dict[tuple[int, int], tuple[int, ...]] = {}

    def chosen(inputs: Inputs, number: int, say: Any) -> tuple[int, ...]:
        from pate.campaign.representatives import choose

        key = (id(inputs), number)
        if key not in representatives:
            representatives[key] = choose(inputs, number, say)
        return representatives[key]

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        from party.identity.keys import shard_key
        from party.voting.neighbour import NeighbourVotes
        from pate.campaign.settings import spec_of
        from pate.runtime.home import private_directory

        options = options_of(problem, setting, needed(epsilon))
        public, parts = problem.split.queries, problem.parts(seed)
        asked = replace(
            options, campaign="versus", parties=str(len(parts)), aggregation="masked",
            classes=",".join(problem.split.private.classes),
        )  # fmt: skip
        spec = spec_of(asked, public, say=screen.say, chosen=chosen)
        place = work / "homes"
        shutil.rmtree(place, ignore_errors=True)
        records = [
            NeighbourVotes(
                problem.split.private.take(part),
                shard_key(private_directory(protocol.home(place, number))),
                say=screen.say,
            )
            for number, part in enumerate(parts)
        ]
        labels, cost = protocol.campaign(records, public, spec, place, screen)
        return protocol.taught(problem, labels, cost, str(setting["student"]), seed)

    return Method(
        name="ours",
        settings=settings,
        fit=fit,
        rehearses=True,
        delta=delta_of,
    )
