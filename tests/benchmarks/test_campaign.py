"""Small campaigns of rows: real voters, masked sums, their costs, and figures of models."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import cost, measure
from benchmarks.__main__ import main
from benchmarks.data import Split, deal, joined
from benchmarks.data.images import PublishedTeachers, deal_votes, numbered
from benchmarks.methods import campaign, months
from benchmarks.methods.campaign import add_up, bounds_of, cost_of_votes, setting_of
from benchmarks.record import RESULTS, ROOT
from benchmarks.rows import ROWS, Options
from pate.data.values import Dataset, Table
from pate.errors import UsageError
from pate.mechanisms import GNMax
from pate.runtime.screen import Screen
from simulation.datasets import digits
from tests.benchmarks.test_methods import table

if TYPE_CHECKING:
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


MONTHS = 2
ROW = ROWS["diabetes130-monthly"]


def stays(count: int, patients: NDArray[np.int64], seed: int) -> Dataset:
    """Return made-up stays of some patients; the first column is of the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    inputs = Table(("a", "b"), (labels + rng.normal(0, 0.4, count), rng.normal(size=count)))
    who = rng.choice(patients, count).astype(np.str_)
    return Dataset(inputs, labels.astype(np.int64), ("later", "soon"), who)


@pytest.fixture
def hospitals(monkeypatch: pytest.MonkeyPatch) -> Split:
    """A file of 900 stays, of which 200 are public and 200 to test."""
    patients = np.arange(300)
    private, public, test = (
        stays(count, patients + 1000 * at, at) for at, count in enumerate((500, 200, 200))
    )
    split = Split(private, public, test, "made up")
    whole = joined(private, public, test)
    numbers = np.random.default_rng(3).permutation(len(whole)).astype(np.float64)
    assert isinstance(whole.inputs, Table)
    table = Table((*whole.inputs.names, "encounter_id"), (*whole.inputs.columns, numbers))
    whole = replace(whole, inputs=table)
    monkeypatch.setattr(months, "diabetes", lambda: split)
    monkeypatch.setattr(months, "read_stays", lambda **_: whole)
    monkeypatch.setattr(months, "MONTHS", MONTHS)
    monkeypatch.setattr(months, "_COMPARED", MONTHS)
    return split


@pytest.mark.slow
def test_a_series_costs_one_epsilon_and_asking_again_costs_more(
    hospitals: Split, tmp_path: Path
) -> None:
    assert ROW.options is not None
    row = replace(ROW, options=replace(ROW.options, representatives=12))
    found = months.run(row, 1, tmp_path, Screen("test"), None)
    cells = {(cell.method, cell.setting["month"]): cell for cell in found.cells}
    assert cells.keys() == {
        ("series", 1), ("series", 2), ("again", 1), ("again", 2), ("forgetful", 2),
    }  # fmt: skip
    patients = len(np.unique(months._groups(hospitals.private)))
    runs = {key: cell.runs[0] for key, cell in cells.items()}
    assert sum(runs["series", month].counts["new"] for month in (1, 2)) == patients
    assert runs["series", 2].counts["there"] == patients == found.data["private_units"]
    for month in (1, 2):
        each = cells["series", month]
        assert (each.epsilon, each.delta) == (1.0, 0.0)
        assert runs["series", month].epsilons["epsilon"] == 1.0
        assert each.figures["auc_others"].mean > 0.8
    once, twice = (runs["again", month].epsilons["epsilon"] for month in (1, 2))
    assert once < 1.2 * 1.0 < twice
    assert {"auc_others"} == set(runs["forgetful", 2].figures)


