"""Students of several labels and of a number, from votes to files."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.answers import NONE, of_labels, of_numbers, points_of
from pate.codes import code_of
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, SchemaError
from pate.formats.noisy_counts import NoisyVotes
from student import weights
from student.chances.cells import labels_of, shares_below
from student.chances.sums import linear_labels
from student.evaluation.evaluate import LabelledData, evaluate, evaluate_answers
from student.fit.rows import TableStudent, best_threshold, means, medians
from student.lesson import Effort, Lesson, decided
from student.training import train
from tests.student.chances.test_cells import draw, lesson_of, people, voted
from tests.support.needs import others_slow
from tests.support.student_samples import noisy_votes
from tests.support.there import there

LABELS = ("heart", "lung", "rare")
COLUMNS = ("heart", NONE, "lung", "rare")
RANGE = ("0", "14")
EACH, FEW = tuple(map(str, range(1, 15))), ("1", "2", "4", "7", "14")


def chances_of(table: Table) -> NDArray[np.float64]:
    """(n, 3) the chances of three labels, which are not exclusive."""
    age = table.columns[0].astype(np.float64)
    pay = table.columns[1].astype(np.float64)
    ward = table.columns[2]
    scores = [1.5 * age - 0.5, 1.2 * pay + 1.0 * (ward == "b") - 1, 1.0 * (ward == "c") * age - 2.5]
    return np.asarray(1 / (1 + np.exp(-np.stack(scores, axis=1))))


def records(count: int, seed: int) -> Dataset:
    table, _ = people(count, seed)
    flags = np.random.default_rng(seed + 90).random((count, 3)) < chances_of(table)
    return Dataset(table, np.zeros(count, np.int64), LABELS, None, flags)


def days(count: int, seed: int) -> Dataset:
    table, _ = people(count, seed)
    noise = np.random.default_rng(seed + 90).normal(size=count)
    age = table.columns[0].astype(np.float64)
    value = np.clip(np.rint(5 + 2.5 * age + 2 * (table.columns[2] == "b") + noise), 0, 20)
    return Dataset(table, np.zeros(count, np.int64), (), None, value)


def released(
    data: Dataset,
    code: str,
    sigma: float,
    points: tuple[str, ...] = RANGE,
    rows: int = 600,
    digits: int = 1,
) -> tuple[Table, NoisyVotes, tuple[str, ...]]:
    """Public rows, and the noisy sum of private records; sigma in votes.

    Numbers have few digits: with more than 255 values of a column most of the time would go into their
    quantiles, in each fit anew.
    """
    public, _ = people(rows, 1)
    public = Table(
        public.names, (*(each.round(digits) for each in public.columns[:2]), public.columns[2])
    )
    made, answers = code_of(code), data.answers
    assert answers is not None
    if data.kind == "labels":
        flags = answers.astype(np.bool_)
        said = of_labels(flags, LABELS, COLUMNS, made.answer.most, data.row_hashes(), b"k")
    else:
        said = of_numbers(answers.astype(np.float64), points)
    number = made.places if made.name == "dense" else 60
    noisy = noisy_votes(public, data.inputs, said, code, number, sigma)
    return public, noisy, COLUMNS if data.kind == "labels" else points


def taught(
    data: Dataset, code: str, sigma: float, points: tuple[str, ...] = RANGE, **more: Any
) -> TableStudent:
    public, noisy, classes = released(data, code, sigma, points)
    lesson = Lesson(public, np.array([0]), np.array([0]), classes, noisy)
    made = train(lesson, seed=0, effort=Effort(steps=20), **more)
    assert isinstance(made, TableStudent)
    return made


@pytest.mark.parametrize("code", ["nearest labels-2", "dense-24 labels-3"])
def test_shares_of_labels_are_those_of_the_records(code: str) -> None:
    public, noisy, _ = released(records(8000, 2), code, 0.0)
    wanted = chances_of(public)
    none = COLUMNS.index(NONE)
    if code.startswith("dense"):
        found = there(linear_labels(public, noisy, none))
        # The rare one is no direction of the space.
        for label, chances in enumerate(found[:2]):
            assert np.corrcoef(chances[:, 1], wanted[:, label])[0, 1] > 0.6
        return
    cells = there(labels_of(public, noisy, none))
    for label, each in enumerate(cells):
        assert np.allclose(each.shares.sum(axis=1), 1)
        near = each.means(wanted[:, [label]])[:, 0]
        # With T of 2 some labels of records with three are left out.
        assert np.corrcoef(each.shares[:, 1], near)[0, 1] > (0.6 if label == 2 else 0.9)
        share = (each.mass * each.shares[:, 1]).sum() / each.mass.sum()
        assert abs(share - near.mean()) < 0.06
    # Exact counts: all 8,000 records are found.
    assert abs(cells[0].mass.sum() - 8000) < 1200


@pytest.mark.parametrize("code", ["nearest labels-2", "dense-24 labels-2"])
def test_a_student_of_several_labels_goes_to_files_and_back(tmp_path: Path, code: str) -> None:
    student = taught(records(6000, 2), code, 4.0)
    assert student.classes == LABELS
    assert student.answer == "labels-2"
    test = LabelledData(records(1500, 7), "test")
    found = evaluate_answers(student, test)
    best = evaluate_answers(_knowing(student), test).figures["macro_auc"]["value"]
    assert found.figures["macro_auc"]["value"] > best - 0.06
    weights.save(student, tmp_path)
    again = weights.load(tmp_path)
    held, _ = people(50, 9)
    assert np.array_equal(again.predict_probabilities(held), student.predict_probabilities(held))
    assert isinstance(again, TableStudent)
    assert (again.classes, again.answer, again.thresholds) == (
        student.classes, student.answer, student.thresholds,
    )  # fmt: skip
    assert json.dumps(found.to_json())
    text = json.loads((tmp_path / "model.json").read_text())
    for name, wrong in (
        ("thresholds", [0.5]), ("thresholds", [2.0, 0.1, 0.1]), ("answer", "labels-0"), ("constant", 0),
    ):  # fmt: skip
        (tmp_path / "model.json").write_text(json.dumps(text | {name: wrong}))
        with pytest.raises(DataError):
            weights.load(tmp_path)


def _knowing(student: TableStudent) -> TableStudent:
    """A student that knows the chances."""

    class Knowing(TableStudent):
        def predict_probabilities(self, inputs: Any) -> NDArray[np.float32]:
            return chances_of(inputs).astype(np.float32)

    return Knowing(
        student.encoding, {}, None, student.classes, answer="labels-2", thresholds=(0.3, 0.3, 0.2)
    )


@pytest.mark.parametrize("code", ["nearest number", "dense-24 number"])
def test_a_student_of_a_number_goes_to_files_and_back(tmp_path: Path, code: str) -> None:
    student = taught(days(6000, 2), code, 4.0)
    held = days(1500, 7)
    found = evaluate_answers(student, LabelledData(held, "test")).figures
    error, of_median = found["mean_absolute_error"]["value"], found["mean_absolute_error_of_median"]
    assert error < 0.8 * of_median
    assert found["r2"]["value"] > 0.4
    assert found["outside_the_range"] > 0
    weights.save(student, tmp_path)
    again = weights.load(tmp_path)
    assert isinstance(again, TableStudent)
    made, mean = again.predict_numbers(held.inputs)
    assert np.array_equal(made, student.predict_numbers(held.inputs)[0])
    assert np.array_equal(made, mean)
    assert 0 <= made.min() < made.max() <= 14
    with pytest.raises(SchemaError, match="predicts a number"):
        evaluate_answers(student, LabelledData(records(10, 3)))


def stays(count: int, seed: int) -> Dataset:
    """Numbers with a long tail: most are far below their mean."""
    table, _ = people(count, seed)
    age = table.columns[0].astype(np.float64)
    drawn = np.random.default_rng(seed + 90).exponential(size=count)
    value = np.rint(1 + np.exp(1.2 + 0.3 * age) * drawn)
    return Dataset(table, np.zeros(count, np.int64), (), None, value)


@pytest.mark.parametrize(
    ("code", "points"),
    others_slow(
        product(("nearest number", "dense-24 number"), (EACH, FEW)),
        lambda case: case[1] is FEW,
    ),
)
def test_a_student_of_more_points_than_two_ends_predicts_the_median(
    tmp_path: Path, code: str, points: tuple[str, ...]
) -> None:
    data, held = stays(8000, 2), stays(1500, 7)
    # A seventh of the numbers lies above the range.
    ends = taught(data, code, 1.0, ("1", "14"))
    student = taught(data, code, 1.0, points)
    mean = evaluate_answers(ends, LabelledData(held)).figures
    found = evaluate_answers(student, LabelledData(held, "test")).figures
    error = "mean_absolute_error"
    assert found[error]["value"] < 0.97 * mean[error]["value"]
    # R2 is that of the mean, which the points know as well as the ends.
    assert found["r2"]["value"] > mean["r2"]["value"] - 0.03
    said, average = student.predict_numbers(held.inputs)
    assert (said < average).mean() > 0.9
    assert 0.4 < np.mean(there(held.answers) <= np.asarray(said)) < 0.62
    if len(points) == 14:
        assert set(np.unique(said)) <= set(range(1, 15))
    weights.save(student, tmp_path)
    again = weights.load(tmp_path)
    assert isinstance(again, TableStudent)
    assert np.array_equal(again.predict_numbers(held.inputs)[0], said)
    text = json.loads((tmp_path / "model.json").read_text())
    for name, wrong in (("classes", ["1", "14"]), ("classes", list(points)[::-1]), ("constant", 0)):
        (tmp_path / "model.json").write_text(json.dumps(text | {name: wrong}))
        with pytest.raises(DataError):
            weights.load(tmp_path)


def test_medians_and_means_are_read_from_shares_of_points() -> None:
    shares = shares_below(np.array([[0.5, 0.3, 0.9], [-0.2, 0.1, 1.4], [0.0, 0.0, 0.4]]))
    assert np.allclose(shares.cumsum(axis=1)[:, :-1], [[0.4, 0.4, 0.9], [0, 0.1, 1], [0, 0, 0.4]])
    assert (shares >= 0).all()
    assert means(shares, (1.0, 2.0, 3.0, 4.0)) == pytest.approx([2.3, 2.9, 3.6])
    # Whole numbers that follow each other: one of them.
    assert medians(shares, (1.0, 2.0, 3.0, 4.0)).tolist() == [3, 3, 4]
    # Else P(z <= t) is known halfway between points, and lines in between.
    assert medians(shares, (0.0, 2.0, 4.0, 10.0)) == pytest.approx(
        [3 + 4 * 0.1 / 0.5, 3 + 4 * 0.4 / 0.9, 7 + 3 * 0.1 / 0.6]
    )
    # Uniform numbers: hats hold the mean of P(z <= t) from a point to the next.
    values, points = np.linspace(0, 9, 90_001), ("0", "1.5", "4", "9")
    uniform = of_numbers(values, points).mean(axis=0, keepdims=True) / 64
    assert medians(uniform, points_of(points)) == pytest.approx([4.5], abs=0.02)
    assert means(uniform, points_of(points)) == pytest.approx([4.5], abs=0.02)


def test_noise_alone_teaches_nothing() -> None:
    for data, code in ((records(40, 2), "nearest labels-2"), (days(40, 2), "nearest number")):
        with pytest.raises(DataError, match="no more than their noise"):
            taught(data, code, 300.0)
    for code in ("nearest number", "dense-24 number"):
        with pytest.raises(DataError, match="no more than their noise"):
            taught(days(40, 2), code, 300.0, ("0", "3", "14"))


def test_images_of_several_labels_are_refused() -> None:
    public = Images(np.zeros((4, 8, 8, 1), np.uint8))
    noisy = NoisyVotes(np.array([0, 1]), np.zeros((2, 4), np.int64), 1.0, "nearest labels-2")
    with pytest.raises(DataError, match="learnt from tables and embeddings only"):
        train(Lesson(public, np.array([0]), np.array([0]), COLUMNS, noisy), seed=0)


def test_the_threshold_is_half_of_the_best_expected_f1() -> None:
    rng = np.random.default_rng(0)
    for mean in (0.1, 0.3):
        chances = rng.beta(0.5, 0.5 / mean - 0.5, 20_000)
        truth = rng.random(20_000) < chances
        least = best_threshold(chances)

        def f1(at: float, chances: Any = chances, truth: Any = truth) -> float:
            said = chances >= at
            return float(2 * (said & truth).sum() / (said.sum() + truth.sum()))

        assert f1(least) > max(f1(at) for at in np.linspace(0.01, 0.9, 60)) - 0.03
        assert least <= 0.5


def test_of_ordered_classes_the_median_is_predicted(tmp_path: Path) -> None:
    chances = np.array(
        [[0.4, 0.25, 0.35], [0.5, 0.0, 0.5], [0.1, 0.1, 0.8], [1.0, 0, 0]], np.float32
    )
    assert decided("ordered", chances).tolist() == [1, 0, 2, 0]
    assert decided("class", chances).tolist() == [0, 0, 2, 0]
    rng = np.random.default_rng(3)
    random = rng.dirichlet(np.full(5, 0.5), 200)
    distance = np.abs(np.arange(5)[:, None] - np.arange(5)[None])
    expected = random @ distance
    best = expected.min(axis=1)
    assert np.allclose(expected[np.arange(200), decided("ordered", random)], best)
    public, noisy = voted(classes=3)
    ordered = NoisyVotes(noisy.queries, noisy.counts, noisy.sigma, "nearest ordered")
    lesson = lesson_of(public, ordered)
    student = train(lesson, seed=0, effort=Effort(steps=10))
    held, of_held = people(2000, 5)
    truth = Dataset(held, draw(of_held, 6), lesson.classes)
    found = evaluate(student, truth)
    assert found.apart is not None
    plain = evaluate(train(lesson_of(public, noisy), seed=0, effort=Effort(steps=10)), truth)
    assert plain.apart is None
    places = np.abs(np.arange(3)[:, None] - np.arange(3)[None])
    of_plain = float((plain.confusion * places).sum() / plain.count)
    assert found.apart.value == pytest.approx((found.confusion * places).sum() / found.count)
    assert found.apart.value < of_plain + 0.01
    assert "mean_classes_apart" in found.to_json()
    weights.save(student, tmp_path)
    again = weights.load(tmp_path)
    assert np.array_equal(again.predict(held), student.predict(held))
