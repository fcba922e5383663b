"""Rows and their stored results; what is run, refused, and gone on with."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import record, run
from benchmarks.__main__ import main
from benchmarks.methods import linear, standard
from benchmarks.problem import Problem
from benchmarks.record import RESULTS, Cell, Cost, Estimate, Result, Run, read, read_all, rounded
from benchmarks.rows import DATA, METHODS, ROWS, Goal
from pate.errors import DataError, UsageError
from pate.runtime.screen import Screen
from tests.benchmarks.test_methods import tiny


def made(**changes: Any) -> Result:
    runs = (
        Run(
            seed=0, figures={"accuracy": 0.97}, counts={"asked": 20, "kept": 10, "right": 9},
            epsilons={"charged": 1.25}, bounds={"sharp": (0.5, 0.6)}, seconds={"student": 3.0},
        ),
        Run(
            seed=1, figures={"accuracy": 0.99}, counts={"asked": 20, "kept": 10, "right": 9},
            reused=True,
        ),
    )  # fmt: skip
    cells = (
        Cell(
            method="teachers", epsilon=5.0, delta=0.001, guarantee={"server_epsilon": None},
            setting={"sigma2": "12"}, figures={"accuracy": Estimate(0.98, 0.96, 0.99)}, runs=runs,
        ),
        Cell(method="pooled", figures={"auc": Estimate(0.7)}, cost=Cost(1, 2, 3, 0.5), tried=2),
    )  # fmt: skip
    fields: dict[str, Any] = {
        "row": "heart", "date": "2026-01-01", "data": {"unit": "record", "private": 100},
        "versions": {"python": "3.11.0"}, "machine": {"cores": 2.0}, "cells": cells,
    }  # fmt: skip
    return Result(**fields | changes)


def test_a_result_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = made().write(tmp_path)
    assert read("heart", tmp_path) == made()
    assert read_all(tmp_path) == {"heart": made()}
    assert read("adult", tmp_path) is None
    path.rename(tmp_path / "adult.json")
    with pytest.raises(DataError, match=r"adult\.json is of the row heart"):
        read("adult", tmp_path)
    (tmp_path / "cats.json").touch()
    with pytest.raises(DataError, match="there is no row cats"):
        read_all(tmp_path)


def test_means_and_spreads_are_over_the_runs() -> None:
    cell = made().campaign
    assert cell is not None
    assert (cell.mean("accuracy"), cell.spread("accuracy")) == pytest.approx((0.98, 0.02))
    assert cell.mean("label_accuracy") == pytest.approx(0.9)
    # What one run has not has no mean.
    for name in ("charged", "bounds.sharp", "classical.sharp", "seconds.student", "auc"):
        assert cell.mean(name) is None
        assert cell.spread(name) is None
    assert [cell.runs[0].value(name) for name in ("bounds.sharp", "classical.sharp")] == [0.5, 0.6]


@pytest.mark.parametrize(
    "change",
    [
        {"format": "pate-benchmark/0"}, {"date": "yesterday"}, {"surplus": 1},
        {"cells": [{"method": "a"}, {"method": "a"}]},
        {"cells": [{"method": "a", "runs": [{"seed": 3}, {"seed": 3}]}]},
        {"cells": [{"method": "a", "runs": [{"seed": 0, "counts": {"asked": 9, "kept": 10}}]}]},
    ],
    ids=str,
)  # fmt: skip
def test_other_contents_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(DataError):
        Result.from_json(json.dumps(json.loads(made().to_json()) | change))


def test_a_cell_takes_the_place_of_an_earlier_one() -> None:
    cell = replace(made().cells[0], tried=5)
    assert [each.tried for each in made().with_cell(cell).cells] == [2, 5]
    # A campaign's epsilon follows from its ledger: a new run may come to another, in the last digits, too.
    cell = replace(cell, epsilon=(cell.epsilon or 0) * (1 + 1e-9))
    assert [each.tried for each in made().with_cell(cell).cells] == [1, 2, 5]
    assert [each.tried for each in made().with_cell(cell, at_any=True).cells] == [2, 5]


def test_published_results_are_of_their_rows_and_stored_as_the_program_stores_them() -> None:
    results = read_all()
    assert results.keys() == ROWS.keys()
    for name, result in results.items():
        row = ROWS[name]
        assert (RESULTS / f"{name}.json").read_text() == result.to_json()
        assert {cell.method for cell in result.cells} == set(row.methods)
        if row.epsilons:
            assert {cell.epsilon for cell in result.cells} - {None} == set(row.epsilons)
        elif (cell := result.campaign) is not None and row.options is not None:
            # The cap is at most the budget; nearest votes of tries have delta 0.
            assert 0 < (cell.epsilon or 0) <= row.options.epsilon
            assert cell.delta in (0.0, row.options.delta, 1e-5)


def test_rows_name_known_data_methods_and_goals() -> None:
    for row in ROWS.values():
        assert row.data in DATA
        assert set(row.methods) <= {*METHODS, "series", "again", "forgetful"}
        assert bool(row.epsilons) != (row.options is not None)
        assert row.picked or row.epsilons
        for code in row.tries:
            assert row.options is not None
            assert row.options.with_code(code).told()["aggregator"] == "neighbour"
    for least, within in ((None, None), (0.9, 0.1)):
        with pytest.raises(UsageError, match="either absolute or relative"):
            Goal(epsilon={"cap": 1.0}, least=least, within=within)


@pytest.mark.parametrize(("epsilon", "text"), [(0.0991, "0.1"), (1.9999, "2"), (0.5, "0.5")])
def test_epsilons_are_rounded_up(epsilon: float, text: str) -> None:
    assert rounded(epsilon) == text


def test_surroundings_name_no_machine_and_no_path() -> None:
    versions, machine = record.surroundings()
    assert set(machine) == {"cores", "ram_gib", "gpu"}
    assert {"python", "numpy", "torch"} <= set(versions)
    assert not any("/" in str(value) for value in (*versions.values(), *machine.values()))


def test_what_a_benchmark_writes_is_no_change_of_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *name, *words], cwd=tmp_path, check=True, capture_output=True)

    written = (tmp_path / "benchmarks" / "results" / "a.json", tmp_path / "docs" / "results.md")
    for path in written:
        path.parent.mkdir(parents=True)
        path.write_text("1")
    git("init")
    git("add", "-A")
    git("commit", "-m", "a")
    monkeypatch.setattr(record, "ROOT", tmp_path)
    for path in written:
        path.write_text("2")
    assert not str(record.commit()).endswith("+")
    (tmp_path / "benchmarks" / "a.py").write_text("4")
    assert str(record.commit()).endswith("+")


def test_a_run_is_stored_by_method_and_goes_on_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = replace(
        ROWS["compare-heart"], methods=("dp-gradients", "pooled"), epsilons=(1.0, 8.0), dealings=2
    )
    screen = Screen("test")
    monkeypatch.setattr(run, "load", lambda _row, _work: replace(tiny(), chooser="auc"))
    methods = [
        replace(linear.METHODS[0], widens={}, settings=_one), standard.pooled(screen),
    ]  # fmt: skip
    monkeypatch.setattr(run, "methods_of", lambda *_: methods)

    def go(**how: Any) -> Result:
        path = run.run_row(row, work=tmp_path, screen=screen, out=tmp_path, **how)
        return Result.from_json(path.read_text())

    whole = go()
    assert [cell.key for cell in whole.cells] == [
        ("dp-gradients", 1.0, None), ("dp-gradients", 8.0, None), ("pooled", None, None),
    ]  # fmt: skip
    private, pooled = whole.cells[0], whole.cells[2]
    assert [each.seed for each in private.runs] == [0, 1]
    assert private.delta == 1e-5
    assert private.figures.keys() == {"accuracy", "balanced_accuracy", "auc"}
    assert private.mean("auc") == pytest.approx(private.figures["auc"].mean)
    # The model that validation chose, its words, and the best test figure of the others.
    assert len(pooled.runs) == 1
    assert pooled.tried == 3
    assert pooled.choice.startswith("auc on 80 validation records: boosted trees ")
    assert pooled.beside.keys() == {"auc"}
    # Only what is not there is run; a part leaves the rest.
    replace(whole, date="2000-01-01", cells=whole.cells[:1]).write(tmp_path)
    later = go(go_on=True)
    assert later.date == "2000-01-01"
    assert later.cells[0] == private
    assert len(later.cells) == 3
    assert len(go(methods=["pooled"]).cells) == 3
    # A figure that was made later, with other versions, says so; records that differ are another row.
    replace(whole, date="2000-01-01", versions={"numpy": "1.0"}).write(tmp_path)
    mixed = go(methods=["pooled"])
    assert (mixed.date, mixed.versions) == ("2000-01-01", {"numpy": "1.0"})
    assert [bool(each.versions) for each in mixed.cells] == [False, False, True]
    assert mixed.cells[2].versions == record.surroundings()[0]
    assert mixed.cells[2].date > "2000-01-01"
    assert mixed == Result.from_json(mixed.to_json())
    replace(whole, data={**whole.data, "private": 1}).write(tmp_path)
    with pytest.raises(UsageError, match=r"compare-heart\.json has other private"):
        go(go_on=True)
    assert len(go().cells) == 3
    with pytest.raises(UsageError, match="has no method 'cats'"):
        go(methods=["cats"])


def _one(_: Problem) -> list[Any]:
    return [{"kind": "columns", "steps": 10, "rate": 0.25, "clip": 0.5}]


def test_help_names_every_row_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, code in ((["--help"], 0), (["run", "cats"], 2)):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == code
    told = capsys.readouterr()
    for row in ROWS.values():
        assert f"  {row.name} " in told.out
        assert row.title in told.out
    assert "cats" in told.err


def test_a_row_whose_files_are_not_here_says_which_would_make_it_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data.gz").touch()
    monkeypatch.setenv("PATE_TEST_DATA", str(tmp_path))
    words = ["run", "adult", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(words) == DataError.exit_code
    (told,) = capsys.readouterr().err.strip().splitlines()
    assert "adult: adult/adult.test.gz of PATE_TEST_DATA would make this row run" in told
    assert not (tmp_path / "out").exists()
