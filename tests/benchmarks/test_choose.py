"""A row's settings are chosen without test records, and of records' votes by trials among public ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.choose import MOST_STEPS, beside, choose
from benchmarks.data import Split
from benchmarks.methods import votes
from benchmarks.methods.method import Fitted, Method, Setting, product
from benchmarks.problem import Problem
from benchmarks.record import Cost
from benchmarks.rows import Options, Row
from pate.data.values import Dataset, Table
from pate.runtime.screen import Screen
from tests.benchmarks.test_methods import tiny

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
