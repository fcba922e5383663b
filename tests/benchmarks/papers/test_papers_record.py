"""Result files of rows: their validation, and the choice of the newest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks.dated import write
from benchmarks.papers.record import Result, latest, surroundings
from pate.errors import DataError
from tests.support.benchmark_results import result, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_result_reads_back_as_it_was_written() -> None:
    made = result()
    assert Result.from_json(made.to_json()) == made


def test_means_and_spreads_are_over_the_seeds() -> None:
    made = result(runs=(run(seed=0, accuracy=0.97), run(seed=1, accuracy=0.99)))
    summary = json.loads(made.to_json())["summary"]
    assert summary["student.accuracy"] == pytest.approx({"mean": 0.98, "spread": 0.02})
    assert summary["label_accuracy"]["mean"] == pytest.approx(0.9)


def test_a_figure_that_one_seed_has_not_has_no_mean() -> None:
    made = result(runs=(run(seed=0), replace(run(seed=1), student={})))
    assert made.mean("student.accuracy") is None
    assert made.spread("student.accuracy") is None
    assert made.mean("epsilon") == 1.5


@pytest.mark.parametrize(
    ("field", "value"),
    [("format", "pate-paper-row/0"), ("runs", []), ("date", "yesterday"), ("surplus", 1)],
)
def test_other_contents_are_refused(field: str, value: object) -> None:
    body = json.loads(result().to_json())
    body[field] = value
    with pytest.raises(DataError):
        Result.from_json(json.dumps(body))


def test_a_missing_field_is_refused() -> None:
    body = json.loads(result().to_json())
    del body["machine"]
    with pytest.raises(DataError, match="machine"):
        Result.from_json(json.dumps(body))


def test_more_right_labels_than_labels_are_refused() -> None:
    with pytest.raises(DataError, match="11 right of 10 kept"):
        result(runs=(replace(run(seed=0), right=11),))


def test_one_seed_twice_is_refused() -> None:
    with pytest.raises(DataError, match="seed twice"):
        result(runs=(run(seed=3), run(seed=3)))


def test_the_newest_result_of_a_row_counts(tmp_path: Path) -> None:
    for day in ("2026-01-02", "2026-03-01", "2026-02-28"):
        write(result(date=day), tmp_path)
    assert {row: found.date for row, found in latest(tmp_path).items()} == {"heart": "2026-03-01"}


@pytest.mark.parametrize("name", ["heart.json", "heart-2026-01-03.json"])
def test_a_file_under_another_name_is_refused(tmp_path: Path, name: str) -> None:
    write(result(date="2026-01-02"), tmp_path).rename(tmp_path / name)
    with pytest.raises(DataError, match="heart"):
        latest(tmp_path)


def test_surroundings_name_no_machine_and_no_path() -> None:
    _, versions, machine = surroundings()
    assert set(machine) == {"cores", "ram_gib", "gpu"}
    assert {"python", "numpy", "torch"} <= set(versions)
    assert not any("/" in str(value) for value in (*versions.values(), *machine.values()))
