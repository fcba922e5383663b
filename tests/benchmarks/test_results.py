"""Rows and their stored results, and the page that is made of them."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import claims, page, pictures, record, run
from benchmarks.__main__ import main
from benchmarks.methods import linear, standard
from benchmarks.methods.method import Fitted, Setting
from benchmarks.problem import Problem
from benchmarks.record import RESULTS, Cell, Cost, Estimate, Result, Run, read, read_all, rounded
from benchmarks.rows import DATA, METHODS, ROWS, Goal
from pate.errors import DataError, UsageError
from pate.runtime.screen import Screen
from tests.benchmarks.test_methods import small_forests, tiny  # noqa: F401 (a fixture)


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
    pooled_method = standard.pooled(screen)
    fitted: dict[str, Fitted] = {}

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        """Each model once, whatever is run again."""
        key = str((setting, epsilon, seed))
        if key not in fitted:
            fitted[key] = pooled_method.fit(problem, setting, epsilon, seed)
        return fitted[key]

    methods = [
        replace(linear.METHODS[0], widens={}, settings=_one), replace(pooled_method, fit=fit),
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


DOCS = Path(page.__file__).parents[1] / "docs"
#: Published figures by row, method, and epsilon or month: column and figures, separated by semicolons.
#: A figure has its mean, low and high, a text its numbers. The row `all` has the least and the most over the
#: comparison, the row `page` words of the page.
PUBLISHED = Path(__file__).with_name("published_figures.csv")
SVG = "{http://www.w3.org/2000/svg}"
#: Numbers of a text; not those of a name.
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e-\d+)?")
#: What is rounded up: epsilons.
UP = re.compile(r"epsilon|charged|independent|expected|paper-201|theorem|sharp")


def lines() -> list[dict[str, str]]:
    with (DOCS / page.ROWS_BESIDE).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_making_the_page_again_changes_no_byte() -> None:
    for name, text in page.render(read_all(RESULTS)).items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, (
            f"run `python -m benchmarks page`: {name}"
        )


def test_an_empty_cell_of_records_votes_is_told() -> None:
    told = "rounds did not run"
    every = {
        name: each
        for name, each in read_all(RESULTS).items()
        if not name.startswith(page.COMPARISON)
        or all(each.cell("records", epsilon) for epsilon in page.TABLED)
    }
    assert told not in page.render(every)[page.PAGE]
    heart = every["compare-heart"]
    cells = tuple(one for one in heart.cells if one != heart.cell("records", page.TABLED[0]))
    text = page.render(every | {heart.row: replace(heart, cells=cells)})[page.PAGE]
    assert told in text


def test_the_page_is_short_and_names_what_it_shows() -> None:
    text = (DOCS / page.PAGE).read_text(encoding="utf-8")
    assert len(text.split()) <= 3_500
    assert not re.search(r"\{|\bnan\b|None", text)
    assert len(re.findall(r"^\|---", text, re.MULTILINE)) == 1
    assert re.findall(r"!\[[^]]+\]\((.*?)\)", text) == [page.EPSILON_PICTURE, page.GAP_PICTURE]


def same(wanted: str, found: str, *, up: bool = False) -> bool:
    """Whether a number is the published one at its decimals."""
    step = 0.0 if "e" in wanted else 10.0 ** -len(wanted.partition(".")[2])
    less = float(wanted) - float(found.replace(",", ""))
    return -1e-6 <= less < step + 1e-6 if up else abs(less) <= 0.5001 * step + 1e-9


def is_found(line: dict[str, str], what: str, wanted: list[str]) -> bool:
    """Whether a line has the published figures of a column."""
    if what in ("rival", "commit", "date", "versions"):
        return all(one in line[what].replace(",", "").split() for one in wanted)
    if what == "sampling_error":
        return (abs(float(line["points"])) > float(line["points_error"])) == (wanted == ["beyond"])
    ends = [line.get(f"{what}{end}") for end in ("", "_low", "_high", "_range")]
    there = [end for end in ends if end and re.fullmatch(r"[-\d.e]+", end)]
    if len(wanted) <= len(there):
        return all(
            same(one, other, up=bool(UP.search(what)))
            for one, other in zip(wanted, there, strict=False)
        )
    numbers = NUMBER.findall(line[what])
    return all(any(same(one, other) for other in numbers) for one in wanted)


def is_spanned(found: list[dict[str, str]], what: str, wanted: str) -> bool:
    """Whether the least and the most of a cost over the comparison are the published ones."""
    if what == "bytes":
        values = [float(line["bytes_up"]) + float(line["bytes_down"]) for line in found]
        return claims.span(values, claims.size) == wanted
    say = "{:g}" if what == "requests" else "{:.1f}"
    return claims.span((float(line[what]) for line in found), say.format) == wanted


def test_every_published_figure_is_found() -> None:
    text = (DOCS / page.PAGE).read_text(encoding="utf-8")
    made, missing, seen = lines(), [], 0
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        published = list(csv.DictReader(file))
    for each in published:
        if each["row"] == "page":
            seen += 1
            missing += [] if each["figures"] in text else [each]
            continue
        month, epsilon = each["at"].removeprefix("month "), each["at"]
        there = [
            line
            for line in made
            if line["method"] == each["method"]
            and (line["row"] == each["row"] or (each["row"] == "all" and line["requests"]))
            and (line["month"] == month or (not line["month"] and _at(line["epsilon"], epsilon)))
        ]
        assert len(there) == 1 or (there and each["row"] == "all"), each
        for told in each["figures"].split("; "):
            what, _, wanted = told.partition(" ")
            seen += 1
            if not (
                is_spanned(there, what, wanted)
                if each["row"] == "all"
                else is_found(there[0], what, wanted.split())
            ):
                missing.append(each | {"figures": told, "found": there[0].get(what, "")})
    assert seen > 1_000
    assert not missing, f"{len(missing)}: {missing[:40]}"


def _at(found: str, wanted: str) -> bool:
    """Whether an epsilon is that of a line; published ones have three decimals at most."""
    return -1e-6 <= float(wanted) - float(found) < 1e-3 if found and wanted else found == wanted


def cell(method: str, mean: float, epsilon: float | None = 1.0, error: float = 0.01) -> Cell:
    return Cell(
        method=method, epsilon=epsilon, delta=None if epsilon is None else 1e-5, cost=Cost(2, 1000, 10, 1.0),
        figures={"accuracy": Estimate(mean, mean - error, mean + error)},
    )  # fmt: skip


def compared(*cells: Cell) -> Result:
    return Result(
        row="compare-adult", date="2026-11-23", data={"note": "made up"}, versions={}, cells=cells
    )


@pytest.mark.parametrize(("apart", "beyond"), [(0.013, False), (0.016, True), (-0.016, True)])
def test_a_difference_counts_from_the_sampling_error_of_both_on(apart: float, beyond: bool) -> None:
    """Intervals of 0.01 to each side overlap up to 0.02, but differ from 0.0141 on."""
    found = claims.gap(compared(), cell("records", 0.8), cell("dp-sgd", 0.8 - apart))
    assert found.points == pytest.approx(100 * apart)
    assert found.beyond == beyond


def test_the_rival_is_the_best_of_others_that_protect_the_same_unit() -> None:
    there = compared(
        cell("records", 0.9), cell("teachers", 0.9), cell("fedavg-server-noise", 0.9),
        cell("pooled", 0.9, None), cell("dp-sgd", 0.8, 8.0), cell("dp-sgd", 0.7), cell("dp-gradients", 0.72),
    )  # fmt: skip
    best = claims.rival(there, 1.0)
    assert best is not None
    assert best.method == "dp-gradients"
    assert claims.rival(there, 4.0) is None


def test_what_has_no_model_has_no_figure() -> None:
    nothing = replace(cell("teachers", 0.5), cost=Cost(0, 0, 0, 0.0))
    assert claims.ranged(nothing, "accuracy") == "no model"
    assert claims.ranged(cell("teachers", 0.5), "accuracy") == "50.0 (49.0–51.0)"


BESIDE = "next to a model that validation did not choose (82.0): 2.00 too low"
GOAL = Goal(least=0.85, epsilon={"cap": 1.0, "sharp": 0.6}, delta=0.0)


@pytest.mark.parametrize(
    ("goal", "mean", "told"),
    [
        (Goal(least=0.8, epsilon={"cap": 1.0}), 0.8, "reached"),
        (GOAL, 0.8, "5.00 too low, epsilon 0.7 by sharp above 0.6, delta 1e-05 above 0"),
        (Goal(within=0.01, epsilon={"cap": 1.0}), 0.79, f"reached; {BESIDE}"),
        (Goal(figure="mae", within=0.05, epsilon={"cap": 2.0}), 1.06, "0.010 too high"),
        (Goal(figure="auc", least=0.5, epsilon={"cap": 1.0}), 0.8, "not run"),
    ],
)  # fmt: skip
def test_a_goal_is_reached_or_the_gap_is_named(goal: Goal, mean: float, told: str) -> None:
    name = "mae" if goal.figure == "mae" else "accuracy"
    run = Run(seed=0, bounds={"sharp": (0.7, 0.9)})
    ours = replace(cell("records", mean), figures={name: Estimate(mean)}, runs=(run,))
    best = 1.0 if name == "mae" else 0.8
    pooled = Cell(method="pooled", figures={name: Estimate(best)}, beside={name: 0.82})
    there = replace(compared(ours, pooled), row="adult")
    if name == "mae":
        there = replace(there, cells=(ours, replace(pooled, beside={})))
    assert claims.verdict(there, goal) == told


def test_sentences_follow_the_figures(tmp_path: Path) -> None:
    results = read_all(RESULTS)
    before = page.render(results)
    adult = results["compare-adult"]
    ours = adult.cell("records", 0.5)
    assert ours is not None
    better = replace(ours, figures=ours.figures | {"accuracy": Estimate(0.95, 0.94, 0.96)})
    after = page.render(results | {adult.row: adult.with_cell(better)})
    said = re.compile(r"Records' votes\*\* are ahead in (\d+) and behind in (\d+) of \d+")
    (ahead, behind), (more, fewer) = (said.findall(made[page.PAGE])[0] for made in (before, after))
    assert (int(more), int(fewer)) == (int(ahead) + 1, int(behind) - 1)
    assert "Adult at epsilon 0.5 (+9.4)" in after[page.PAGE]
    assert all(before[name] != after[name] for name in before)
    with pytest.raises(DataError, match="the row banking77"):
        page.render({name: each for name, each in results.items() if name != "banking77"})
    with pytest.raises(DataError, match="no results"):
        page.write(tmp_path, tmp_path)
    assert page.write(tmp_path, RESULTS).read_text(encoding="utf-8") == before[page.PAGE]


def test_pictures_show_every_method_from_the_least_epsilon_on() -> None:
    made = page.render(read_all(RESULTS))
    for name in (page.EPSILON_PICTURE, page.GAP_PICTURE):
        tree = ET.fromstring(made[name])  # noqa: S314 (made here)
        texts = ["".join(each.itertext()) for each in tree.iter(f"{SVG}text")]
        assert "this project, teachers" in texts
        for curve in tree.iter(f"{SVG}polyline"):
            across = [float(pair.partition(",")[0]) for pair in curve.attrib["points"].split()]
            assert across == sorted(across)
    methods = set(re.findall(r'<g class="([a-z-]+)">', made[page.EPSILON_PICTURE]))
    assert methods == set(pictures.COLOURS)
