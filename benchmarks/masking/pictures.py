"""Two pictures: how the costs grow with the number of parties, and with that of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.masking.report import Case, Cost, Figures

MASKED, PLAIN, FLOWER = "#0b3c5d", "#d1731f", "#7a1f1f"
#: Of the queries: shapes and lines, for those who do not see colours.
STYLES = (("o", "--"), ("s", "-"))
PANELS: tuple[tuple[str, Callable[[Cost], float]], ...] = (
    ("a party's processor, ms", lambda cost: 1e3 * cost["party_seconds"]["total"]),
    (
        "a party's traffic, both ways, kB",
        lambda cost: (
            (cost["party_bytes_up"]["total"] + cost["party_bytes_down"].get("total", 0.0)) / 1e3
        ),
    ),
    ("the server's processor, ms", lambda cost: 1e3 * cost["server_seconds"]["total"]),
)


def draw(folder: Path, found: Figures) -> None:
    """Write ``masking_parties.png`` and ``masking_queries.png``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.4), dpi=120, layout="constrained")
    figure.suptitle("Masked sum of votes, 10 classes, by the number of parties", fontsize=11)
    for axes, (title, pick) in zip(figure.subplots(1, 3), PANELS, strict=True):
        for style, queries in zip(
            STYLES, sorted({each["queries"] for each in found["growth"]}), strict=False
        ):
            cases = [each for each in found["growth"] if each["queries"] == queries]
            _curves(axes, cases, "parties", pick, style, f", {queries:,} queries")
        _finish(axes, title, "parties", [each["parties"] for each in found["growth"]])
    (first,) = figure.axes[:1]
    _flower(first, found, "parties")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False, fontsize=9)  # fmt: skip
    figure.savefig(folder / "masking_parties.png")

    figure = Figure(figsize=(12.5, 4.4), dpi=120, layout="constrained")
    lengths = found["lengths"]
    figure.suptitle(
        f"Masked sum of votes, 10 classes, {lengths[0]['parties']} parties, by the number of "
        "queries",
        fontsize=11,
    )
    for axes, (title, pick) in zip(figure.subplots(1, 3), PANELS, strict=True):
        _curves(axes, lengths, "queries", pick, STYLES[1], "")
        _finish(axes, title, "queries", [each["queries"] for each in lengths])
    (first,) = figure.axes[:1]
    _flower(first, found, "queries")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=5,
                  frameon=False, fontsize=9)  # fmt: skip
    figure.savefig(folder / "masking_queries.png")


def _curves(
    axes: Axes,
    cases: Sequence[Case],
    by: str,
    pick: Callable[[Cost], float],
    style: tuple[str, str],
    label: str,
) -> None:
    marker, line = style
    places = [float(each[by]) for each in cases]  # type: ignore[literal-required]
    for name, colour in (("masked", MASKED), ("plain", PLAIN)):
        costs = [pick(each[name]) for each in cases]  # type: ignore[literal-required]
        axes.plot(
            places, costs, color=colour, marker=marker, linestyle=line, markersize=5,
            label=name + label,
        )  # fmt: skip


def _flower(axes: Axes, found: Figures, by: str) -> None:
    """Flower's primitives, at the one size where they were run."""
    at = found["measured"]
    axes.plot(
        [at[by]], [1e3 * found["flower"]["party_seconds"]["total"]], color=FLOWER, marker="*",
        linestyle="", markersize=12,
        label=f"Flower's primitives, {at['parties']} parties, {at['queries']:,} queries",
    )  # fmt: skip


def _finish(axes: Axes, title: str, by: str, places: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, StrMethodFormatter

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(set(places))))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(by)
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
