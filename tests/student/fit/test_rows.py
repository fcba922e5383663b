from __future__ import annotations

import numpy as np
import pytest

from pate.data.values import Table
from pate.errors import DataError, SchemaError, UsageError
from student.fit.encoding import CategoryColumn, Encoding, NumberColumn, learn_encoding
from student.fit.rows import encoding_of
from student.lesson import Effort, Lesson
from student.training import train
from tests.support.student_samples import accuracy, digits, noisy_lesson, taught_rows, tumours


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
