"""Masked sums by envelope for each aggregator that labels by teachers' votes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from tests.support.world.envelopes import NAMES, PUBLIC, Play, StuckError

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator_server.ledger.encoding import Probabilities

MASKED: dict[str, Any] = {
    "aggregation": "masked", "min_parties": 4, "colluders": 1, "epsilon": 50.0, "sigma2": Fraction(2),
}  # fmt: skip
#: Of 125 teachers.
CONFIDENT: dict[str, Any] = {"threshold": Fraction(75), "sigma1": Fraction(2)}
INTERACTIVE: dict[str, Any] = CONFIDENT | {
    "rounds": 3, "interactive_threshold": Fraction(60), "confidence": Fraction(9, 10),
    "first_round_share": Fraction(1, 2),
}  # fmt: skip


def labels(play: Play) -> dict[int, int]:
    with Ledger.open(play.path) as ledger:
        return {query: each.label for query, each in ledger.state().labels.items()}


def numbers(play: Play) -> set[int]:
    return {int(name.split(".")[1].removeprefix("round-")) for name in play.files}


@pytest.mark.parametrize(("aggregator", "terms"), [("gnmax", {}), ("confident-gnmax", CONFIDENT)])
def test_an_aggregator_labels_a_masked_sum(
    tmp_path: Path, aggregator: str, terms: dict[str, Any]
) -> None:
    """125 teachers agree; a noise of 2 is off by the 50 votes to the threshold once in 1e130 times."""
    play = Play(tmp_path, aggregator=aggregator, **MASKED, **terms)
    play.serve()
    assert play.responders() == NAMES
    assert labels(play) == dict.fromkeys(range(len(PUBLIC)), 0)


class Student:
    """Predicts the class of the teachers, surely; the process of the server dies while it waits once."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.rounds: list[int] = []
        self.files: list[set[str]] = []

    def __call__(self, round_: int) -> Probabilities:
        self.rounds.append(round_)
        self.files.append(set(self._play.files))
        if self.rounds == [2]:
            raise StuckError
        return np.tile(np.array([1, 0], dtype=np.float32), (len(PUBLIC), 1))


def test_a_student_between_the_rounds_costs_no_envelope(tmp_path: Path) -> None:
    """All votes come before the first round; parties hear nothing of the rounds until the end."""
    play = Play(tmp_path, aggregator="interactive-gnmax", **MASKED, **INTERACTIVE)
    play.student = student = Student(play)
    with pytest.raises(StuckError):
        play.serve()
    play.serve()
    assert student.rounds == [2, 2, 3]
    assert student.files[0] == student.files[-1]
    assert play.responders() == NAMES
    assert numbers(play) == {1, 2, 3, 4, 5, 6}  # as many as of gnmax
    assert labels(play) == dict.fromkeys(range(len(PUBLIC)), 0)
    for name in NAMES:
        (record,) = play.ledger(name).campaigns()
        assert len(record.batches) == 1
