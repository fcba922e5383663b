"""This project: records vote by the real protocol, and a student learns from the noisy counts."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks.papers.campaign import lesson
from benchmarks.papers.row import Options
from benchmarks.versus.calibrate import altered_epsilon
from benchmarks.versus.method import DELTA, Cost, Fitted, Method, Setting, needed, product
from pate.codes import NEAREST
from pate.data.values import Images, Table

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.versus.problem import Problem
    from party.voting.voter import Voter
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Dataset, Inputs
    from pate.formats.labels import LabelSet
    from pate.runtime.screen import Screen
    from student.trainers.base import Student

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


class _Counted:
    """A voter whose messages are counted."""

    def __init__(self, voter: Voter) -> None:
        self._voter = voter
        self.cost = Cost(0, 0, 0, 0.0)
        self._lock = threading.Lock()

    def handle(self, body: bytes) -> bytes:
        """Answer as the voter does."""
        began = time.thread_time()
        reply = self._voter.handle(body)
        spent = time.thread_time() - began
        with self._lock:
            before = self.cost
            self.cost = Cost(
                before.exchanges + 1,
                before.up + len(reply),
                before.down + len(body),
                before.seconds + spent,
            )
        return reply


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
        from pate.campaign.settings import spec_of
        from student.trainers.base import Effort
        from student.trainers.choose import train

        options = options_of(problem, setting, needed(epsilon))
        public, parts = problem.split.queries, problem.parts(seed)
        asked = replace(
            options, campaign="versus", parties=str(len(parts)), aggregation="masked",
            classes=",".join(problem.split.private.classes),
        )  # fmt: skip
        spec = spec_of(asked, public, say=screen.say, chosen=chosen)
        records = [problem.split.private.take(part) for part in parts]
        place = work / "homes"
        shutil.rmtree(place, ignore_errors=True)
        labels, cost = _campaign(records, public, spec, place, screen)
        if not labels.rows:  # no count stood out of the noise, and there is no student
            return Fitted(_nothing(problem.validation), _nothing(problem.split.test), cost)
        student = train(
            lesson(labels, public), model=str(setting["student"]), seed=seed,
            effort=Effort(None), progress=lambda *_: None,
        )  # fmt: skip
        return Fitted(
            _scores(student, problem.validation), _scores(student, problem.split.test), cost
        )

    return Method(
        name="ours",
        settings=settings,
        fit=fit,
        rehearses=True,
        delta=delta_of,
    )


def _campaign(
    records: list[Dataset], public: Inputs, spec: CampaignSpec, place: Path, screen: Screen
) -> tuple[LabelSet, Cost]:
    """Run a campaign by the real protocol and return its labels and the cost of a party."""
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.results.report import LEDGER_FILE, label_set
    from party.identity.keys import shard_key
    from party.voting.neighbour import NeighbourVotes
    from pate.runtime.home import private_directory
    from simulation.campaign import run_campaign, wire_to
    from simulation.party import open_voter

    voters = []
    for number, held in enumerate(records):
        home = place / f"party_{number}"
        key = shard_key(private_directory(home))
        voters.append(_Counted(open_voter(home, NeighbourVotes(held, key, say=screen.say))))
    folder = place / "campaign"
    began = time.process_time()
    with (
        Ledger.create(folder / LEDGER_FILE, spec) as ledger,
        # It only calls ``handle``.
        wire_to(cast("list[Voter]", voters)) as wire,
    ):
        run_campaign(ledger, public, wire, screen=screen)
    costs = [voter.cost for voter in voters]
    server = time.process_time() - began - sum(cost.seconds for cost in costs)
    cost = Cost(
        max(cost.exchanges for cost in costs),
        max(cost.up for cost in costs),
        max(cost.down for cost in costs),
        max(cost.seconds for cost in costs),
        max(server, 0.0),
    )
    return label_set(folder), cost


def _nothing(held: Dataset) -> NDArray[np.floating]:
    """Return the scores of no model: all classes are equal."""
    return np.full((len(held), len(held.classes)), 1 / len(held.classes))


def _scores(student: Student, held: Dataset) -> NDArray[np.floating]:
    """Return probabilities in the order of the data's classes."""
    found = student.predict_probabilities(held.inputs)
    return found[:, [student.classes.index(name) for name in held.classes]]
