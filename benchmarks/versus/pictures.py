"""The two pictures of the page: accuracy against epsilon, and against the bytes of a party."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from benchmarks.versus.method import EPSILONS
from benchmarks.versus.record import TITLES
from benchmarks.versus.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.versus.record import Cell, Result

EPSILON_PICTURE: Final = "versus-epsilon.svg"
BYTES_PICTURE: Final = "versus-bytes.svg"
#: The epsilon of the picture of bytes, and of the costs.
SHOWN: Final = 1.0
#: Okabe and Ito's colours, which the colour-blind can tell apart, and markers.
_LOOKS: Final = {
    "ours": ("#000000", "o"),
    "teachers": ("#7a4fbf", "p"),
    "dp-sgd": ("#d55e00", "s"),
    "dp-sgd-taught": ("#8b2500", "d"),
    "dp-gradients": ("#e69f00", "^"),
    "dp-least-squares": ("#009e73", "D"),
    "dp-objective": ("#999999", "v"),
    "fedavg-opacus": ("#0072b2", "P"),
    "fedavg-server-noise": ("#56b4e9", "X"),
    "fedavg-client-noise": ("#cc79a7", "*"),
    "fedavg": ("#0072b2", "<"),
    "alone": ("#999999", ">"),
    "pooled": ("#000000", "h"),
}
_LINES: Final = {"pooled": ":", "fedavg": "-.", "alone": "--"}
_COLUMNS: Final = 3
#: How far below the best the picture of epsilons reaches.
_RANGE: Final = 0.2


def digest(results: Mapping[str, Result]) -> str:
    """Return a digest of all results, which the pictures carry."""
    text = "".join(results[name].to_json() for name in sorted(results))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(results: Mapping[str, Result], folder: Path) -> None:
    """Draw both pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in ((EPSILON_PICTURE, _against_epsilon), (BYTES_PICTURE, _against_bytes)):
        _save(_figure(results, draw), folder / name, digest(results))


def _figure(results: Mapping[str, Result], draw: object) -> Figure:
    from matplotlib.figure import Figure

    shown = [name for name in TITLES if name in results]
    rows = -(-len(shown) // _COLUMNS)
    figure = Figure(figsize=(10, 2.9 * rows + 0.9), layout="constrained")
    found: dict[str, Artist] = {}
    for number, name in enumerate(shown):
        axes = figure.add_subplot(rows, min(_COLUMNS, len(shown)), number + 1)
        axes.set_title(TITLES[name], fontsize=9)
        assert callable(draw)
        draw(axes, results[name])
        axes.set_ylabel("AUC" if results[name].goal == "auc" else "accuracy", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25, linewidth=0.5)
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=4, fontsize=7.5
    )
    return figure


def _save(figure: Figure, path: Path, mark: str) -> None:
    import matplotlib as mpl

    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "versus", "svg.fonttype": "path"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Description": mark})


def goal_of(result: Result, cell: Cell) -> tuple[float, float, float]:
    """Return mean and interval of the figure by which the data set's settings were chosen."""
    found = cell.auc if result.goal == "auc" else cell.accuracy
    return found.mean, found.low, found.high


def _against_epsilon(axes: Axes, result: Result) -> None:
    for name, (colour, marker) in _LOOKS.items():
        if without := result.cell(name, None):
            axes.axhline(
                goal_of(result, without)[0], color=colour, linestyle=_LINES[name], linewidth=1,
                label=WORDS[name].short,
            )  # fmt: skip
        there = [(each, cell) for each in EPSILONS if (cell := result.cell(name, each))]
        if there:
            values = [goal_of(result, cell) for _, cell in there]
            at, means = [each for each, _ in there], [mean for mean, _, _ in values]
            axes.plot(
                at, means, color=colour, marker=marker, markersize=4, label=WORDS[name].short,
                linewidth=2 if name == "ours" else 1,
            )  # fmt: skip
            if name == "ours":
                low, high = [low for _, low, _ in values], [high for _, _, high in values]
                axes.fill_between(at, low, high, color=colour, alpha=0.12, linewidth=0)
    # Methods that fail at small epsilon would leave no room to tell the others apart.
    best = max(goal_of(result, cell)[0] for cell in result.cells)
    lowest, _ = axes.get_ylim()
    axes.set_ylim(bottom=max(lowest, best - _RANGE))
    axes.set_xscale("log")
    axes.set_xticks(EPSILONS, [f"{each:g}" for each in EPSILONS])
    axes.minorticks_off()
    axes.set_xlabel("epsilon", fontsize=8)


def _against_bytes(axes: Axes, result: Result) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    for name, (colour, marker) in _LOOKS.items():
        cell = result.cell(name, SHOWN) or result.cell(name, None)
        if cell is None or name == "alone":  # nothing is sent
            continue
        mean, low, high = goal_of(result, cell)
        axes.errorbar(
            [(cell.cost.up + cell.cost.down) / 1e6], [mean], yerr=[[mean - low], [high - mean]],
            color=colour, marker=marker, markersize=5, linestyle="", elinewidth=0.8,
            markerfacecolor="none" if cell.epsilon is None else colour,
            label=WORDS[name].short,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"MB from and to a party, epsilon {SHOWN:g}", fontsize=8)
