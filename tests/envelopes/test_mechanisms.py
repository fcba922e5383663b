"""Masked sums by envelope for each aggregator that labels by teachers' votes, and for records in rounds."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import ReadyVoters
from pate.data.values import Dataset
from tests.support.world.envelopes import NAMES, PUBLIC, Play, StuckError
from tests.support.world.in_process import Killed, kills

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator_server.ledger.encoding import Probabilities
    from party.voting.voter import Voter

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


class Rounds(Play):
    """Records that vote in three rounds, by envelope."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            root, aggregator="neighbour", aggregation="masked", noise="distributed", min_parties=4,
            colluders=1, epsilon=50.0, code="dense-4 residual", representatives=(0, 1, 2, 4), rounds=3,
            classes=("x", "y"), most_votes=64, votes_per_patient=1,
        )  # fmt: skip

    def voter(self, name: str, **changes: Any) -> Voter:
        rows = np.random.default_rng(ord(name)).integers(0, len(PUBLIC), 20)
        data = Dataset(PUBLIC.take(rows.tolist()), (rows > 2).astype(np.int64), ("x", "y"), None)
        return super().voter(
            name, voters=ReadyVoters(records=NeighbourVotes(data, b"key")), **changes
        )


@pytest.mark.parametrize("points", [(), ("model-recorded", "masked-kept", "replies-deleted")])
def test_records_vote_in_rounds_by_envelope(tmp_path: Path, points: tuple[str, ...]) -> None:
    """Each round has masked votes and an unmasking of its own, whoever is killed; all keys come at once."""
    play, passed, killed = Rounds(tmp_path), Counter[str](), list[str]()

    def at(name: str) -> bool:
        passed[name] += 1
        return name in points and passed[name] == 2

    with kills(at):
        while play.state().phase != "finished":
            try:
                play.serve()
            except Killed as error:
                killed.append(str(error))
    state = play.state()
    assert (len(state.models), len(state.released)) == (3, 3)
    assert sorted(killed) == sorted(points)
    assert [batch.first for batch in state.batches] == [0, 4, 8]
    assert {batch.responders for batch in state.batches} == {NAMES}
    assert numbers(play) == set(range(1, 10))  # two for each round
    for name in NAMES:
        (record,) = play.ledger(name).campaigns()
        assert len(record.opened) == 3
    assert play.votes_on_disk() == []


def test_a_round_continues_without_a_party_whose_envelope_never_comes_back(tmp_path: Path) -> None:
    """The wait is closed once in each round: a lost party is asked in none of the later ones."""
    play, closed = Rounds(tmp_path), 0
    play.carrier = lambda: play.carry(without=("e",) if play.state().models else ())
    while play.state().phase != "finished":
        try:
            play.serve()
        except StuckError:
            closed += len(play.close_step())
            assert closed <= 1
    state = play.state()
    assert [batch.responders for batch in state.batches] == [NAMES, NAMES[:4], NAMES[:4]]
    assert state.spent == state.cap
    (record,) = play.ledger("e").campaigns()
    assert len(record.opened) == 1


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