def test_months_are_equal_parts_in_the_order_of_their_numbers() -> None:
    numbers = np.random.default_rng(0).permutation(24)
    found = months.months_of(numbers, 12)
    assert (np.bincount(found) == 2).all()
    assert np.array_equal(found, numbers // 2)


def test_a_masked_sum_is_exact_and_its_bytes_are_counted() -> None:
    size = cost.Size(5, 40)
    plain, masked = cost.plain_sum(size), cost.masked_sum(size)  # sums are compared there
    assert list(masked["bytes"]) == ["keys", "shares", "mask", "sign_survivors", "unmask"]
    assert masked["bytes"]["mask"] == 40 * 10 * size.bits // 8
    assert masked["party_bytes"] > plain["party_bytes"] >= 400
    assert masked["party_seconds"] > 0
    assert masked["server_seconds"] > 0
    assert cost.masked_sum(size, lost=1)["bytes"].keys() == masked["bytes"].keys()


@pytest.mark.slow
def test_the_accountant_says_what_the_paper_says() -> None:
    (found,) = cost.accounting(quick=True).values()  # figures are compared there
    assert found["theorem6"] > found["one query at a time"]


@pytest.mark.slow
def test_a_campaign_is_measured_at_its_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "campaign", "--quick"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["parties"], found["queries"]) == (3, 200)
    assert found["server_seconds"] > 0
    assert found["server_memory_peak"] >= found["server_memory_before"] > 0
    assert found["bytes_up"] > 3 * 200 * 10 // 2, "masked votes of half a byte or more"
    assert found["bytes_down"] > 0


def test_figures_that_were_measured_once_are_still_on_their_pages() -> None:
    told = tomllib.loads((RESULTS / "measured.toml").read_text(encoding="utf-8"))
    for each in told["figure"]:
        assert each["text"] in (ROOT / each["page"]).read_text(encoding="utf-8"), each
        assert each["program"].startswith("benchmarks/")
        assert each["method"]


def records(labels: list[int]) -> Dataset:
    return Dataset(Table(("x",), (np.zeros(len(labels)),)), np.array(labels), ("no", "yes"))


def test_figures_of_a_classifier_that_is_right_three_times_of_four() -> None:
    test = records([0, 0, 0, 1])
    chances = np.array([0.1, 0.6, 0.2, 0.7])
    assert measure.judged(np.stack([1 - chances, chances], axis=1), test) == {
        "accuracy": 0.75,
        "balanced_accuracy": pytest.approx((2 / 3 + 1) / 2),
        "auc": 1.0,
    }
    assert "auc" not in measure.figures_of(records([0, 0]))


def test_figures_of_numbers_and_of_several_labels() -> None:
    truth = np.array([1.0, 2.0, 3.0, 6.0])
    said = np.stack([truth + 0.5, np.full(4, 3.0)], axis=1)
    assert measure.mae(said, truth) == 0.5
    assert measure.r2(said, truth) == 0.0  # the means explain nothing
    assert measure.r2(truth[:, None], truth) == 1.0
    has = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]], dtype=bool)
    chances = np.stack([has[:, 0], ~has[:, 1], has[:, 2]], axis=1).astype(float)
    assert measure.macro_auc(chances, has) == 0.5  # 1 and 0; of a label that all have there is none


def test_auc_is_the_share_of_pairs_in_order() -> None:
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])
    labels = np.array([0, 1, 0, 1])
    assert measure.auc(scores, labels) == 0.75
    three = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    assert measure.auc(three, np.array([0, 1, 1, 2])) == pytest.approx(1.0)
    # Of several models the mean.
    assert measure.auc(np.stack([scores, 1 - scores]), labels) == 0.5
    assert measure.accuracy(scores, labels) == 0.75


def test_an_interval_has_the_sampling_of_the_test_records() -> None:
    data = table(400, 5)
    random = np.random.default_rng(0)
    right = random.random(400) < 0.8
    scores = np.eye(2)[np.where(right, data.labels, 1 - data.labels)]
    found = measure.estimate(measure.accuracy, [scores] * 3, data)
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / 400)
    # The same model three times: dealings add nothing, and take nothing away.
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.2)
    other = np.eye(2)[np.where(random.random(400) < 0.7, data.labels, 1 - data.labels)]
    wider = measure.estimate(measure.accuracy, [scores, other], data)
    assert wider.low is not None
    assert wider.low < found.low - half
