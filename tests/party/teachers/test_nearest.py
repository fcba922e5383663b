"""Teachers that answer by their nearest record, or abstain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from party.teachers.by_records import Nearest
from party.teachers.protocol import NO_OPINION, DamagedTeacherError, Stored, dump, load
from party.teachers.training import train_ensemble
from pate.data.values import Dataset, Images, Table
from pate.errors import UsageError
from pate.features.distortions import distorted, strokes

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


def test_quiet_teachers_have_a_vote_each_that_is_spread(tmp_path: Path) -> None:
    data = drawings(range(KINDS), 20)
    ensemble = train_ensemble(
        data, teachers=80, model="nearest", device="cpu", home=tmp_path, key=b"key",
        progress=lambda _done, _all: None,
    )  # fmt: skip
    queries = drawings(range(KINDS), 2)
    votes = ensemble.vote(queries.inputs, range(len(queries)), data.classes)
    assert (votes.sum(axis=1) == 80).all()
    # Ten records a teacher: a quarter of them know a class, the rest are spread over forty.
    assert (votes.argmax(axis=1) == queries.labels).mean() > 0.7
    blank = ensemble.vote(Images(np.zeros((1, *SIZE), np.uint8)), (0,), data.classes)
    assert blank.max() < 20


def test_tables_and_teachers_without_a_label_are_refused() -> None:
    table = Dataset(Table(("a",), (np.arange(4.0),)), np.array([0, 1, 0, 1]), ("x", "y"))
    with pytest.raises(UsageError, match="for images"):
        Nearest().fit(table, 0)
    stored = Nearest().fit(drawings(range(5), 2), 0).store()
    arrays = load(stored.model, None)
    fewer = dump({**arrays, "labels": arrays["labels"][1:]})
    with pytest.raises(DamagedTeacherError, match="shapes"):
        Nearest().restore(Stored(stored.facts, fewer))
