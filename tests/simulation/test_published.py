"""A student in Python: what it predicts is what the command predicts, and a changed folder is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate.data.values import Inputs, Table
from pate.errors import DataError, SchemaError
from student.card import Provenance
from student.export import publish
from student.lesson import Effort, Lesson
from student.weights import load
from tests.support.student_samples import PRIVACY, tumours

PROVENANCE = Provenance(
    campaign="ab", name="c", public_set="cd", queries=400, from_teachers=60, reinforced=0,
    learnt_from="", coverage=None, training={"seed": 0},
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from student.training import train

    public, _ = tumours()
    chosen = np.arange(60, dtype=np.int64)
    lesson = Lesson(public.inputs, chosen, public.labels[chosen].copy(), public.classes)
    out = tmp_path_factory.mktemp("published") / "student"
    made = train(lesson, seed=0, effort=Effort(steps=5))
    publish(made, out, privacy=PRIVACY, provenance=PROVENANCE)
    return out


def frame_of(table: Inputs) -> Any:
    import pandas as pd

    assert isinstance(table, Table)
    return pd.DataFrame(dict(zip(table.names, table.columns, strict=True)))


def test_frames_and_arrays_are_predicted_as_files_are(folder: Path) -> None:
    _, other = tumours()
    wanted = load(folder).predict_probabilities(other.inputs)
    student = pate.load_student(folder)
    frame = frame_of(other.inputs)
    mixed = frame[frame.columns[::-1]].assign(more="x")
    for data in (other.inputs, frame, mixed, frame.to_numpy()):
        assert np.array_equal(student.predict_proba(data), wanted)
    named = student.predict(frame)
    assert named.tolist() == [student.classes[at] for at in wanted.argmax(axis=1)]
    assert np.mean(named == np.array(other.classes)[other.labels]) > 0.8


def test_a_path_is_predicted(folder: Path, tmp_path: Path) -> None:
    _, other = tumours()
    frame_of(other.inputs).to_csv(tmp_path / "new.csv", index=False)
    student = pate.load_student(str(folder))
    assert np.array_equal(
        student.predict(tmp_path / "new.csv"), student.predict(frame_of(other.inputs))
    )


def test_it_prints_its_terms(folder: Path) -> None:
    student = pate.load_student(folder)
    said = (
        "a student of 2 classes, a table of 30 columns; epsilon 1.97 at delta 1e-05 (unit: record"
    )
    assert repr(student).startswith(said)
    assert student._repr_html_().startswith(f"<p>{said}")
    assert student.statement["epsilon"] == 1.97
    # Fitted classifiers of scikit-learn are stored by pickle, too: it must survive that.
    assert pickle.loads(pickle.dumps(student)).classes == student.classes  # noqa: S301 - just made


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (np.zeros((2, 29)), "29 columns"),
        (np.zeros((2, 8, 8), dtype=np.uint8), "not images"),
        (np.full((2, 30), "x"), "should be numbers"),
    ],
)
def test_other_inputs_are_refused(folder: Path, data: object, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        pate.load_student(folder).predict(data)


def test_a_changed_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """So is one with something in it that could run."""
    with pytest.raises(DataError, match="no student"):
        pate.load_student(tmp_path)
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "privacy.json").unlink()
    assert "no privacy guarantee is known" in repr(pate.load_student(tmp_path))
    (tmp_path / "privacy.json").write_text("{}")
    with pytest.raises(DataError, match="does not say its epsilon"):
        pate.load_student(tmp_path)
    (tmp_path / "forest.skops").write_bytes(pickle.dumps([1]))
    with pytest.raises(DataError, match="not the file"):
        pate.load_student(tmp_path)
    described = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(described | {"kind": "pickle"}))
    with pytest.raises(DataError, match="unknown kind"):
        pate.load_student(tmp_path)
