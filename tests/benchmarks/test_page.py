"""docs/results.md, its CSV and its pictures: made of the results, with every figure that was published."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks import claims, page, pictures
from benchmarks.record import RESULTS, Cell, Cost, Estimate, Result, Run, read_all
from benchmarks.rows import Goal
from pate.errors import DataError

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
    ours = adult.cell("records", 1.0)
    assert ours is not None
    better = replace(ours, figures=ours.figures | {"accuracy": Estimate(0.95, 0.94, 0.96)})
    after = page.render(results | {adult.row: adult.with_cell(better)})
    said = re.compile(r"Records' votes\*\* are ahead in (\d+) and behind in (\d+) of \d+")
    (ahead, behind), (more, fewer) = (said.findall(made[page.PAGE])[0] for made in (before, after))
    assert (int(more), int(fewer)) == (int(ahead) + 1, int(behind) - 1)
    assert "Adult at epsilon 1 (+9.5)" in after[page.PAGE]
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
