"""docs/results.md: the rendering of a result, and the criterion of a goal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.dated import write as write_result
from benchmarks.papers.figures import shortfalls
from benchmarks.papers.record import rounded
from benchmarks.papers.row import Wanted
from benchmarks.papers.rows import ROWS
from benchmarks.papers.table import render, write
from pate.errors import DataError, UsageError
from tests.support.benchmark_results import result, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_goal_within_its_epsilons_is_reached() -> None:
    wanted = Wanted(least=0.8, epsilon={"cap": 1.5, "paper-2018": 1.0, "sharp": 0.5})
    assert shortfalls(result(), wanted) == []


def test_a_goal_at_too_large_an_epsilon_is_not() -> None:
    wanted = Wanted(least=0.8, epsilon={"paper-2018": 0.99, "sharp": 0.4})
    assert shortfalls(result(), wanted) == [
        "epsilon 1 by paper-2018 above 0.99",
        "epsilon 0.5 by sharp above 0.4",
    ]


def test_a_bound_that_was_not_computed_reaches_no_goal() -> None:
    wanted = Wanted(least=0.8, epsilon={"paper-2017": 9.0})
    assert shortfalls(result(), wanted) == ["no epsilon by paper-2017"]


def test_where_nobody_held_exact_votes_the_cap_stands_for_every_bound() -> None:
    noisy = result(runs=(replace(run(seed=0, epsilon=0.9), bounds={}, classical={}),))
    wanted = Wanted(least=0.8, epsilon={"paper-2018": 1.0})
    assert shortfalls(noisy, wanted) == []
    assert shortfalls(noisy, replace(wanted, epsilon={"sharp": 0.8})) == [
        "epsilon 0.9 by sharp above 0.8"
    ]


def test_a_mean_that_is_off_by_rounding_reaches_its_goal() -> None:
    runs = tuple(run(seed=seed, accuracy=0.7, epsilon=0.1) for seed in range(3))
    assert np.mean([0.1] * 3) > 0.1
    assert shortfalls(result(runs=runs), Wanted(least=0.7, epsilon={"cap": 0.1})) == []


def test_a_goal_at_delta_0_is_not_reached_at_another() -> None:
    wanted = Wanted(least=0.8, epsilon={"cap": 2.0}, delta=0.0)
    assert shortfalls(result(), wanted) == ["delta 1e-05 above 0"]
    pure = replace(run(seed=0), guarantee={**run(seed=0).guarantee, "delta": 0.0})
    assert shortfalls(result(runs=(pure,)), wanted) == []
    assert "at 1.5 (cap), delta 0 |" in render({"heart": result(runs=(pure,))})


@pytest.mark.parametrize(("within", "missing"), [(0.05, []), (0.03, ["accuracy 2.00 % too low"])])
def test_a_goal_may_be_relative_to_no_privacy(within: float, missing: list[str]) -> None:
    wanted = Wanted(within=within + 1e-9, epsilon={"cap": 2.0})
    assert shortfalls(result(), wanted) == missing


def test_without_a_student_a_goal_was_not_run() -> None:
    wanted = Wanted(least=0.8, epsilon={"cap": 2.0})
    assert shortfalls(result(runs=(replace(run(seed=0), student={}),)), wanted) is None


def test_a_goal_is_absolute_or_relative() -> None:
    with pytest.raises(UsageError):
        Wanted(epsilon={"cap": 1.0})
    with pytest.raises(UsageError):
        Wanted(least=0.9, within=0.1, epsilon={"cap": 1.0})


@pytest.mark.parametrize(
    ("epsilon", "text"), [(0.1, "0.1"), (0.1000001, "0.101"), (0.9999, "1"), (1.97, "1.97")]
)
def test_epsilons_are_rounded_up(epsilon: float, text: str) -> None:
    assert rounded(epsilon) == text


def test_the_document_says_what_was_run_and_what_was_not() -> None:
    text = render({"heart": result(), "svhn": result(row="svhn", note="the images are not here")})
    assert "| [Heart Disease, four hospitals](#heart) | none | **80.00 % (0.00)**" in text
    assert "**Not all of this row was run: the images are not here.**" in text
    lacking = [line for line in text.splitlines() if ": not run" in line]
    assert len(lacking) == len(ROWS) - 2
    hurdles = [row.hurdle for row in ROWS.values() if row.hurdle]
    assert [line for line in lacking if not line.endswith(": not run yet.")] == [
        f"- {ROWS['glyph-interactive'].title}: not run: {hurdle}." for hurdle in hurdles
    ]
    assert lacking[0].startswith("- MNIST, LNMax")
    assert not any("Heart" in line or "SVHN" in line for line in lacking)


def test_a_model_that_validation_chose_is_shown_with_the_one_that_it_did_not() -> None:
    chosen = "calibrated, by accuracy on 9 validation records"
    known = {
        "model": "a network, calibrated", "accuracy": 0.88, "low.accuracy": 0.87,
        "high.accuracy": 0.9, "other.accuracy": 0.93, "chosen": chosen,
    }  # fmt: skip
    text = render({"pneumonia": result(row="pneumonia", reference=known)})
    assert "| 88.00 % [87.0 to 90.0]; not chosen 93.00 % |" in text
    # The runs have 80 %, where 2 points less than no privacy are wanted.
    (row,) = [line for line in text.splitlines() if line.startswith("| [Pneumonia")]
    by_chosen, by_other = row.split(" | ")[-1].split(
        "; beside a model that validation did not choose: "
    )
    assert by_chosen.startswith("no: accuracy 6.00 % too low")
    assert by_other.startswith("no: accuracy 11.00 % too low")
    line = f"- without privacy: a network, calibrated: accuracy 88.00 % [87.0 to 90.0]; chosen: {chosen}"
    assert line in text.splitlines()


def test_a_model_that_validation_did_not_choose_rightly_is_not_shown() -> None:
    known = {"model": "trees", "accuracy": 0.88, "other.accuracy": 0.86, "chosen": "by accuracy"}
    text = render({"pneumonia": result(row="pneumonia", reference=known)})
    assert "not chosen" not in text
    assert "did not choose" not in text


def test_intervals_stand_where_they_are_known() -> None:
    text = render({"heart": result(intervals={"accuracy": (0.74, 0.86)}, dealings=1)})
    assert "**80.00 % [74.0 to 86.0]**" in text
    assert "accuracy 80.00 % [74.0 to 86.0], AUC 0.700 (0.000); 2 seeds, one dealing" in text


@pytest.mark.parametrize(
    "changed", [{"picked": "otherwise"}, {"student": "head"}, {"epsilon": 7.0}]
)
def test_a_row_whose_words_or_settings_differ_from_its_result_is_refused(
    changed: dict[str, object],
) -> None:
    (name,) = changed
    other = result(settings={**result().settings, **changed})
    with pytest.raises(DataError, match=rf"row heart is no longer .* \({name} changed\)"):
        render({"heart": other})


def test_data_dependent_figures_are_not_for_publishing() -> None:
    lines = render({"heart": result()}).splitlines()
    told = {line.split(" | ")[0].strip("| "): line for line in lines if line.count(" | ") == 4}
    assert "| yes | the guarantee" in told["cap"]
    for name in ("paper-2018", "sharp"):
        assert "| no |" in told[name]


def test_a_paper_without_delta_is_shown_so() -> None:
    pure = render({"mnist-neighbour-5000": result(row="mnist-neighbour-5000")})
    assert "| 99.1 % at 0.1 (cap), delta 0 |" in pure
    other = render({"mnist-confident": result(row="mnist-confident")})
    assert "| 98.5 % at 1.97 (paper-2018) |" in other


def test_a_result_of_no_row_is_refused() -> None:
    with pytest.raises(DataError, match="no row cats"):
        render({"cats": result(row="cats")})


def test_the_document_is_written_from_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no results"):
        write(tmp_path, tmp_path / "results.md")
    write_result(result(), tmp_path)
    assert "Heart Disease" in write(tmp_path, tmp_path / "results.md").read_text()


def test_every_row_has_a_name_of_its_own_and_says_how_it_was_set() -> None:
    assert len(ROWS) >= 11
    for name, row in ROWS.items():
        assert row.name == name
        assert row.picked
        assert row.options.teachers_of(row.parties)


def test_an_interval_without_privacy_is_told_of_every_figure() -> None:
    told = {"macro_auc": 0.8, "low.macro_auc": 0.71, "high.macro_auc": 0.89, "model": "a forest"}
    page = render({"diabetes130-groups": result(row="diabetes130-groups", reference=told)})
    assert "| 0.800 [0.710 to 0.890] macro AUC |" in page
