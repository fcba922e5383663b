"""``pate-student`` with several labels, and with a number: train, evaluate, predict."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from pate.data.values import Dataset, Table, content_hash, is_numeric
from pate.formats.labels import LabelSet
from tests.student.conftest import Here
from tests.student.fit.test_several import LABELS, days, records, released
from tests.support.student_samples import STATEMENT


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
    public, noisy, classes = released(private, code, 2.0)
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


@pytest.mark.parametrize("option", ["--threshold", "--positive"])
def test_predictions_of_labels_take_no_threshold(tmp_path: Path, here: Here, option: str) -> None:
    prepare(tmp_path, records(3000, 2), records(50, 7), "nearest labels-2")
    trained(tmp_path, here)
    value = "0.5" if option == "--threshold" else "heart"
    code, _, said = here(
        "predict", "--model", tmp_path / "student", "--data", tmp_path / "test.csv",
        "--out", tmp_path / "o.csv", option, value,
    )  # fmt: skip
    assert code == 2
    assert "are for students of classes" in said
