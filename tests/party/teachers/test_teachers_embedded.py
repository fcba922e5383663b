"""Linear teachers of embeddings: their answers, their files, and several labels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.teachers.constant import Constant
from party.teachers.linear import Linear
from party.teachers.protocol import DamagedTeacherError, Stored
from party.teachers.store import load_teacher, save_teacher
from party.teachers.training import train_ensemble
from pate.errors import SchemaError
from tests.support.encoders.embedded import embedded, embedded_records

if TYPE_CHECKING:
    from pathlib import Path

    from party.teachers.protocol import Teacher
    from party.teachers.training import Ensemble
    from pate.data.values import Dataset

CLASSES = ("class 0", "class 1", "class 2")
QUERIES = embedded_records(200, seed=1)


def ensemble(data: Dataset, home: Path, teachers: int = 8) -> Ensemble:
    return train_ensemble(
        data, teachers=teachers, model="auto", device="cpu", home=home, key=b"k",
        progress=lambda *_: None,
    )  # fmt: skip


def test_a_small_shard_tells_classes_apart() -> None:
    teacher = Linear().fit(embedded_records(30), 0)
    right = (teacher.predict(QUERIES.inputs) == QUERIES.labels).mean()
    assert right > 0.9  # chance is a third


def test_a_teacher_is_the_same_whenever_it_is_fitted_and_read(tmp_path: Path) -> None:
    data = embedded_records(30)
    teacher = Linear().fit(data, 0)
    assert teacher.store() == Linear().fit(data, 5).store()
    save_teacher(tmp_path, 0, Linear(), teacher)
    again = load_teacher(tmp_path, 0, Linear())
    assert again is not None
    assert (again.predict(QUERIES.inputs) == teacher.predict(QUERIES.inputs)).all()
    assert again.takes == teacher.takes  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "line", [embedded(1, width=13).schema(), "table age:number", "images 2x2x3", "", 3]
)
def test_a_damaged_file_is_no_teacher(line: object) -> None:
    stored = Linear().fit(embedded_records(30), 0).store()
    with pytest.raises(DamagedTeacherError):
        Linear().restore(Stored({"embeddings": line}, stored.model))


def test_answers_together_are_answers_alone_and_do_not_hang_on_another() -> None:
    data = embedded_records(150)
    members = [Linear().fit(data.take(range(at, at + 30)), 0) for at in range(0, 150, 30)]
    two = Linear().fit(data.take(np.flatnonzero(data.labels != 1)[:20]), 0)
    everyone: list[Teacher] = [Constant(1), *members, two]
    together = Linear().predict_many(everyone, 3, QUERIES.inputs)
    assert (together == np.stack([one.predict(QUERIES.inputs) for one in everyone])).all()
    others = Linear().predict_many([two, *members, Constant(0)], 3, QUERIES.inputs)
    assert (others[1:-1] == together[1:-1]).all()


def test_other_inputs_are_refused() -> None:
    teacher = Linear().fit(embedded_records(30), 0)
    with pytest.raises(SchemaError, match="the teachers take embeddings 12"):
        teacher.predict(embedded(3, width=13))
    with pytest.raises(SchemaError, match="of images"):
        teacher.predict(embedded(3, source="images"))


def test_one_record_moves_one_teacher(tmp_path: Path) -> None:
    data = embedded_records(160)
    before = ensemble(data, tmp_path / "a")
    votes = before.vote(QUERIES.inputs, CLASSES)
    assert votes.sum(axis=1).tolist() == [8] * 200
    assert (votes.argmax(axis=1) == QUERIES.labels).mean() > 0.9
    after = ensemble(data.take(range(159)), tmp_path / "b")
    changed = [
        (one.predict(QUERIES.inputs) != two.predict(QUERIES.inputs)).any()
        for one, two in zip(before.members, after.members, strict=True)
    ]
    assert sum(changed) <= 1


def test_several_labels(tmp_path: Path) -> None:
    records = embedded_records(160)
    answers = np.stack([records.labels != at for at in range(3)], axis=1)
    several = replace(records, answers=answers, labels=np.zeros(160, dtype=np.int64))
    made = ensemble(several, tmp_path)
    votes = made.vote_labels(QUERIES.inputs, CLASSES, 2)
    assert (votes.argmin(axis=1) == QUERIES.labels).mean() > 0.9
