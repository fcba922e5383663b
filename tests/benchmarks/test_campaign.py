"""A small campaign of a row: real voters, masked sums, a ledger, and its costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.data import deal
from benchmarks.data.images import PublishedTeachers, deal_votes, numbered
from benchmarks.methods import campaign
from benchmarks.methods.campaign import add_up, bounds_of, cost_of_votes, setting_of
from benchmarks.rows import Options
from pate.errors import UsageError
from pate.mechanisms import GNMax
from pate.runtime.screen import Screen
from simulation.datasets import digits

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from student.lesson import Lesson

SCREEN = Screen("test")
VOTES = np.array([[240, 10], [30, 220], [130, 120], [250, 0]] * 5)


def teachers(parties: int) -> list[PublishedTeachers]:
    dealt = deal_votes(VOTES, parties, np.random.default_rng(0))
    return [PublishedTeachers(part, ("no", "yes"), 250 // parties) for part in dealt]


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_dealt_votes_add_up_and_each_party_has_its_share(parties: int) -> None:
    dealt = deal_votes(VOTES, parties, np.random.default_rng(1))
    assert np.array_equal(np.sum(dealt, axis=0), VOTES)
    for part in dealt:
        assert (part >= 0).all()
        assert (part.sum(axis=1) == 250 // parties).all()


def test_a_campaign_over_given_votes_has_their_sum_and_their_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(
        aggregator="confident-gnmax",
        epsilon=8.0,
        delta=1e-5,
        max_queries=12,
        threshold="150",
        sigma1="30",
        sigma2="15",
    )
    # A screen writes where errors went when it was made.
    found = campaign.run(teachers(5), numbered(20), options, place=tmp_path, screen=Screen("test"))
    assert np.array_equal(found.counts, VOTES)
    # A request that a party cannot answer would be sent again, and nobody would notice.
    assert "failed" not in "".join(capsys.readouterr())
    assert found.state.teachers == 250
    (asked,) = found.asked.values()
    assert len(asked) == found.statement.queries_asked == 12
    assert {"votes", "labels", "campaign"} <= set(found.seconds)
    made = bounds_of(found)
    setting = setting_of(found.state.mechanism(1))
    assert setting is not None
    told = cost_of_votes(VOTES[list(asked)], setting, 1e-5).figures
    assert set(made) == set(told) == {
        "paper-2018", "theorem6", "sharp", "expected", "independent",
    }  # fmt: skip
    assert made["expected"][0] <= made["independent"][0]
    assert made["paper-2018"][1] == pytest.approx(told["paper-2018"].classical)
    assert made["sharp"][0] < made["independent"][0]
    # What was charged is worst case for each query, and within the cap.
    assert found.charged <= found.statement.epsilon <= 8.0
    assert found.server_epsilon is None
    # Eight requests at least, and each vote sent once.
    assert found.cost.exchanges >= 5
    assert found.cost.up > 20 * 2
    assert found.cost.seconds > 0


def test_costs_of_rounds_add_up_order_by_order() -> None:
    setting = setting_of(GNMax(40, 1))  # type: ignore[arg-type]  # whole numbers are exact too
    assert setting is not None
    parts = [cost_of_votes(VOTES[:8], setting, 1e-5), cost_of_votes(VOTES[8:], setting, 1e-5)]
    whole = add_up([cost_of_votes(VOTES, setting, 1e-5)])
    assert add_up(parts).keys() == whole.keys()
    for name, (_, classical) in add_up(parts).items():
        assert classical == pytest.approx(whole[name][1])
    assert add_up([]) == {}


@dataclass(frozen=True)
class Parrot:
    """A student that has learnt by heart which class was commonest."""

    labels: NDArray[np.int64]
    kind: str = "parrot"
    classes: tuple[str, ...] = ("no", "yes")
    schema: str = "any"

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        share = np.bincount(self.labels, minlength=2) / len(self.labels)
        return np.tile(share.astype(np.float32), (len(inputs), 1))

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self.predict_probabilities(inputs).argmax(axis=1)
        return best


def test_an_interactive_campaign_asks_its_student_between_rounds(tmp_path: Path) -> None:
    asked_of: list[tuple[int, int]] = []

    def train(held: Lesson, number: int) -> Parrot:
        asked_of.append((number, len(held.queries)))
        return Parrot(held.labels)

    options = Options(
        aggregator="interactive-gnmax",
        epsilon=9.0,
        delta=1e-5,
        max_queries=24,
        rounds=2,
        sigma1="30",
        sigma2="15",
        first_round_share="1/2",
    )
    found = campaign.run(
        teachers(5), numbered(20), options, place=tmp_path, screen=SCREEN, train=train
    )
    assert [number for number, _ in asked_of] == [2]
    assert set(found.predictions) == {2}
    assert set(found.asked) == {1, 2}
    assert bounds_of(found).keys() >= {"paper-2018", "sharp"}


def test_an_interactive_campaign_without_a_student_is_refused(tmp_path: Path) -> None:
    options = Options(aggregator="interactive-gnmax", epsilon=9.0, delta=1e-5)
    with pytest.raises(UsageError, match="needs a student"):
        campaign.run(teachers(5), numbered(20), options, place=tmp_path, screen=SCREEN)


def test_records_vote_themselves_and_the_noisy_votes_reach_the_lesson(tmp_path: Path) -> None:
    records = digits().take(range(600))
    public = digits().take(range(600, 900))
    options = Options(aggregator="neighbour", epsilon=8.0, delta=1e-5, representatives=20)
    parties = [records.take(rows) for rows in deal(records, 3, seed=0)]
    sources = campaign.records_of(parties, tmp_path, SCREEN)
    found = campaign.run(sources, public.inputs, options, place=tmp_path, screen=SCREEN)
    held = campaign.lesson(found.labels, public.inputs)
    assert held.noisy is not None
    assert held.noisy.counts.shape == (20, 10)
    assert set(held.queries.tolist()) <= set(held.noisy.queries.tolist())
    assert bounds_of(found) == {}
    assert found.server_epsilon is not None
    right = (public.labels[held.queries] == held.labels).mean()
    assert right > 0.8  # a label that is right by chance is right 1 time of 10


def test_teachers_are_trained_once_for_a_place(tmp_path: Path) -> None:
    records = digits().take(range(300))
    parties = [records.take(rows) for rows in deal(records, 3, seed=0)]
    options = Options(
        aggregator="gnmax", epsilon=50.0, delta=1e-5, max_queries=5, teachers=2, model="linear"
    )
    public = digits().inputs.take(range(300, 320))
    for _ in range(2):
        sources = campaign.teachers_of(parties, options, tmp_path, SCREEN)
        found = campaign.run(sources, public, options, place=tmp_path, screen=SCREEN)
        assert len(found.labels.rows) == 5
    made = sorted((tmp_path / "party_0" / "teachers").glob("*/*"))
    assert len({path.parent for path in made}) == 1
