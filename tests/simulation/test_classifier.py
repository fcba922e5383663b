"""``PateClassifier``, and a published student in Python."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pate
from pate.data.values import Inputs, Table
from pate.errors import DataError, SchemaError, UsageError
from student.card import Provenance
from student.export import publish
from student.fit import trees
from student.lesson import Effort, Lesson
from student.weights import load
from tests.support.student_samples import PRIVACY, tumours

#: Checks of scikit-learn that do not hold, and why.
EXCEPTIONS = {
    "check_fit_idempotent": "two fits draw noise twice; a seed for it would take back the guarantee",
    "check_classifier_data_not_an_array": "compares two fits, too",
}

#: Checks that scikit-learn leaves out: of one that is not deterministic, and without SCIPY_ARRAY_API.
SKIPPED = {"check_pipeline_consistency", "check_array_api_input"}


def blobs(number: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, number)
    return random.normal(size=(number, 2)) + 8 * labels[:, None], np.array([-1, 1])[labels]


@pytest.fixture(scope="module")
def fitted() -> pate.PateClassifier:
    made = pate.PateClassifier(epsilon=2.0, delta=0.0, expected_records=40, random_state=0)
    return made.fit(*blobs(400, 0), public=blobs(150, 1)[0])


def test_it_predicts_the_labels_it_was_given(fitted: pate.PateClassifier) -> None:
    """400 records vote at 20 places, twenty at each; noise of a standard deviation of 2 decides few of them.

    That half of a cloud's places have the other's label has a chance below 1e-9.
    """
    points, labels = blobs(300, 2)
    assert fitted.classes_.tolist() == [-1, 1]
    assert fitted.score(points, labels) > 0.9
    chances = fitted.predict_proba(points)
    assert np.allclose(chances.sum(axis=1), 1)
    assert np.array_equal(fitted.predict(points), fitted.classes_[chances.argmax(axis=1)])


def test_its_epsilon_is_stated_with_its_terms(fitted: pate.PateClassifier) -> None:
    made = fitted.statement_
    assert 1.9 < made.epsilon <= 2.0
    assert made.delta == 0
    assert (made.unit, made.observer) == ("record", "public")
    assert made.adjacency.startswith("one record added, removed or altered")
    assert made.noise == "central: exact discrete noise, drawn by the server"


def test_without_public_inputs_nothing_is_looked_at() -> None:
    class Unseen:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"looked at {name}")

    unseen = Unseen()
    for public in (None, unseen):
        with pytest.raises(UsageError, match="fit needs public=: unlabelled inputs"):
            pate.PateClassifier().fit(unseen, unseen, public=public)


@pytest.mark.parametrize(
    ("settings", "more", "why"),
    [
        ({"unit": "party"}, {}, "one curator has no unit 'party'"),
        ({"unit": "patient"}, {}, "groups are of the unit patient"),
        ({}, {"groups": np.zeros(400)}, "groups are of the unit patient"),
        ({"epsilon": -1.0}, {}, "epsilon must be a positive number"),
    ],
)
def test_what_would_promise_something_else_is_refused(
    settings: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        pate.PateClassifier(**settings).fit(*blobs(400, 0), public=blobs(50, 1)[0], **more)


def test_no_parameter_seeds_noise_and_the_number_of_records_is_not_used() -> None:
    names = set(inspect.signature(pate.PateClassifier).parameters)
    assert names == {
        "epsilon", "delta", "unit", "teachers", "classes", "expected_records", "random_state",
    }  # fmt: skip
    # Equal seeds: forty draws, each 0 at most half of the time, agree with a chance below 1e-11.
    counts = []
    for _ in range(2):
        made = pate.PateClassifier(epsilon=4.0, delta=0.0, expected_records=40, random_state=0)
        made.fit(*blobs(400, 0), public=blobs(150, 1)[0])
        counts.append(made.student_.predict_proba(blobs(150, 3)[0]))
    assert not np.array_equal(counts[0], counts[1])


def test_a_stored_classifier_has_no_private_record() -> None:
    """Neither a number of a record nor its text, and no name of a patient."""
    records, labels = blobs(60, 0)
    table = np.column_stack([records, [f"secret-{at:04d}" for at in range(60)]]).astype(object)
    table[:, :2] = records
    public = np.column_stack([records[:30] + 0.5, ["known"] * 30]).astype(object)
    public[:, :2] = records[:30] + 0.5
    groups = np.array([f"patient-{at:04d}" for at in range(60)])
    made = pate.PateClassifier(epsilon=20.0, unit="patient", classes=[-1, 1], expected_records=60)
    stored = pickle.dumps(made.fit(table, labels, public=public, groups=groups))
    assert made.statement_.unit == "patient"
    assert made.figures_.seconds == 0.0
    assert b"known" in stored
    for private in (b"secret-", b"patient-0", *(each.tobytes() for each in records.ravel())):
        assert private not in stored
    assert pickle.loads(stored).predict(public).shape == (30,)  # noqa: S301 - just made


@pytest.mark.slow
def test_scikit_learns_own_checks_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checks know no public inputs, so a copy of each one's inputs is public."""
    from sklearn.utils.estimator_checks import check_estimator

    class Checked(pate.PateClassifier):
        def fit(self, X: Any, y: Any) -> Any:  # type: ignore[override]  # noqa: N803
            return super().fit(X, y, public=copy.copy(X))

    # One of the checks stores it, by its name in this module.
    Checked.__qualname__ = "Checked"
    monkeypatch.setattr(sys.modules[__name__], "Checked", Checked, raising=False)
    # Most of the time would be spent on files of trees, of which these checks need few.
    monkeypatch.setattr(trees, "TREES", 16)
    # Geometric noise at this epsilon is 0 but for a chance below e^-400, so that no check fails by chance.
    made = Checked(epsilon=1000.0, delta=0.0, expected_records=100)
    results = check_estimator(made, expected_failed_checks=EXCEPTIONS, on_skip=None, on_fail=None)
    by_status: dict[str, list[str]] = {}
    for each in results:
        by_status.setdefault(each["status"], []).append(each["check_name"])
    assert not by_status.get("failed")
    assert set(by_status.get("xfail", ())) <= set(EXCEPTIONS)
    assert set(by_status.get("skipped", ())) <= SKIPPED
    assert len(by_status["passed"]) > 30


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
