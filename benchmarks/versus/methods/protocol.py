"""One campaign of this project by the real protocol, with what it cost a party."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, cast

import numpy as np

from benchmarks.papers.campaign import lesson
from benchmarks.versus.method import Cost, Fitted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.papers.campaign import Source
    from benchmarks.versus.problem import Problem
    from party.voting.voter import Voter
    from pate.campaign.spec import CampaignSpec
    from pate.data.values import Dataset, Inputs
    from pate.formats.labels import LabelSet
    from pate.runtime.screen import Screen
    from student.trainers.base import Student


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


def campaign(
    sources: Sequence[Source], public: Inputs, spec: CampaignSpec, place: Path, screen: Screen
) -> tuple[LabelSet, Cost]:
    """Run a campaign and return its labels and the cost of a party.

    Args:
        sources: of the parties' votes, in the order of their homes.
        public: the public set.
        spec: of the campaign.
        place: an empty folder for the homes.
        screen: for lines.
    """
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.results.report import LEDGER_FILE, label_set
    from simulation.campaign import run_campaign, wire_to
    from simulation.party import open_voter

    voters = [
        _Counted(open_voter(home(place, number), source)) for number, source in enumerate(sources)
    ]
    folder = place / "campaign"
    began = time.process_time()
    with (
        Ledger.create(folder / LEDGER_FILE, spec) as ledger,
        # It only calls ``handle``.
        wire_to(cast("list[Voter]", voters)) as wire,
    ):
        run_campaign(ledger, public, wire, screen=screen)
    seconds = time.process_time() - began
    return label_set(folder), Cost.of_parties([voter.cost for voter in voters], seconds)


def home(place: Path, number: int) -> Path:
    """Return the home of a party."""
    return place / f"party_{number}"


def taught(problem: Problem, labels: LabelSet, cost: Cost, student: str, seed: int) -> Fitted:
    """Return what a student of the labels says; without labels that of no model.

    Args:
        problem: with the public set.
        labels: that were released.
        cost: of the campaign.
        student: kind of the student.
        seed: of its training.
    """
    from student.trainers.base import Effort
    from student.trainers.choose import train

    validation, test = problem.validation, problem.split.test
    if not labels.rows:  # no count stood out of the noise, and there is no student
        return Fitted(nothing(validation), nothing(test), cost)
    made = train(
        lesson(labels, problem.split.queries), model=student, seed=seed,
        effort=Effort(None), progress=lambda *_: None,
    )  # fmt: skip
    return Fitted(_scores(made, validation), _scores(made, test), cost)


def nothing(held: Dataset) -> NDArray[np.floating]:
    """Return the scores of no model: all classes are equal."""
    return np.full((len(held), len(held.classes)), 1 / len(held.classes))


def _scores(student: Student, held: Dataset) -> NDArray[np.floating]:
    """Return probabilities in the order of the data's classes."""
    found = student.predict_probabilities(held.inputs)
    return found[:, [student.classes.index(name) for name in held.classes]]
