"""docs/versus.md, to choose by, and docs/versus-tables.md, with every figure: made of the newest results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.versus import claims, pictures, record
from benchmarks.versus.method import EPSILONS
from benchmarks.versus.pictures import SHOWN
from benchmarks.versus.record import SITES, TITLES
from benchmarks.versus.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from benchmarks.versus.method import Cost
    from benchmarks.versus.record import Cell, Result

_Number = TypeVar("_Number", int, float)
#: Seconds that one request to a party and its answer are taken to need on a network.
_EXCHANGE_S: Final = 2.0
_HERE: Final = Path(__file__).parent
PAGE: Final = "versus.md"
TABLES: Final = "versus-tables.md"


def write(folder: Path, docs: Path) -> Path:
    """Write both pages and their pictures below ``docs`` from the results in a folder; return the first."""
    results = record.latest(folder)
    for name, text in render(results).items():
        (docs / name).write_text(text, encoding="utf-8")
    pictures.write(results, docs / "images")
    return docs / PAGE


def render(results: Mapping[str, Result]) -> dict[str, str]:
    """Return the texts of the pages by file name."""
    shown = [results[name] for name in TITLES if name in results]
    missing = [TITLES[name] for name in TITLES if name not in results]
    parts = {
        "pictures": _pictures(shown),
        "best": _best(shown),
        "ahead": claims.ahead(shown, EPSILONS[0]),
        "behind": claims.behind(shown),
        "federated": claims.federated(shown),
        "alone": claims.alone(shown),
        "at": f"{SHOWN:g}",
        "figures": _at_one(shown),
        "asked": _asked(shown),
        "missing": f"Not run yet: {'; '.join(missing)}." if missing else "",
        "data": "\n".join(_data(each) for each in shown),
    }
    made = {}
    for page, template in ((PAGE, "template.md"), (TABLES, "tables.md")):
        text = (_HERE / template).read_text(encoding="utf-8")
        for name, part in parts.items():
            text = text.replace(f"{{{name}}}", part)
        made[page] = text.rstrip("\n") + "\n"
    return made


def _pictures(shown: list[Result]) -> str:
    if not shown:
        return ""
    return (
        f"![accuracy or AUC against epsilon](images/{pictures.EPSILON_PICTURE})\n\n"
        "Methods below the frame are in the tables.\n\n"
        f"![accuracy or AUC against bytes](images/{pictures.BYTES_PICTURE})\n"
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(head)
    lines = [titles, ["---"] * len(titles), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _best(shown: list[Result]) -> str:
    """Return the comparison of ours with the best other method that protects the same unit."""
    rows = []
    for result in shown:
        figure = "AUC" if result.goal == "auc" else "accuracy"
        rows.append([TITLES[result.name], figure, *(_verdict(result, each) for each in EPSILONS)])
    head = ("data", "figure", *(f"epsilon {each:g}" for each in EPSILONS))
    return (
        "Records' votes of this project less the best other private method of the same unit, in points of "
        "the figure, and that method. Below zero the other is better. Its test figure makes it the best, "
        "which favours it. With `~` the difference is within the sampling error of two measurements apart; "
        "these share their test records, so some such differences are real.\n\n"
    ) + _table(head, rows)


def _at_one(shown: list[Result]) -> str:
    """Return the figure by which settings were chosen, of every method on every data set, at one epsilon."""
    rows = []
    for name, words in WORDS.items():
        cells = [result.cell(name, SHOWN) or result.cell(name, None) for result in shown]
        if any(cells):
            there = zip(shown, cells, strict=True)
            rows.append([words.title, *(_number(cell, result.goal) for result, cell in there)])
    goals = [f"{TITLES[one.name]}, {'AUC' if one.goal == 'auc' else 'accuracy'}" for one in shown]
    return _table(("method", *goals), rows)


def _asked(shown: list[Result]) -> str:
    """Return what each method asks of a party, the least and the most over the data sets."""
    rows = []
    for name, words in WORDS.items():
        found = [(one, one.cell(name, SHOWN) or one.cell(name, None)) for one in shown]
        cells = [(one, cell) for one, cell in found if cell is not None]
        if not cells:
            continue
        costs = [cell.cost for _, cell in cells]
        units = " or ".join(sorted({one.unit for one, _ in cells}, reverse=True))
        rows.append(
            [
                words.title,
                _span([cost.exchanges for cost in costs], str),
                _span([cost.up + cost.down for cost in costs], _size),
                _span([cost.seconds for cost in costs], "{:.1f}".format),
                _span([_minutes(name, cost) for cost in costs], "{:.1f}".format),
                words.sees,
                words.promise.format(unit=units),
            ]
        )
    head = (
        "method", "requests", "bytes, both ways", "seconds", "minutes online", "who sees what",
        "guarantee: against whom; of what",
    )  # fmt: skip
    return _table(head, rows)


def _span(values: list[_Number], say: Callable[[_Number], str]) -> str:
    """Return the least and the largest in words, once if they are the same.

    >>> _span([3, 1, 2], str), _span([2, 2], str)
    ('1 to 3', '2')
    """
    least, most = say(min(values)), say(max(values))
    return least if least == most else f"{least} to {most}"


def _minutes(name: str, cost: Cost) -> float:
    """Return minutes that a party must be online."""
    if WORDS[name].sees.startswith("one curator"):  # a party hands its records over, and is done
        return _EXCHANGE_S * cost.exchanges / 60
    return (cost.seconds + cost.waiting + _EXCHANGE_S * cost.exchanges) / 60


def _verdict(result: Result, epsilon: float) -> str:
    ours, others = result.cell(claims.OURS, epsilon), claims.rivals(result, epsilon)
    if ours is None or not others:
        return "-"
    points, beyond = claims.difference(result, ours, others[0])
    return f"{'' if beyond else '~'}{points:+.1f} ({WORDS[others[0].method].short})"


def _data(result: Result) -> str:
    sizes = result.sizes
    versions = ", ".join(f"{name} {number}" for name, number in sorted(result.versions.items()))
    commits = ", ".join(_commits(result))
    facts = (
        f"- {sizes['parties']} parties; {sizes['units']:,} {result.unit}s private, "
        f"{sizes['public']:,} public records, {sizes['validation']:,} for validation, "
        f"{sizes['test']:,} to test; always the commonest class: {100 * result.majority:.1f} %\n"
        f"- {result.note}; of its public part a third, at most 3,000, is for validation, where the data have "
        "no other such records\n"
        f"- settings were chosen by {'AUC' if result.goal == 'auc' else 'accuracy'}; means of "
        f"{_dealings(result)}; run from {result.date} on, commit {commits}; {versions}\n"
    )
    of_auc = ", mean of each class against the others" if sizes["classes"] > 2 else ""
    tables = [
        f"## {TITLES[result.name]}\n",
        facts,
        "Accuracy in percent, with its 95 % interval:\n",
        _figures(result, "accuracy"),
        f"AUC{of_auc}:\n",
        _figures(result, "auc"),
        f"What it asks of a party at epsilon {SHOWN:g}, and whom it protects from whom:\n",
        _costs(result),
        "Settings that validation records chose, and how many were tried:\n",
        _settings(result),
    ]
    return "\n".join(tables)


def _dealings(result: Result) -> str:
    numbers = sorted({len(cell.accuracy.dealings) for cell in result.cells})
    what = "runs, the parties being the four hospitals" if result.name in SITES else "dealings"
    return f"{' or '.join(map(str, numbers))} {what}"


def _commits(result: Result) -> list[str]:
    return sorted(
        {cell.commit[:12] + " and changes" * cell.commit.endswith("+") for cell in result.cells}
    )


def _figures(result: Result, figure: str) -> str:
    rows = []
    for name, words in WORDS.items():
        cells = {each: result.cell(name, each) for each in (*EPSILONS, None)}
        if not any(cells.values()):
            continue
        private = any(cells[each] for each in EPSILONS)
        told = [
            "not run" if private and cell is None and each is not None else _number(cell, figure)
            for each, cell in cells.items()
        ]
        rows.append([words.title, *told])
    head = ("method", *(f"epsilon {each:g}" for each in EPSILONS), "no privacy")
    return _table(head, rows)


def _number(cell: Cell | None, figure: str) -> str:
    if cell is None:
        return ""
    if cell.epsilon is not None and not cell.cost.exchanges:  # not one answer was paid for
        return "no model"
    if figure == "auc":
        return f"{cell.auc.mean:.3f} ({cell.auc.low:.3f} to {cell.auc.high:.3f})"
    found = cell.accuracy
    return f"{100 * found.mean:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _costs(result: Result) -> str:
    rows = []
    for name, words in WORDS.items():
        cell = result.cell(name, SHOWN) or result.cell(name, None)
        if cell is None:
            continue
        cost, promise = cell.cost, words.promise.format(unit=result.unit)
        rows.append(
            [
                words.title, str(cost.exchanges), _size(cost.up), _size(cost.down), f"{cost.seconds:.1f}",
                f"{_minutes(name, cost):.1f}", words.sees, promise,
            ]
        )  # fmt: skip
        if cost.steps:
            size = 4 * cost.numbers * cost.steps
            rows.append(
                [
                    f"{words.title.replace(' on pooled records', '')}, by secure aggregation: *not run*",
                    str(cost.steps), _size(size), _size(size), "",
                    f"{(cost.waiting + _EXCHANGE_S * cost.steps) / 60:.1f}",
                    "the server sees noisy sums of all parties",
                    f"the public, and the server if no party colludes with it; a {result.unit}",
                ]
            )  # fmt: skip
    head = (
        "method", "requests", "bytes up", "bytes down", "seconds", "minutes online", "who sees what",
        "guarantee: against whom; of what",
    )  # fmt: skip
    return _table(head, rows)


def _size(count: int) -> str:
    """Return bytes in words.

    >>> _size(1_234_567), _size(999), _size(0)
    ('1.2 MB', '1 kB', '0')
    """
    if not count:
        return "0"
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{-(-count // 1000)} kB"


def _settings(result: Result) -> str:
    rows = []
    for name, words in WORDS.items():
        for epsilon in (*EPSILONS, None):
            cell = result.cell(name, epsilon)
            if cell is not None:
                told = ", ".join(f"{key} {value}" for key, value in cell.setting.items())
                at = "none" if epsilon is None else f"{epsilon:g}"
                delta = "" if cell.delta is None else f"{cell.delta:g}"
                rows.append([words.short, at, delta, told, str(cell.tried)])
    return _table(("method", "epsilon", "delta", "setting", "tried"), rows)
