"""``pate-student`` from the command line: train, evaluate, predict."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pate.data.read import read_inputs
from pate.data.values import Dataset, Table, content_hash, is_numeric
from pate.formats.labels import LabelRow, LabelSet
from pate.runtime.screen import Screen
from student import output
from student.session import identify
from tests.student.conftest import Here
from tests.student.fit.test_several import LABELS, days, records, released
from tests.support.processes.programs import until
from tests.support.student_samples import (
    PRIVACY,
    STATEMENT,
    tumours,
)


def write_csv(path: Path, data: Dataset, *, labelled: bool) -> None:
    table = data.inputs
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = [f"c{n}" for n in range(30)]
        writer.writerow(["id", *names, *(["diagnosis"] if labelled else [])])
        for at in range(len(data)):
            cells = [repr(float(column[at])) for column in table.columns]  # type: ignore[union-attr]
            truth = [data.classes[data.labels[at]]] if labelled else []
            writer.writerow([f"p{at}", *cells, *truth])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    public, held_out = tumours()
    write_csv(folder / "public.csv", public, labelled=False)
    write_csv(folder / "test.csv", held_out, labelled=True)
    own = identify(read_inputs(folder / "public.csv", drop=("id",)))
    rows = tuple(LabelRow(at, int(public.labels[at]), 1, "teachers") for at in range(60))
    labels = LabelSet(b"c" * 16, public.classes, own.content_hash, 400, rows, PRIVACY)
    (folder / "labels.json").write_text(labels.to_json(), encoding="utf-8")
    return folder


def test_train_evaluate_predict(place: Path, here: Here) -> None:
    out, test = place / "student", place / "test.csv"
    code, printed, _ = here(
        *(
            "train", "--labels", place / "labels.json", "--public", place / "public.csv",
            "--drop", "id",
        ),
        *("--out", out, "--steps", 20, "--test", test, "--label", "diagnosis", "--json"),
    )  # fmt: skip
    assert code == 0
    trained = json.loads(printed)
    assert trained["epsilon"] == 1.97
    assert trained["labels"] == 60
    assert trained["evaluation"]["accuracy"] > 0.85

    on_test = ("--data", test, "--label", "diagnosis")
    code, printed, _ = here("evaluate", "--model", out, *on_test, "--out", place / "e", "--json")
    assert code == 0
    # Which queries got labels is known where the student was trained, and not from the model.
    assert trained["evaluation"].pop("coverage")
    assert json.loads(printed) == trained["evaluation"] | {"coverage": None}
    assert {path.name for path in (place / "e").iterdir()} == {
        "evaluation.json", "evaluation.png", "calibration.png",
    }  # fmt: skip
    measured = json.loads(printed)
    assert (measured["data"], measured["decision"]) == ("test.csv", None)
    assert measured["scores"]["auc"] > 0.9
    assert (out / "calibration.png").exists()
    card = (out / "README.md").read_text()
    assert "| AUC | 0.9" in card
    assert "(test.csv)." in card
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    code, printed, shown = here("evaluate", "--model", out, *on_test)
    assert (code, printed) == (0, "")
    # Beside the model, and not in what is published.
    assert (out.parent / f"{out.name}-evaluation" / "test.csv" / "evaluation.png").exists()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert "malignant" in shown
    assert "predicted across" in shown

    # Columns that the student does not know do no harm here.
    assert here("predict", "--model", out, "--data", test, "--out", place / "p.csv")[:2] == (0, "")
    with (place / "p.csv").open() as file:
        rows = list(csv.DictReader(file))
    _, held_out = tumours()
    truth = [held_out.classes[number] for number in held_out.labels]
    right = np.mean([row["predicted"] == name for row, name in zip(rows, truth, strict=True)])
    assert right == pytest.approx(trained["evaluation"]["accuracy"])

    by = ("--threshold", 0.9, "--positive", "malignant")
    given = ("--data", test, "--out", place / "p9.csv", *by, "--json")
    assert here("predict", "--model", out, *given)[0] == 0
    with (place / "p9.csv").open() as file:
        strict = list(csv.DictReader(file))
    sure = [float(row["probability of malignant"]) >= 0.9 for row in strict]
    assert [row["predicted"] == "malignant" for row in strict] == sure
    assert sum(sure) < sum(row["predicted"] == "malignant" for row in rows)
    code, printed, _ = here("evaluate", "--model", out, *on_test, *by, "--json")
    decision = json.loads(printed)["decision"]
    assert decision["threshold_source"] == "given"
    hits = sum(s and name == "malignant" for s, name in zip(sure, truth, strict=True))
    assert decision["precision"]["share"] == pytest.approx(hits / sum(sure))

    chosen = ("--at-sensitivity", 0.95, "--patient-column", "id")
    code, printed, shown = here("evaluate", "--model", out, *on_test, *chosen)
    assert (code, printed) == (0, "")
    assert "(chosen on this data)" in shown
    assert "no test of the student" in " ".join(shown.split())
    assert "169 patients" in shown
    stored = json.loads((place / "student-evaluation" / "test.csv" / "evaluation.json").read_text())
    assert stored["decision"]["threshold_source"] == "chosen on this data"
    for command, wrong, why in (
        ("predict", ("--positive", "malignant"), "without --threshold"),
        ("predict", ("--threshold", 2), "from 0 to 1"),
        ("evaluate", ("--positive", "green"), "the classes are malignant and benign"),
        ("evaluate", ("--threshold", 0.5, "--at-sensitivity", 0.5), "give either"),
    ):
        more = ("--out", place / "wrong.csv") if command == "predict" else ("--label", "diagnosis")
        code, printed, shown = here(command, "--model", out, "--data", test, *more, *wrong)
        assert (code, printed, why in shown) == (2, "", True)
    # No option is named that the command does not have.
    thousands = place / "thousands.csv"
    thousands.write_text('radius_mean,texture_mean\n"1,250",1\n')
    code, _, shown = here(
        "predict", "--model", out, "--data", thousands, "--out", place / "wrong.csv"
    )
    assert (code, "--" in shown) == (10, False)
    assert "a decimal point and nothing between thousands, or leave the column out" in shown
    assert not (place / "wrong.csv").exists()

    code, _, shown = here("export", "--model", out, "--out", place / "m.onnx")
    assert code == 2
    assert "no ONNX form" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (("--labels", "labels.json", "--server", "a:1"), 2, "give either"),
        (("--server", "localhost"), 2, "write host:port"),
        (("--server", "https://localhost:1"), 2, "write host:port, without https://"),
        (("--labels", "absent.json"), 10, "cannot read the labels"),
        (("--labels", "public.csv"), 10, "not JSON"),
        (("--labels", "labels.json", "--model", "vat"), 2, "choose selftraining"),
        (("--labels", "labels.json"), 11, "give --public the same files"),
        (("--server", "127.0.0.1:1", "--max-wait", "0.2"), 40, "nothing from 127.0.0.1:1"),
    ],
)
def test_one_line_and_an_exit_code(
    arguments: tuple[str, ...],
    code: int,
    why: str,
    place: Path,
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    got, printed, shown = here("train", "--public", "public.csv", "--out", "new", *arguments)
    assert (got, printed) == (code, "")
    last = shown.strip().splitlines()[-1]
    assert last.startswith("pate-student: ")
    assert why in last
    assert not (place / "new").exists()


def test_a_published_student_is_replaced_when_asked_only(
    place: Path, tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    command = (
        "train", "--labels", "labels.json", "--public", "public.csv", "--drop", "id",
        "--out", str(tmp_path / "out"), "--steps", "5",
    )  # fmt: skip
    assert here(*command)[0] == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    code, _, said = here(*command, "--seed", "1")
    assert (code, "--force" in said) == (2, True)
    assert "training" not in said
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert here(*command, "--seed", "1", "--force")[0] == 0
    assert before != {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_help_is_quick_to_come() -> None:
    probe = (
        "import sys; from student.cli import app; import typer.testing as t;"
        "r = t.CliRunner().invoke(app, ['train', '--help']); assert r.exit_code == 0, r.output;"
        "heavy = {'torch', 'sklearn', 'pandas', 'grpc', 'matplotlib', 'onnx'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


def write_table(path: Path, table: Table, more: dict[str, list[object]]) -> None:
    columns: dict[str, list[object]] = {
        name: [repr(cell) for cell in column.tolist()] if is_numeric(column) else column.tolist()
        for name, column in zip(table.names, table.columns, strict=True)
    }
    columns |= more
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def prepare(place: Path, private: Dataset, held: Dataset, code: str) -> None:
    """Write public.csv, labels.json and test.csv."""
    public, noisy, classes = released(private, code, 2.0, rows=1000, digits=9)
    write_table(place / "public.csv", public, {})
    mechanism = [{"mechanism": "neighbour", "scale": "4", "threshold": 0, "code": code}]
    privacy = json.dumps(STATEMENT | {"mechanism": mechanism})
    labels = LabelSet(
        b"c" * 16, classes, content_hash(public), len(public), (), privacy, noisy=noisy
    )
    (place / "labels.json").write_text(labels.to_json(), encoding="utf-8")
    assert isinstance(held.inputs, Table)
    assert held.answers is not None
    more: dict[str, list[object]] = {"days": held.answers.tolist()}
    if held.kind == "labels":
        said = [["no", "yes"][each] for each in held.answers[:, 0].astype(int).tolist()]
        rest = held.answers[:, 1:].astype(int).T.tolist()
        more = dict(zip(LABELS, [said, *rest], strict=True))
    write_table(place / "test.csv", held.inputs, more)


def trained(place: Path, here: Here, *more: str) -> dict[str, object]:
    code, printed, said = here(
        "train", "--labels", place / "labels.json", "--public", place / "public.csv",
        "--out", place / "student", "--steps", 10, "--test", place / "test.csv", "--json", *more,
    )  # fmt: skip
    assert code == 0, said
    found: dict[str, object] = json.loads(printed)
    return found


def test_several_labels_are_trained_measured_and_predicted(tmp_path: Path, here: Here) -> None:
    prepare(tmp_path, records(4000, 2), records(600, 7), "nearest labels-2")
    found = trained(tmp_path, here)
    assert found["evaluation"]["macro_auc"]["value"] > 0.7  # type: ignore[index]
    student, test = tmp_path / "student", tmp_path / "test.csv"
    assert sorted(path.name for path in student.iterdir()) == [
        "README.md", "evaluation.json", "label-0.skops", "label-1.skops", "label-2.skops",
        "model.json", "privacy.json",
    ]  # fmt: skip
    card = (student / "README.md").read_text()
    assert "It predicts each of 3 labels, of which an input may have any number: heart," in card
    assert "| label | inputs | AUC (95 %) | F1 (95 %) | threshold |" in card
    assert "| learnt from | noisy counts of 60 representatives, and no label |" in card
    flowing = " ".join(card.split())
    assert "vote once, for its labels, at most 2 of them, at the public input that" in flowing
    assert "This student saw the public inputs, those noisy sums, and nothing else" in flowing
    assert "labels that this student learnt from" not in flowing
    assert "There is no ONNX file" in flowing
    assert json.loads((student / "model.json").read_text())["training"]["learnt_from"]
    code, printed, _ = here("evaluate", "--model", student, "--data", test, "--json")
    assert (code, json.loads(printed)) == (0, found["evaluation"])
    code, printed, said = here("evaluate", "--model", student, "--data", test)
    assert code == 0
    assert "macro AUC" in said
    assert "heart" in printed + said
    out = tmp_path / "out.csv"
    code, _, _ = here("predict", "--model", student, "--data", test, "--out", out)
    assert code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    least = json.loads((student / "model.json").read_text())["thresholds"]
    for row in rows:
        for name, at in zip(LABELS, least, strict=True):
            chance = float(row[f"probability of {name}"])
            assert abs(chance - at) < 1e-5 or (row[name] == "1") == (chance >= at)
    for wrong in (("--positive", "heart"), ("--label", "heart")):
        code, _, _ = here("evaluate", "--model", student, "--data", test, *wrong)
        assert code == 2
    for wrong in (("--threshold", "0.5"), ("--positive", "heart")):
        code, _, said = here("predict", "--model", student, "--data", test, "--out", out, *wrong)
        assert code == 2
        assert "are for students of classes" in said
    code, _, said = here("export", "--model", student, "--out", tmp_path / "m.onnx")
    assert code != 0
    assert "image" in said


def test_a_number_is_trained_measured_and_predicted(tmp_path: Path, here: Here) -> None:
    prepare(tmp_path, days(4000, 2), days(600, 7), "nearest number")
    found = trained(tmp_path, here, "--label", "days")
    measured = found["evaluation"]
    assert measured["mean_absolute_error"]["value"] < measured["mean_absolute_error_of_median"]  # type: ignore[index]
    student, test = tmp_path / "student", tmp_path / "test.csv"
    card = " ".join((student / "README.md").read_text().split())
    assert "It predicts a number from 0 to 14: the mean." in card
    assert "its number, divided between two points of a range, at the public input" in card
    on_test = ("--data", test, "--label", "days")
    code, printed, _ = here("evaluate", "--model", student, *on_test, "--json")
    assert (code, json.loads(printed)) == (0, measured)
    code, _, said = here("evaluate", "--model", student, "--data", test)
    assert code == 2
    assert "name the column of the number with --label" in said
    out = tmp_path / "out.csv"
    assert here("predict", "--model", student, "--data", test, "--out", out)[0] == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600
    assert all(0 <= float(row["predicted"]) <= 14 for row in rows)


def test_long_work_says_that_it_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "_SILENT_S", 0.1)
    screen = Screen("pate-student")
    with output.never_silent(screen, "final student"):
        until(lambda: "final student: still at work, " in capsys.readouterr().err, "it says so")
