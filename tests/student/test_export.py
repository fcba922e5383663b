from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from pate.data.values import Images
from pate.errors import DataError, DiskError, UsageError
from pate.formats.mechanism_words import mechanism_in_words
from pate.mechanisms import GNMax, Mechanism, Neighbour, TeacherLabels
from student import onnx_graph, weights
from student.card import Provenance, write_card
from student.evaluation.evaluate import evaluate
from student.export import check_out, publish, scratch
from student.fit.rows import TableStudent
from student.lesson import Effort, Lesson, Student
from student.training import train
from tests.support.student_samples import (
    PRIVACY,
    STATEMENT,
    digits,
    noisy_lesson,
    taught_rows,
    tumours,
)

PROVENANCE = Provenance("cd" * 16, "a *name*", "ef" * 32, 900, 50, 3, {"trainer": "x", "seed": 0})


@pytest.fixture(scope="module")
def of_images() -> Student:
    lesson = noisy_lesson(digits()[0], 50, wrong=0.0)
    return train(lesson, model="vat", seed=0, device="cpu", effort=Effort(steps=12))


@pytest.fixture(scope="module")
def of_rows() -> Student:
    return taught_rows(noisy_lesson(tumours()[0], 50, wrong=0.0), seed=0, effort=Effort(steps=5))


