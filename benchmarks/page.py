"""docs/results.md with its pictures, and docs/results.csv: made of the stored results and of rows.toml.

Do not edit them: change benchmarks/page.md or run a row again, and then `python -m benchmarks page`. Every
sentence that depends on figures is made of them, so that none outlives its figures.
"""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks import claims, pictures
from benchmarks.record import RESULTS, ROOT, read_all, rounded
from benchmarks.rows import METHODS, ROWS
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from benchmarks.record import Cell, Result
    from benchmarks.rows import Row

PAGE: Final = "results.md"
ROWS_BESIDE: Final = "results.csv"
EPSILON_PICTURE: Final = "images/results-epsilon.svg"
GAP_PICTURE: Final = "images/results-gaps.svg"
COMPARISON: Final = "compare-"
#: Epsilons of the comparison in the table, and the one of costs and of most sentences.
TABLED: Final = (0.1, 1.0, 8.0)
SHOWN: Final = 1.0
FIGURES: Final = ("accuracy", "balanced_accuracy", "auc", "macro_auc", "mae", "r2")
#: Where the template has a part, or a figure of a row.
_PLACE: Final = re.compile(r"\{([^}]+)\}")
#: Parts of titles that other columns of the table say.
_SAID: Final = (
    "neighbour votes", "records' votes", "delta 0", "patient level", "MiniLM",
    "EfficientNet-Lite0", "half of epsilon", "a third of epsilon",
)  # fmt: skip
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_TITLES: Final = {"auc": "AUC", "macro_auc": "macro AUC", "mae": "days of error"}
#: How the words about a row's settings say that test labels or test figures had a part.
_SEEN: Final = re.compile(
    r"\bran (before|with|three times)|test (labels|figure)|figures of the test|test parts"
)


def write(docs: Path = ROOT / "docs", folder: Path = RESULTS) -> Path:
    """Write the page, its CSV and its pictures below ``docs`` from the results; return the page."""
    for name, text in render(read_all(folder)).items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return docs / PAGE


