"""Students of rows, and the head of a public encoder."""

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
from student.fit.encoding import CategoryColumn, Encoding, NumberColumn, learn_encoding
from student.fit.rows import TableStudent, encoding_of, fit_head
from student.lesson import Effort, Lesson
from student.training import choose, train
from tests.support.encoders.embedded import embedded, embedded_records
from tests.support.student_samples import (
    accuracy,
    digits,
    noisy_lesson,
    noisy_votes,
    taught_rows,
    tumours,
)


def mixed() -> Table:
    number = np.array([1.0, np.nan, 3.0, 5.0])
    return Table(
        ("dose", "ward", "void"), (number, np.array(["a", "b", "a", ""]), np.full(4, np.nan))
    )


def random_state() -> str:
    """Return the state of the global generator, to check that it is unchanged."""
    return str(np.random.get_state(legacy=False))  # noqa: NPY002


def test_tumours_with_noisy_labels_beat_the_floor() -> None:
    public, held_out = tumours()
    student = taught_rows(noisy_lesson(public, 60, wrong=0.05), seed=0)
    # The majority class would have 0.63.
    assert accuracy(student.predict(held_out.inputs), held_out) >= 0.90


def test_same_seed_same_student() -> None:
    public, held_out = tumours()
    lesson = noisy_lesson(public, 40, wrong=0.0)
    state = random_state()
    one, two, other = (
        taught_rows(lesson, seed=s, effort=Effort(steps=5)).predict_probabilities(held_out.inputs)
        for s in (3, 3, 4)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert np.allclose(one.sum(axis=1), 1.0, atol=1e-6)
    assert random_state() == state


def test_labels_of_one_class_make_a_constant_student() -> None:
    public, held_out = tumours()
    queries = np.flatnonzero(public.labels == 1)[:5]
    lesson = Lesson(public.inputs, queries, public.labels[queries], public.classes)
    student = taught_rows(lesson, seed=0)
    assert np.array_equal(
        student.predict_probabilities(held_out.inputs),
        np.tile([0.0, 1.0], (169, 1)).astype(np.float32),
    )


def test_a_class_without_labels_keeps_its_column() -> None:
    public, _ = tumours()
    lesson = noisy_lesson(public, 30, wrong=0.0)
    wider = Lesson(public.inputs, lesson.queries, lesson.labels * 2, ("x", "never", "y"))
    student = taught_rows(wider, seed=0, effort=Effort(steps=3))
    probabilities = student.predict_probabilities(public.inputs)
    assert probabilities.shape == (400, 3)
    assert not probabilities[:, 1].any()


def test_missing_numbers_and_new_categories_are_encoded() -> None:
    encoding = learn_encoding(mixed())
    dose = encoding.columns[0]
    assert dose == NumberColumn("dose", 3.0, float(np.std([1.0, 3.0, 5.0])), flagged=True)
    assert encoding.columns[1] == CategoryColumn("ward", ("a",))
    other = Table(
        ("ward", "dose", "void", "extra"),
        (np.array(["new", "a"]), np.array([np.nan, 1e12]), np.zeros(2), np.zeros(2)),
    )
    rows = encoding.encode(other)
    # dose, dose missing, ward a, void, void missing
    assert rows.tolist() == [[0, 1, 0, 0, 0], [6, 0, 1, 0, 0]]
    assert Encoding.from_json(encoding.to_json()) == encoding


def test_mixed_columns_train() -> None:
    lesson = Lesson(mixed(), np.array([0, 1]), np.array([0, 1]), ("no", "yes"))
    student = taught_rows(lesson, seed=0, effort=Effort(steps=2))
    assert student.schema == mixed().schema()
    assert np.isfinite(student.predict_probabilities(mixed())).all()
    assert student.predict_probabilities(mixed().take([])).shape == (0, 2)


def test_refuses_images_and_missing_columns() -> None:
    images, _ = digits()
    with pytest.raises(UsageError, match="does not take images"):
        train(noisy_lesson(images, 5, wrong=0.0), model="selftraining", seed=0)
    with pytest.raises(DataError, match="learnt by a network"):
        encoding_of(images.inputs)
    encoding = learn_encoding(mixed())
    with pytest.raises(SchemaError, match="rows of a table, not images"):
        encoding.encode(images.inputs)
    with pytest.raises(SchemaError, match="missing: ward, void"):
        encoding.encode(Table(("dose",), (np.zeros(1),)))


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        [{"name": 3, "known": []}],
        [{"name": "a", "known": [1]}],
        [{"name": "a", "middle": 0.0, "spread": 0.0, "flagged": False}],
        [{"name": "a", "middle": float("nan"), "spread": 1.0, "flagged": False}],
        [{"name": "a", "middle": 0.0, "spread": 1.0, "flagged": 1}],
        [{"name": "a", "middle": 0.0}],
    ],
)
def test_refuses_descriptions_that_are_none(fields: object) -> None:
    with pytest.raises(DataError):
        Encoding.from_json(fields)


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