@pytest.mark.parametrize("kind", ["of_images", "of_rows"])
def test_round_trip(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    student: Student = request.getfixturevalue(kind)
    _, held_out = digits() if kind == "of_images" else tumours()
    weights.save(student, tmp_path)
    again = weights.load(tmp_path)
    assert (again.kind, again.classes, again.schema) == (
        student.kind,
        student.classes,
        student.schema,
    )
    assert np.array_equal(
        again.predict_probabilities(held_out.inputs), student.predict_probabilities(held_out.inputs)
    )


def test_constant_student_round_trip(tmp_path: Path) -> None:
    public, _ = tumours()
    queries = np.flatnonzero(public.labels == 0)[:3]
    lesson = Lesson(public.inputs, queries, public.labels[queries], public.classes)
    weights.save(taught_rows(lesson, seed=0), tmp_path)
    assert (weights.load(tmp_path).predict(public.inputs) == 0).all()


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (15, 18, 3), (52, 50, 1)])
def test_onnx_is_the_same_function(shape: tuple[int, int, int], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    queries = np.arange(12, dtype=np.int64)
    lesson = Lesson(Images(pixels), queries, queries % 3, ("a", "b", "c"))
    # A few steps, so that the statistics of the normalisation are not those of the beginning.
    student = train(lesson, model="vat", seed=0, device="cpu", effort=Effort(steps=3))
    onnx_graph.write(student, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    (probabilities,) = ReferenceEvaluator(model).run(None, {"images": pixels[:5]})
    expected = student.predict_probabilities(lesson.public.take(range(5)))
    assert expected.std() > 1e-3
    assert np.allclose(probabilities, expected, rtol=0, atol=1e-4)
    assert {p.key: p.value for p in model.metadata_props} == {"classes": "a\nb\nc"}


def test_tables_have_no_onnx_form(of_rows: Student, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this student has no ONNX form"):
        onnx_graph.write(of_rows, tmp_path / "model.onnx")


def test_publish_writes_everything(of_images: Student, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "student"
    result = evaluate(of_images, digits()[1])
    files = publish(of_images, out, privacy=PRIVACY, provenance=PROVENANCE, evaluation=result)
    assert files == [
        "README.md", "calibration.png", "evaluation.json", "evaluation.png", "model.json",
        "model.onnx", "model.safetensors", "privacy.json",
    ]  # fmt: skip
    assert [path.name for path in out.parent.iterdir()] == ["student"]
    assert (out / "privacy.json").read_bytes() == PRIVACY.encode()
    assert (out / "evaluation.png").read_bytes().startswith(b"\x89PNG")
    described = json.loads((out / "model.json").read_text())
    assert described["training"]["labels"] == 53
    card = (out / "README.md").read_text()
    for word in (
        "1.97", "1e-05", "record", "one teacher's vote changed", "public", "ef" * 32, "53",
    ):  # fmt: skip
        assert word in card
    assert "Student of a \\*name\\*" in card
    # Publishing again replaces.
    files = publish(of_images, out, privacy=PRIVACY, provenance=PROVENANCE)
    assert "evaluation.json" not in files
    assert [path.name for path in out.parent.iterdir()] == ["student"]


def test_the_card_of_a_pure_epsilon_knows_no_exception(of_rows: Student) -> None:
    def card(delta: float) -> str:
        return " ".join(write_card(of_rows, PROVENANCE, STATEMENT | {"delta": delta}, None).split())

    assert "at delta = 0**" in card(0.0)
    assert ", without exception. The figure" in card(0.0)
    assert "except with a probability of about 1e-05. The figure" in card(1e-5)


def test_the_card_repeats_what_the_statement_takes_back(of_rows: Student) -> None:
    taken_back = {"observer": "public", "epsilon": None, "delta": None, "meaning": "a seeded run"}
    simulated = STATEMENT | {"statements": [taken_back]}
    card = write_card(of_rows, PROVENANCE, simulated, None)
    assert "There is no privacy guarantee" in card
    assert "a seeded run" in card
    assert "1.97" not in card
    twice = [{"mechanism": "gnmax", "sigma": "5"}, {"mechanism": "interactive"}]
    card = write_card(of_rows, PROVENANCE, STATEMENT | {"mechanism": twice}, None)
    assert "Mechanism: gnmax (sigma 5); then interactive" in card
    assert "epsilon = 1.97 at" in card
    card = write_card(of_rows, PROVENANCE, STATEMENT | {"epsilon": 1.97001}, None)
    assert "epsilon = 1.9701 at" in card  # rounded against us


#: How a campaign was voted in, by its mechanisms: what its card says, and what would be false.
TAUGHT = (
    (
        [TeacherLabels(0, Fraction(40), 1, code="axes-12")],
        "as one array of bounded length",
        "winners",
    ),
    ([TeacherLabels(9, Fraction(40), 1, code="each-60")], "clear winners became labels", "array"),
    (
        [TeacherLabels(9, Fraction(40), 1, code="each-60 balanced")],
        "noisy sums were released",
        "array",
    ),
    ([GNMax(Fraction(40), 1)], "and the winners became labels", "noisy sum"),
    (
        [Neighbour(0, Fraction(each), 1, code="dense-32 residual") for each in (9000, 1304)],
        "vote once in each round, for its class, by its disagreement with the public model",
        "vote once, for",
    ),
    ([Neighbour(9, Fraction(40), 1)], "vote once, for its class", "round"),
    (
        [Neighbour(9, Fraction(40), 1, code="nearest ordered")],
        "a clear winner got it as their label",
        "noisy sums were released",
    ),
)


@pytest.mark.parametrize(("mechanisms", "said", "false"), TAUGHT)
def test_the_card_says_how_the_campaign_voted(
    of_rows: Student, mechanisms: list[Mechanism], said: str, false: str
) -> None:
    steps = [each.to_dict() for each in mechanisms]
    card = " ".join(write_card(of_rows, PROVENANCE, STATEMENT | {"mechanism": steps}, None).split())
    assert said in card
    assert false not in card.split("## Privacy")[0]
    # Of every step, to its last parameter.
    assert mechanism_in_words(steps).replace("_", "\\_") in card


def test_the_card_says_that_classes_have_an_order(of_rows: Student) -> None:
    assert isinstance(of_rows, TableStudent)
    ordered = replace(of_rows, answer="ordered")
    flowing = " ".join(write_card(ordered, PROVENANCE, STATEMENT, None).split())
    assert "It tells 2 classes apart, which have an order: malignant, benign." in flowing


def test_a_student_without_a_label_is_said_to_learn_from_none(of_rows: Student) -> None:
    sums = replace(
        PROVENANCE, from_teachers=0, reinforced=0, learnt_from="a model in 32 directions"
    )
    card = write_card(of_rows, sums, STATEMENT, None)
    assert "| learnt from | a model in 32 directions, and no label |" in card
    assert "labels learnt from" not in card


def test_a_student_of_a_campaign_without_a_name_is_told_by_its_id(of_rows: Student) -> None:
    for name in ("", "campaign"):
        card = write_card(of_rows, replace(PROVENANCE, name=name), STATEMENT, None)
        assert f"\n# Student of campaign {PROVENANCE.campaign[:12]}\n" in card
    assert "# Student of sites\n" in write_card(
        of_rows, replace(PROVENANCE, name="sites"), STATEMENT, None
    )


@pytest.mark.parametrize("privacy", ["", " \n", "{}", json.dumps(STATEMENT | {"epsilon": None})])
def test_nothing_is_published_without_privacy(
    privacy: str, of_rows: Student, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="privacy statement"):
        publish(of_rows, tmp_path / "out", privacy=privacy, provenance=PROVENANCE)
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_older_student(
    of_rows: Student, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    publish(of_rows, out, privacy=PRIVACY, provenance=PROVENANCE)
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("student.export.write_card", full)
    with pytest.raises(DiskError, match="is full"):
        publish(of_rows, out, privacy=PRIVACY, provenance=PROVENANCE)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_other_things_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="not a student"):
        check_out(tmp_path)
    with pytest.raises(UsageError, match="is a file"):
        check_out(tmp_path / "thesis.tex")


@pytest.mark.parametrize("kind", ["of_images", "of_rows"])
def test_changed_weights_are_refused(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    weights.save(request.getfixturevalue(kind), tmp_path)
    name = "model.safetensors" if kind == "of_images" else "forest.skops"
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match="is not the file that"):
        weights.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match="is missing"):
        weights.load(tmp_path)


def test_what_a_killed_training_left_is_gone_at_the_next_start(tmp_path: Path) -> None:
    """Its draft, and the folders that libraries make where temporary files go."""
    out = tmp_path / "student[1]"
    script = (
        "import os, signal, sys, tempfile; from pathlib import Path; "
        "from student.export import scratch\n"
        "with scratch(Path(sys.argv[1])) as folder:\n"
        "    os.mkdir(os.path.join(tempfile.gettempdir(), 'torchinductor_root'))\n"
        "    assert tempfile.gettempdir() == os.environ['TMPDIR'] == str(folder)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (elsewhere := tmp_path / "tmp").mkdir()
    killed = subprocess.run(
        [sys.executable, "-c", script, str(out)],
        check=False,
        env={**os.environ, "TMPDIR": str(elsewhere)},
    )
    assert killed.returncode == -signal.SIGKILL
    assert not list(elsewhere.iterdir())
    (left,) = set(tmp_path.iterdir()) - {elsewhere}
    assert (left / "torchinductor_root").is_dir()
    neighbour = tmp_path / ".student2.abcdefgh"  # of another training, which may run
    neighbour.mkdir()
    before = tempfile.gettempdir()
    with scratch(out) as folder:
        assert set(tmp_path.iterdir()) == {elsewhere, neighbour, folder}
        assert folder.stat().st_mode & 0o777 == 0o700
    assert set(tmp_path.iterdir()) == {elsewhere, neighbour}
    assert tempfile.gettempdir() == before


def test_other_types_in_a_skops_file_are_refused(of_rows: Student, tmp_path: Path) -> None:
    import skops.io
    from sklearn.neighbors import KNeighborsClassifier

    weights.save(of_rows, tmp_path)
    rows = np.zeros((4, 30), dtype=np.float32)
    swap(tmp_path, skops.io.dumps(KNeighborsClassifier(1).fit(rows, [0, 1, 0, 1])))
    with pytest.raises(DataError, match=r"types that a student has no use for|not a RandomForest"):
        weights.load(tmp_path)
    swap(tmp_path, b"not a zip")
    with pytest.raises(DataError, match="not a skops file"):
        weights.load(tmp_path)


def test_a_tree_that_points_outside_is_refused(of_rows: Student, tmp_path: Path) -> None:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier

    weights.save(of_rows, tmp_path)
    generator = np.random.default_rng(0)
    rows, labels = generator.random((50, 30)).astype(np.float32), generator.integers(0, 2, 50)
    forest = RandomForestClassifier(5, random_state=0).fit(rows, labels)
    swap(tmp_path, skops.io.dumps(forest))
    weights.load(tmp_path)
    forest.estimators_[3].tree_.children_left[0] = 10**6
    swap(tmp_path, skops.io.dumps(forest))
    with pytest.raises(DataError, match="point outside"):
        weights.load(tmp_path)


def swap(folder: Path, content: bytes) -> None:
    """Replace the forest by other bytes, with a matching description."""
    import hashlib

    (folder / "forest.skops").write_bytes(content)
    fields = json.loads((folder / "model.json").read_text())
    fields["files"]["forest.skops"] = hashlib.sha256(content).hexdigest()
    (folder / "model.json").write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "pate-student/9"}, "format"),
        ({"kind": "oracle"}, "oracle"),
        ({"classes": ["a"]}, "two distinct classes"),
        ({"classes": ["a", "b"]}, "other classes"),
        ({"architecture": {}}, "fields"),
        ({"architecture": None}, "its architecture: must be an object, got None"),
        ({"files": {}}, "is not the file"),
    ],
)
def test_wrong_descriptions_are_refused(
    change: dict[str, object], why: str, of_images: Student, tmp_path: Path
) -> None:
    fields = weights.save(of_images, tmp_path)
    (tmp_path / "model.json").write_text(json.dumps(fields | change))
    with pytest.raises(DataError, match=why):
        weights.load(tmp_path)


def test_an_architecture_that_would_not_fit_in_memory_is_refused(
    of_images: Student, tmp_path: Path
) -> None:
    fields = weights.save(of_images, tmp_path)
    architecture = fields["architecture"]
    assert isinstance(architecture, dict)
    for change in ({"blocks": 10**9}, {"stages": [10**9]}, {"blocks": 1.0}, {"stem_stride": 3}):
        (tmp_path / "model.json").write_text(
            json.dumps(fields | {"architecture": architecture | change})
        )
        with pytest.raises(DataError, match="architecture"):
            weights.load(tmp_path)


def test_no_student_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no student"):
        weights.load(tmp_path)