def render(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the text of each file by its path below docs/."""
    if not results:
        raise DataError("there are no results: run a row first")
    text = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    parts = _parts(results)
    text = _PLACE.sub(
        lambda place: parts[place[1]] if place[1] in parts else _named(results, place[1]), text
    )
    return {PAGE: text, ROWS_BESIDE: _csv(results), **_pictures(_compared(results))}


def _compared(results: Mapping[str, Result]) -> dict[str, Result]:
    return {name: each for name, each in results.items() if name.startswith(COMPARISON)}


def _parts(results: Mapping[str, Result]) -> dict[str, str]:
    compared = list(_compared(results).values())
    every = sorted(
        {cell.epsilon for one in compared for cell in one.cells if cell.epsilon is not None}
    )
    goals = [(name, each, goal) for name, each in results.items() for goal in ROWS[name].goals]
    missed = [
        (name, each, goal) for name, each, goal in goals if claims.verdict(each, goal) != "reached"
    ]

    def points(method: str, other: str, epsilons: Sequence[float] = every) -> str:
        return claims.each_data(claims.gaps(compared, method, other, epsilons))

    rivals = claims.gaps(compared, "records", "rival", every)
    beyond = claims.beyond(rivals) if any(each.beyond for each in rivals) else ""
    return {
        "table": _table(results),
        "records": claims.counted(rivals),
        "records beyond": f" Beyond the sampling error is {beyond}." if beyond else "",
        "records each": points("records", "rival"),
        "records large": points("records", "rival", [each for each in every if each >= SHOWN]),
        "teachers": claims.counted(claims.gaps(compared, "teachers", "records", every)),
        "teachers each": points("teachers", "records"),
        "labels": claims.counted(claims.gaps(compared, "teachers", "teachers-labels", every)),
        "once": claims.counted(claims.gaps(compared, "records", "records-once", every)),
        "in rounds": claims.with_both(compared, "records", "records-once"),
        "in arrays": claims.with_both(compared, "teachers", "teachers-labels"),
        "empty": " Where the cell of records' votes is empty, rounds did not run."
        * any(one.cell("records", epsilon) is None for one in compared for epsilon in TABLED),
        "teachers rival": claims.counted(claims.gaps(compared, "teachers", "rival", every)),
        "no privacy": points("records", "pooled", [SHOWN]),
        "whole party": claims.span(
            (
                -each.points
                for each in claims.gaps(compared, "fedavg-server-noise", "records", [SHOWN])
            ),
            "{:.0f}".format,
        ),
        "federated": points("fedavg-opacus", "records", [SHOWN]),
        "alone": claims.alone(compared, every[1]) if len(every) > 1 else "",
        "small": f"{every[1]:g}" if len(every) > 1 else "",
        "records cost": _cost(compared, "records"),
        "teachers cost": _cost(compared, "teachers"),
        "federated cost": _cost(compared, "fedavg-opacus"),
        "averaging cost": _cost(compared, "fedavg"),
        "pooled cost": _cost(compared, "dp-sgd"),
        "goals": f"{len(goals) - len(missed)} of {len(goals)}",
        "missed": "\n".join(
            f"- {_title(ROWS[name])}, ε {_named(results, f'{name} epsilon')}: "
            f"wanted {claims.wanted(goal)}; {claims.verdict(each, goal)}."
            for name, each, goal in missed
        ),
        "delta": f"{max(filter(None, map(_delta_times_units, results.values()))):.2g}",
        "lines": f"{sum(len(each.cells) for each in results.values()):,}",
    }


def _named(results: Mapping[str, Result], name: str) -> str:
    """Return a figure that the template names: `ROW WHAT` of its campaign, or `ROW METHOD WHAT`."""
    row, *method, what = name.split()
    if row not in results:
        raise DataError(f"the page has a figure of the row {row}, which has no result")
    cell = results[row].campaign
    if method:  # the last of a series
        cell = [each for each in results[row].cells if each.method == method[0]][-1]
    assert cell is not None
    if what in cell.figures:
        return claims.said(what, cell.figures[what].mean)
    if what == "total_epsilon":
        return rounded(max(run.epsilons["epsilon"] for run in cell.runs))
    return rounded(claims.epsilon_by(cell, "cap" if what == "epsilon" else what))


def _cost(compared: Sequence[Result], method: str) -> str:
    cells = [one.cell(method, SHOWN) or one.cell(method) for one in compared]
    costs = [cell.cost for cell in cells if cell is not None and cell.cost is not None]
    requests = claims.span((each.exchanges for each in costs), "{:g}".format)
    return (
        f"{requests} request{'s' * (requests != '1')}, "
        f"{claims.span((each.up + each.down for each in costs), claims.size)}, "
        f"{claims.span((each.seconds for each in costs), '{:.1f}'.format)} seconds"
    )


def _table(results: Mapping[str, Result]) -> str:
    head = (
        "data", "private records", "unit", "ε", "δ", "without privacy", "teachers' votes",
        "records' votes", "best rival",
    )  # fmt: skip
    lines = [_line(head), "|---" * len(head) + "|"]
    compared = _compared(results)
    for name, result in compared.items():
        lines += [_line(_compared_cells(ROWS[name], result, epsilon)) for epsilon in TABLED]
    for name, result in results.items():
        if name not in compared and result.campaign is not None:
            lines.append(_line(_campaign_cells(ROWS[name], result, result.campaign)))
    return "\n".join(lines)


def _title(row: Row) -> str:
    """Return the title without what other columns or notes say."""
    return ", ".join(part for part in row.title.split(", ") if part not in _SAID)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _data_cells(row: Row, result: Result, title: str) -> list[str]:
    figure = "" if row.chooser == "accuracy" else f", {_TITLES[row.chooser]}"
    size = result.data.get("private")
    records = "votes only" if size is None else f"{size:,}"
    return [title + figure, records, result.data["unit"]]


def _power(delta: float) -> str:
    """Return delta as a power of ten.

    >>> _power(1e-5), _power(0.0)
    ('10⁻⁵', '0')
    """
    return f"10{f'{math.log10(delta):.0f}'.translate(_RAISED)}" if delta else "0"


def _compared_cells(row: Row, result: Result, epsilon: float) -> list[str]:
    best = claims.rival(result, epsilon)
    other = ""
    if best is not None:  # where the records are need not be said of each
        name = METHODS[best.method].short.partition(",")[0]
        other = f"{claims.ranged(best, row.chooser)} {name}"
    return [
        *_data_cells(row, result, f"*{_title(row)}*"),
        f"{epsilon:g}",
        f"≤{_power(1e-5)}",
        claims.ranged(result.cell("pooled"), row.chooser),
        claims.ranged(result.cell("teachers", epsilon), row.chooser),
        claims.ranged(result.cell("records", epsilon), row.chooser),
        other,
    ]


def _campaign_cells(row: Row, result: Result, cell: Cell) -> list[str]:
    here = claims.ranged(cell, row.chooser) or "no student"
    paper = row.paper
    published = ""
    if paper is not None:
        mark = "" if paper.basis == "cap" else "\\*"
        what = "" if row.chooser == "accuracy" else "accuracy "
        published = f"{what}{paper.accuracy:g} at {paper.epsilon:g}{mark} ({paper.where[:4]})"
    seen = " †" if _SEEN.search(row.picked) else ""
    return [
        *_data_cells(row, result, _title(row) + seen),
        rounded(claims.epsilon_by(cell, "cap")),
        _power(cell.delta or 0.0),
        claims.ranged(result.cell("pooled"), row.chooser),
        here if cell.method == "teachers" else "",
        here if cell.method == "records" else "",
        published,
    ]


def _pictures(compared: Mapping[str, Result]) -> dict[str, str]:
    if not compared:
        return {}
    titles = {name: words.short for name, words in METHODS.items()}
    panels, groups = {}, {}
    for name, result in compared.items():
        row = ROWS[name]
        kind = "AUC" if row.chooser == "auc" else row.chooser
        panels[f"{row.title}: {kind}"] = {
            method: points
            for method in pictures.COLOURS
            if (points := _points(result, method, row.chooser))
        }
        groups[claims.short(name)] = {
            method: claims.gaps([result], method, "rival", row.epsilons)
            for method in ("records", "teachers")
        }
    return {
        EPSILON_PICTURE: pictures.against_epsilon(panels, titles),
        GAP_PICTURE: pictures.behind(groups, titles),
    }


def _points(result: Result, method: str, figure: str) -> list[pictures.Point]:
    """Return a method's figures by epsilon, where it has a model."""
    points: list[pictures.Point] = []
    for cell in sorted(result.cells, key=lambda each: each.epsilon or 0.0):
        if cell.method == method and claims.ranged(cell, figure) != "no model":
            found = cell.figures[figure]
            points.append((cell.epsilon, found.mean, found.low or 0.0, found.high or 1.0))
    return points


# The rows beside the page

#: Columns of the CSV; those of each figure have its 95 % interval next to them.
_COLUMNS: Final = (
    "row", "title", "method", "epsilon", "delta", "unit", "server_epsilon",
    "chooser",
    *(f"{figure}{end}" for figure in FIGURES for end in ("", "_low", "_high")),
    "best_not_chosen", "no_privacy", "goal", "reached", "rival", "points", "points_error",
    "runs", "dealings",
    "parties", "private", "private_units", "public", "public_units", "validation", "test",
    "test_units", "classes", "majority",
    "delta_times_units", "asked", "released", "right", "right_range", "charged",
    *(f"{bound}{end}" for bound in (
        "independent", "expected", "paper-2017", "theorem3", "paper-2018", "theorem6", "sharp",
    ) for end in ("", "_classical")),
    "requests", "bytes_up", "bytes_down", "seconds", "server_seconds", "minutes", "sum_numbers",
    "sum_steps", "sum_bytes",
    "sum_minutes", "month", "new", "campaign_epsilon", "total_epsilon",
    *(f"auc_{part}{end}" for part in ("others", "next") for end in ("", "_range")),
    "tried", "validation_figure", "setting", "choice", "picked", "stages", "adjacency",
    "data", "date", "commit",
    "machine", "versions", "note",
)  # fmt: skip


def _csv(results: Mapping[str, Result]) -> str:
    file = io.StringIO()
    out = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    out.writeheader()
    for result in results.values():
        for line in (*_published(result), *(_csv_line(result, cell) for cell in result.cells)):
            out.writerow({name: _plain(value) for name, value in line.items()})
    return file.getvalue()


def _plain(value: object) -> object:
    return f"{value:.7g}" if isinstance(value, float) else value


def _published(result: Result) -> Iterator[dict[str, object]]:
    """Yield the line of what a paper reports."""
    row = ROWS[result.row]
    if (paper := row.paper) is not None:
        yield {
            "row": row.name, "title": row.title, "method": "published", "epsilon": paper.epsilon,
            "delta": paper.delta, "accuracy": paper.accuracy / 100,
            "note": f"epsilon by {paper.basis}; {paper.where}",
            "no_privacy": "" if paper.nonprivate is None else paper.nonprivate / 100,
        }  # fmt: skip


def _csv_line(result: Result, cell: Cell) -> dict[str, object]:
    row, data = ROWS[result.row], result.data
    line: dict[str, object] = {
        "row": row.name, "title": row.title, "method": cell.method,
        "epsilon": cell.epsilon, "delta": cell.delta, "chooser": row.chooser, "runs": len(cell.runs),
        "tried": cell.tried, "validation_figure": cell.validation, "choice": cell.choice,
        "setting": ", ".join(f"{name} {value}" for name, value in cell.setting.items() if name != "month"),
        "best_not_chosen": "; ".join(f"{name} {value:.7g}" for name, value in cell.beside.items()),
        "server_epsilon": cell.guarantee.get("server_epsilon"), "adjacency": cell.guarantee.get("adjacency"),
        "date": cell.date or result.date, "commit": (cell.commit or "")[:12],
    }  # fmt: skip
    line |= {name: value for name, value in data.items() if name != "note"}
    first = cell is result.cells[0]
    versions = (result.versions if first else {}) | cell.versions
    line["versions"] = ", ".join(f"{name} {value}" for name, value in versions.items())
    if first:
        line |= {
            "note": result.note, "data": data["note"],
            "machine": ", ".join(f"{name} {value}" for name, value in result.machine.items() if value),
        }  # fmt: skip
    line |= {f"{name}{end}": value for name, found in cell.figures.items() for end, value in (
        ("", found.mean), ("_low", found.low), ("_high", found.high),
    ) if value is not None}  # fmt: skip
    if cell is result.campaign and not row.epsilons:
        line |= _campaign_columns(row, result, cell)
    elif row.epsilons:
        line |= _cost_columns(cell)
        best = None if cell.epsilon is None else claims.rival(result, cell.epsilon)
        if METHODS[cell.method].ours and best is not None:
            ahead = claims.gap(result, cell, best)
            line |= {"rival": best.method, "points": ahead.points, "points_error": ahead.error}
    if month := cell.setting.get("month"):
        line |= {"month": month, "new": cell.mean("new"), **{
            f"auc_{part}_range": cell.spread(f"auc_{part}") for part in ("others", "next")
        }}  # fmt: skip
        for column, name in (
            ("campaign_epsilon", "campaign_epsilon"),
            ("total_epsilon", "epsilon"),
        ):
            line[column] = max(
                (run.epsilons[name] for run in cell.runs if name in run.epsilons), default=None
            )
    return line


def _delta_times_units(result: Result) -> float | None:
    """Return delta times the private units, by which a reader judges it."""
    cell, units = result.campaign, result.data.get("private_units")
    return cell.delta * units if cell is not None and cell.delta and units else None


def _campaign_columns(row: Row, result: Result, cell: Cell) -> dict[str, object]:
    bounds = cell.runs[0].bounds
    # Results before November 24 with a threshold test have `expected` under the name `independent`.
    renamed = "threshold" in cell.setting and "expected" not in bounds
    line: dict[str, object] = {
        "released": cell.mean("kept"), "asked": cell.mean("asked"), "right": cell.mean("label_accuracy"),
        "right_range": cell.spread("label_accuracy"), "charged": cell.mean("charged"), "picked": row.picked,
        "goal": "; ".join(map(claims.goal_in_words, row.goals)),
        "delta_times_units": _delta_times_units(result),
        "reached": "; ".join(claims.verdict(result, goal) for goal in row.goals),
    }  # fmt: skip
    for name in bounds:
        column = "expected" if renamed and name == "independent" else name
        line |= {
            column: cell.mean(f"bounds.{name}"),
            f"{column}_classical": cell.mean(f"classical.{name}"),
        }
    run = next((run for run in cell.runs if not run.reused), cell.runs[0])
    stages = ", ".join(f"{stage} {seconds:.3g}" for stage, seconds in run.seconds.items())
    again = "; teachers and votes were those of an earlier run" if run.reused else ""
    line["stages"] = f"{stages} seconds{again}"
    return line


def _cost_columns(cell: Cell) -> dict[str, object]:
    """Return what a method asks of a party, of sums over records also by secure aggregation."""
    cost = cell.cost
    assert cost is not None
    line: dict[str, object] = {
        "requests": cost.exchanges, "bytes_up": cost.up, "bytes_down": cost.down, "seconds": cost.seconds,
        "server_seconds": cost.waiting, "minutes": claims.minutes(cell),
    }  # fmt: skip
    if cost.steps:
        line |= {
            "sum_numbers": cost.numbers, "sum_steps": cost.steps, "sum_bytes": 4 * cost.numbers * cost.steps,
            "sum_minutes": (cost.waiting + claims.REQUEST_S * cost.steps) / 60,
        }  # fmt: skip
    return line
