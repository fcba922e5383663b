"""Teachers that answer by their nearest record, or keep quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.teachers.constant import Constant
from party.teachers.nearest import Nearest
from party.teachers.protocol import NO_OPINION, AnswersTogether, DamagedTeacherError, Stored
from party.teachers.store import load_teacher, save_teacher
from party.teachers.training import train_ensemble
from pate.data.values import Dataset, Images, Table
from pate.errors import SchemaError, UsageError
from pate.features.distortions import distorted, strokes

if TYPE_CHECKING:
    from pathlib import Path

    from party.teachers.protocol import Teacher

KINDS = 40
SIZE = (20, 20, 1)


def drawings(classes: range, copies: int, kinds: int = KINDS) -> Dataset:
    """Each class is a drawing, and its records are distorted copies of it."""
    labels = np.tile(np.array(classes, dtype=np.int64), copies)
    pixels = distorted(strokes(kinds, SIZE).take(labels)).pixels
    return Dataset(Images(pixels), labels, tuple(f"{kind:03d}" for kind in range(kinds)))


def test_a_teacher_knows_its_classes_and_is_quiet_about_the_others() -> None:
    teacher = Nearest().fit(drawings(range(20), 2), 0)
    queries = drawings(range(KINDS), 3)
    answers, known = teacher.predict(queries.inputs), queries.labels < 20
    assert (answers[known] == queries.labels[known]).mean() > 0.7
    assert (answers[~known] == NO_OPINION).mean() > 0.7


def test_together_is_alone_and_nobody_hangs_on_another(tmp_path: Path) -> None:
    kind = Nearest()
    assert isinstance(kind, AnswersTogether)
    data, queries = drawings(range(KINDS), 3), drawings(range(KINDS), 2).inputs
    members = [kind.fit(data.take(range(at, at + 30)), 0) for at in range(0, 120, 30)]
    everyone: list[Teacher] = [*members, Constant(3), Constant(NO_OPINION)]
    together = kind.predict_many(everyone, KINDS, queries)
    assert np.array_equal(together, np.stack([member.predict(queries) for member in everyone]))
    assert np.array_equal(together[1:2], kind.predict_many(members[1:2], KINDS, queries))
    save_teacher(tmp_path, 0, kind, members[0])
    again = load_teacher(tmp_path, 0, kind)
    assert again is not None
    assert np.array_equal(again.predict(queries), together[0])


def test_quiet_teachers_have_a_vote_each_that_is_spread(tmp_path: Path) -> None:
    data = drawings(range(KINDS), 20)
    ensemble = train_ensemble(
        data,
        teachers=80,
        model="nearest",
        device="cpu",
        home=tmp_path,
        key=b"key",
        progress=lambda _done, _all: None,
    )
    queries = drawings(range(KINDS), 2)
    votes = ensemble.vote(queries.inputs, data.classes)
    assert (votes.sum(axis=1) == 80).all()
    # Ten records a teacher: a quarter of them know a class, the rest are spread over forty.
    assert (votes.argmax(axis=1) == queries.labels).mean() > 0.7
    blank = ensemble.vote(Images(np.zeros((1, *SIZE), np.uint8)), data.classes)
    assert blank.max() < 20


def test_tables_and_damaged_teachers_are_refused() -> None:
    table = Dataset(Table(("a",), (np.arange(4.0),)), np.array([0, 1, 0, 1]), ("x", "y"))
    with pytest.raises(UsageError, match="for images"):
        Nearest().fit(table, 0)
    teacher = Nearest().fit(drawings(range(5), 2), 0)
    with pytest.raises(SchemaError, match="the teachers take images 20x20x1"):
        teacher.predict(Images(np.zeros((1, 9, 9, 1), np.uint8)))
    stored = teacher.store()
    with pytest.raises(DamagedTeacherError, match="shapes"):
        Nearest().restore(Stored({"size": [20, 20, 3]}, teacher_without_a_label(stored)))
    with pytest.raises(DamagedTeacherError, match="image size"):
        Nearest().restore(Stored({"size": [20, 20]}, stored.model))


def teacher_without_a_label(stored: Stored) -> bytes:
    from party.teachers import tensors

    held = tensors.load(stored.model, None)
    return tensors.dump({**held, "labels": held["labels"][1:]})
