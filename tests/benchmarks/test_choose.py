"""Settings that are chosen without test records, and the network that reads made-up tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import party.teachers
from benchmarks.choose import MOST_STEPS, beside, choose
from benchmarks.data import Split
from benchmarks.methods import votes
from benchmarks.methods.method import Fitted, Method, Setting, product
from benchmarks.problem import Problem
from benchmarks.record import Cost
from benchmarks.rows import Options, Row
from party.teachers import by_records
from pate.data.values import Dataset, Table
from pate.runtime.screen import Screen
from tests.benchmarks.test_methods import tiny

if TYPE_CHECKING:
    from benchmarks.prior import Batch


SCREEN = Screen("test")
CLASSES = ("no", "yes")
ROW = Row(
    name="stripes",
    title="Stripes",
    data="stripes",
    methods=("records",),
    options=Options(
        aggregator="neighbour",
        epsilon=1.0,
        delta=0.0,
        noise_law="geometric",
        min_parties=4,
        colluders=0,
    ),
    # One representative cannot tell two classes apart.
    tries=("nearest-1", "nearest-30"),
)


def stripes(count: int, seed: int, *, wrong: bool = False) -> Dataset:
    """Records whose class tells on which of four stripes they lie; or all labels turned round."""
    random = np.random.default_rng(seed)
    stripe = random.integers(0, 4, count)
    columns = stripe + random.normal(0, 0.05, count), random.normal(0, 0.05, count)
    labels = (stripe % 2).astype(np.int64)
    return Dataset(Table(("x", "y"), columns), 1 - labels if wrong else labels, CLASSES)


def split(*, wrong: bool) -> Split:
    return Split(
        # So many that the noise of a trial is far below its votes: no draw decides.
        private=stripes(20_000, 1, wrong=wrong),
        public=stripes(600, 2),
        test=stripes(100, 3, wrong=wrong),
        note="",
    )


@pytest.mark.parametrize("wrong", [False, True])
def test_the_better_of_two_is_chosen_whatever_private_and_test_labels_say(
    tmp_path: Path, wrong: bool
) -> None:
    """With clean stripes the better try is right on 90 % and more, the other on some half of the records."""
    method = replace(votes.records(ROW, tmp_path, SCREEN), trials=(1, 0))
    chosen = choose(method, Problem("stripes", split(wrong=wrong)), None, lambda _: None)
    assert chosen.setting["representatives"] == 30
    assert chosen.tried == 2
    assert "half of the public part voting at the other half: representatives 1 0." in chosen.words
    good = float(chosen.words.split("representatives 30 ")[1])
    assert good == pytest.approx(chosen.figure, abs=1e-4)
    assert good > 0.9


def test_of_an_error_the_least_is_chosen_and_of_a_tie_the_first() -> None:
    none = np.zeros(2, dtype=np.int64)
    data = Dataset(Table(("x",), (np.zeros(2),)), none, (), None, np.array([1.0, 3.0]))
    said = {"far": np.array([[2.5], [1.0]]), "near": np.array([[1.5], [3.0]])}
    said["again"] = said["near"]

    def fit(_place: Problem, setting: Setting, _epsilon: float | None, _seed: int) -> Fitted:
        one = said[setting["model"]]
        return Fitted(one, one, Cost(0, 0, 0, 0.0))

    settings: list[Setting] = [{"model": name} for name in said]
    method = Method(name="x", settings=lambda _: settings, fit=fit, private=False, once=True)
    chosen = choose(method, Problem("p", Split(data, data, data, ""), "mae"), None, lambda _: None)
    assert (chosen.setting, chosen.figure) == ({"model": "near"}, 0.25)
    assert chosen.words == "mae on 2 validation records: far 1.7500; near 0.2500; again 0.2500"
    # The first training of the chosen one comes first.
    assert chosen.first[0].test is said["near"]
    assert len(chosen.first) == 3


def test_the_chooser_sees_validation_records_only() -> None:
    problem, seen = tiny(), []

    def fit(place: Problem, setting: object, _epsilon: float | None, _seed: int) -> Fitted:
        assert isinstance(setting, dict)
        seen.append(setting["good"])
        right = np.eye(2)[place.validation.labels]
        # What is good for the test records is bad for validation records.
        test = np.eye(2)[place.split.test.labels]
        cost = Cost(0, 0, 0, 0.0)
        return Fitted(right, 1 - test, cost) if setting["good"] else Fitted(1 - right, test, cost)

    method = Method(name="x", settings=lambda _: [{"good": 0}, {"good": 1}], fit=fit)
    chosen = choose(method, problem, 1.0, lambda _: None)
    assert chosen.setting == {"good": 1}
    assert chosen.figure == 1.0
    assert chosen.words.startswith("accuracy on 80 validation records: good 0 ")
    assert chosen.tried == 2
    assert len(seen) == 6


def test_the_chooser_goes_on_beyond_the_edge() -> None:
    problem, tried = tiny(), []

    def fit(place: Problem, setting: Setting, _epsilon: float | None, _seed: int) -> Fitted:
        tried.append(dict(setting))
        rate, good = float(setting["rate"]), setting["kind"] == "b"
        # Right for more of the records, the nearer the rate is to 16.
        right = np.arange(len(place.validation)) >= 8 * abs(np.log2(rate / 16)) + (0 if good else 9)
        scores = np.eye(2)[np.where(right, place.validation.labels, 1 - place.validation.labels)]
        return Fitted(scores, scores, Cost(0, 0, 0, 0.0))

    method = Method(
        name="x",
        settings=lambda _: product(kind=("a", "b"), rate=(0.25, 1.0), steps=(200,)),
        fit=fit,
        widens={"rate": 4, "steps": 4},
    )
    chosen = choose(method, problem, 1.0, lambda _: None)
    assert chosen.setting["rate"] == 16
    assert chosen.setting["kind"] == "b"
    assert {"kind": "b", "rate": 64.0, "steps": chosen.setting["steps"]} in tried
    assert chosen.tried == len({tuple(each.values()) for each in tried})
    # Time has its limit.
    assert max(int(each["steps"]) for each in tried) <= MOST_STEPS


def test_a_neighbour_is_a_setting_of_the_same_model() -> None:
    settings = [
        *product(model=("linear",), kind=("columns", "steps"), rate=(1.0,)),
        *product(model=("trees",), kind=("columns",), leaves=(8,)),
    ]
    method = Method(
        name="x", settings=lambda _: settings, fit=_never, widens={"rate": 4, "leaves": 2}
    )
    assert beside(settings, 0, method) == [
        {"model": "linear", "kind": "steps", "rate": 1.0},
        {"model": "linear", "kind": "columns", "rate": 0.25},
        {"model": "linear", "kind": "columns", "rate": 4.0},
    ]
    assert beside(settings, 2, method) == [
        {"model": "trees", "kind": "columns", "leaves": 4},
        {"model": "trees", "kind": "columns", "leaves": 16},
    ]


def _never(*_: object) -> Fitted:
    raise AssertionError


def drawn(seed: int) -> Batch:
    import torch

    from benchmarks import prior

    return prior.draw(torch.Generator().manual_seed(seed))


def test_tables_are_varied_and_finite() -> None:
    import torch

    from benchmarks import prior

    batches = [drawn(seed) for seed in range(12)]
    for batch in batches:
        count, known = batch.labels.shape
        assert batch.values.shape[:2] == (count, known + prior.ASKED)
        assert batch.chances.shape == (count, prior.ASKED)
        assert not batch.values.isinf().any()
        assert ((batch.chances >= 0) & (batch.chances <= 1)).all()
        assert set(batch.labels.flatten().tolist()) == {0, 1}
    missing = [float(batch.values.isnan().float().mean()) for batch in batches]
    assert 0.01 < np.mean(missing) < 0.3
    assert len({batch.values.shape for batch in batches}) > 6
    # Neither class is the rule, and binary columns and plain ones occur.
    assert abs(np.mean([float(batch.chances.mean()) for batch in batches]) - 0.5) < 0.1
    values = torch.cat([batch.values.nan_to_num().flatten() for batch in batches])
    assert 0.02 < float((values == 1).float().mean()) < 0.5


def test_a_seed_decides_the_tables() -> None:
    import torch

    one, other = drawn(3), drawn(3)
    assert torch.equal(one.values.nan_to_num(9), other.values.nan_to_num(9))
    assert torch.equal(one.labels, other.labels)
    assert torch.equal(one.chances, other.chances)


def test_the_rate_rises_stays_and_falls() -> None:
    from benchmarks.prior import RATES, rate

    assert rate(0, RATES) == pytest.approx(1 / 300)
    assert [rate(step, RATES) for step in (299, 1_000, 2_000)] == [1, 1, 1]
    assert rate(4_750, RATES) == pytest.approx(0.3)
    assert rate(5_500, RATES) == 0


def test_a_resumed_training_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from benchmarks import prior

    monkeypatch.setattr(prior, "_CELLS", 2_000)
    monkeypatch.setattr(prior, "_TABLES", (2, 4))
    monkeypatch.setattr(prior, "_SAVE", 2)
    monkeypatch.setattr(prior, "_REPORT", 2)
    rates = ((-1, 0.0), (1, 1.0), (4, 0.0))
    threads = torch.get_num_threads()
    try:
        whole = prior.train(tmp_path / "a", seed=5, rates=rates)
        middle = tmp_path / "a" / "step-000002.pt"
        rest = prior.train(tmp_path / "b", seed=5, rates=rates, resume=middle)
    finally:
        torch.set_num_threads(threads)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, rest.state_dict()[name]), name
    assert '"step": 4' in (tmp_path / "b" / "log.jsonl").read_text()
    # What is exported is what the package loads, to the last byte.
    monkeypatch.setattr(party.teachers, "__path__", [str(tmp_path)])
    digest = prior.export(tmp_path / "b" / "step-000004.pt")
    content = (tmp_path / by_records.NAME).read_bytes()
    assert prior.export(tmp_path / "a" / "step-000004.pt") == digest
    monkeypatch.setattr(by_records, "DIGEST", digest)
    by_records.check_weights(content)
