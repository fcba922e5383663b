"""The head: the student of a public encoder's embeddings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.answers import NONE
from pate.campaign.representatives import choose as choose_rows
from pate.codes import GRID
from pate.data.values import Dataset, Table
from pate.errors import DataError, SchemaError, UsageError
from student import weights
from student.evaluation.evaluate import evaluate
from student.fit.rows import TableStudent, fit_head
from student.lesson import Lesson
from student.training import choose, train
from tests.support.encoders.embedded import embedded, embedded_records
from tests.support.student_samples import noisy_votes

PUBLIC, TEST = embedded_records(300, seed=2), embedded_records(300, seed=3)
FEW = np.arange(0, 300, 20)


def labels(data: Dataset = PUBLIC) -> Lesson:
    return Lesson(data.inputs, FEW, data.labels[FEW], data.classes)


def counts(code: str, number: int, classes: int = 3) -> Lesson:
    """Return the noisy votes of 3,000 records."""
    public, records = (
        embedded_records(rows, classes=classes, seed=seed) for rows, seed in ((300, 2), (3000, 4))
    )
    at = np.array(choose_rows(public.inputs, number, lambda _: None))
    sigma = 8000.0 / GRID if code.startswith("dense") else 3.0
    noisy = noisy_votes(
        public.inputs, records.inputs, records.labels, code, at, sigma, classes=classes, noise=1
    )
    return Lesson(public.inputs, at[:1], public.labels[at[:1]], public.classes, noisy)


def right(student: TableStudent, data: Dataset = TEST) -> float:
    return float((student.predict(data.inputs) == data.labels).mean())


def taught(lesson: Lesson) -> TableStudent:
    student = train(lesson, seed=0)
    assert isinstance(student, TableStudent)
    assert student.kind == "head"
    return student


@pytest.mark.parametrize(("code", "number"), [("nearest", 30), ("dense-12", 12)])
def test_it_learns_from_noisy_counts(code: str, number: int) -> None:
    assert right(taught(counts(code, number))) > 0.95


def test_it_learns_from_dense_sums_without_a_label() -> None:
    lesson = counts("dense-12", 12)
    assert right(taught(replace(lesson, queries=FEW[:0], labels=FEW[:0]))) > 0.95


def test_it_learns_from_the_noisy_counts_of_many_classes() -> None:
    student = taught(counts("nearest", 60, classes=20))
    assert right(student, embedded_records(300, classes=20, seed=3)) > 0.85


def test_it_learns_from_a_few_labels_and_the_public_rows() -> None:
    student = taught(labels())
    alone = fit_head(PUBLIC.inputs.points()[FEW], np.eye(3)[PUBLIC.labels[FEW]])  # type: ignore[union-attr]
    found = alone.predict_proba(TEST.inputs.points()).argmax(axis=1)  # type: ignore[union-attr]
    assert right(student) > max(0.95, float((found == TEST.labels).mean()) - 1e-9)


def test_the_same_lesson_makes_the_same_student() -> None:
    one, two = (train(labels(), seed=seed).predict_probabilities(TEST.inputs) for seed in (0, 0))
    assert (one == two).all()
    assert np.abs(one.sum(axis=1) - 1).max() < 1e-5


def test_labels_of_one_class_make_a_constant() -> None:
    lesson = Lesson(PUBLIC.inputs, FEW, np.ones(len(FEW), dtype=np.int64), PUBLIC.classes)
    assert (taught(lesson).predict(TEST.inputs) == 1).all()


@pytest.mark.parametrize(
    ("code", "sigma"), [("nearest labels-1", 3.0), ("dense-30 labels-1", 2000.0 / GRID)]
)
def test_it_learns_several_labels(code: str, sigma: float) -> None:
    records = embedded_records(3000, seed=4)
    answers = np.stack([records.labels == at for at in range(2)], axis=1)
    columns = np.hstack([answers, ~answers.any(axis=1, keepdims=True)]).astype(np.int64)
    at = np.array(choose_rows(PUBLIC.inputs, 30, lambda _: None))
    nothing = np.zeros(0, dtype=np.int64)
    noisy = noisy_votes(PUBLIC.inputs, records.inputs, columns, code, at, sigma, noise=1)
    student = taught(Lesson(PUBLIC.inputs, nothing, nothing, ("a", "b", NONE), noisy))
    assert student.classes == ("a", "b")
    chances = student.predict_probabilities(TEST.inputs)
    for label, column in enumerate(chances.T):
        has = TEST.labels == label
        assert column[has].mean() > column[~has].mean() + 0.5


def test_noise_alone_is_nothing_to_learn_from() -> None:
    lesson = counts("dense-12", 12)
    assert lesson.noisy is not None
    drowned = replace(lesson.noisy, sigma=1e9)
    student = taught(replace(lesson, noisy=drowned))
    assert student.constant == lesson.labels[0]


def test_it_is_the_default_and_for_embeddings_only() -> None:
    assert choose("auto", PUBLIC.inputs) == "head"
    with pytest.raises(UsageError, match="selftraining does not take embeddings 12"):
        choose("selftraining", PUBLIC.inputs)
    with pytest.raises(UsageError, match="head does not take"):
        choose("head", Table(("a",), (np.zeros(3),)))


def test_it_is_stored_and_read_again(tmp_path: Path) -> None:
    student = taught(labels())
    weights.save(student, tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["head.skops", "model.json"]
    again = weights.load(tmp_path)
    assert again.kind == "head"
    assert again.schema == PUBLIC.inputs.schema()
    same = again.predict_probabilities(TEST.inputs) == student.predict_probabilities(TEST.inputs)
    assert same.all()
    assert evaluate(again, TEST).accuracy > 0.95
    with pytest.raises(SchemaError, match="takes embeddings 12"):
        again.predict(embedded(3, width=13))


@pytest.mark.parametrize(
    "change", [{"schema": "table a:number"}, {"schema": embedded(1, width=13).schema()}]
)
def test_a_changed_description_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    weights.save(taught(labels()), tmp_path)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError):
        weights.load(tmp_path)


@pytest.mark.parametrize("shape", [(3, 13), (2, 12), (3,)])
def test_weights_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    student = taught(labels())
    student.models["head"].coef_ = np.zeros(shape)  # type: ignore[attr-defined]
    weights.save(student, tmp_path)
    with pytest.raises(DataError, match="another shape"):
        weights.load(tmp_path)


def test_probabilities_that_are_not_finite_are_refused() -> None:
    rows: NDArray[np.float32] = np.zeros((3, 2), dtype=np.float32)
    with pytest.raises(DataError, match="finite"):
        fit_head(rows, np.full((3, 2), np.nan))
