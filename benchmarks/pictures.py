"""The two pictures of docs/results.md as SVG: figures against epsilon, and distances to the best rival.

They are written as text, so that the same results give the same bytes with every version of every package.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.claims import Gap

WIDTH: Final = 760
#: Okabe and Ito's colours, which the colour-blind can tell apart: on white, and on a dark page.
COLOURS: Final = {
    "records": ("#000000", "#ffffff"),
    "teachers": ("#7a4fbf", "#b79cf0"),
    "dp-sgd": ("#d55e00", "#ff8a3d"),
    "dp-sgd-taught": ("#8b2500", "#e0835f"),
    "dp-gradients": ("#b87900", "#e69f00"),
    "dp-least-squares": ("#00785a", "#2fc79b"),
    "fedavg-opacus": ("#0072b2", "#56b4e9"),
    "alone": ("#777777", "#999999"),
    "pooled": ("#000000", "#ffffff"),
}
_MARKS: Final = {
    "records": '<circle r="4"/>',
    "teachers": '<path d="M0-5 5 4H-5Z"/>',
    "dp-sgd": '<path d="M-3.5-3.5H3.5V3.5H-3.5Z"/>',
    "dp-sgd-taught": '<path d="M-2-4.5H2V4.5H-2Z"/>',
    "dp-gradients": '<path d="M0 5 5-4H-5Z"/>',
    "dp-least-squares": '<path d="M0-5 5 0 0 5-5 0Z"/>',
    "fedavg-opacus": '<path d="M-1.5-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z"/>',
}
_DASHES: Final = {"pooled": "2 3", "alone": "7 4"}
_HEAD: Final = 26
_PANEL: Final = (WIDTH // 2, 226)


#: Epsilon, or None without privacy; mean, low and high.
Point: TypeAlias = tuple[float | None, float, float, float]


def against_epsilon(
    panels: Mapping[str, Mapping[str, Sequence[Point]]], titles: Mapping[str, str]
) -> str:
    """Return the picture of figures against epsilon.

    Args:
        panels: by title, the points of each method.
        titles: of the methods.
    """
    width, height = _PANEL
    rows = -(-len(panels) // 2)
    shown = {method for curves in panels.values() for method in curves}
    legend, below = _legend([name for name in COLOURS if name in shown], titles, rows * height)
    body = [
        f'<g transform="translate({number % 2 * width},{number // 2 * height})">{_panel(title, curves)}</g>'
        for number, (title, curves) in enumerate(panels.items())
    ]
    return _svg("".join([*body, legend]), below, "Figures of each method against epsilon")


def _panel(title: str, curves: Mapping[str, Sequence[Point]]) -> str:
    left, right, top, bottom = 46, _PANEL[0] - 12, _HEAD, _PANEL[1] - 38
    means = [mean for points in curves.values() for _, mean, _, _ in points]
    # Methods that fail at small epsilon would leave no room to tell the others apart: they leave the frame.
    least, most = max(max(means) - 0.2, min(means) - 0.01), max(means) + 0.01
    epsilons = sorted({at for points in curves.values() for at, *_ in points if at is not None})
    scale = math.log(epsilons[-1] / epsilons[0]) or 1.0

    def across(epsilon: float) -> float:
        return left + 14 + (right - left - 28) * math.log(epsilon / epsilons[0]) / scale

    def up(figure: float) -> float:
        return bottom - (bottom - top) * (figure - least) / (most - least)

    step = next(each for each in (0.002, 0.005, 0.01, 0.02, 0.05) if (most - least) / each < 7)
    parts = [_text(left, top - 9, title, "b")]
    for number in range(math.ceil(least / step), math.floor(most / step) + 1):
        parts.append(_line(left, up(number * step), right, up(number * step), "grid"))
        parts.append(_text(left - 5, up(number * step) + 4, f"{number * step:.3g}", "end"))
    parts += [_text(across(each), bottom + 16, f"{each:g}", "middle") for each in epsilons]
    parts.append(_text((left + right) / 2, bottom + 31, "epsilon", "middle"))
    parts.append(f'<svg x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" ')
    parts.append(f'viewBox="{left} {top} {right - left} {bottom - top}">')
    for method, points in curves.items():
        parts.append(f'<g class="{method}">')
        if points[0][0] is None:
            level = up(points[0][1])
            parts.append(_line(left, level, right, level, "l", _DASHES[method]))
        else:
            at = [(across(each or 0.0), *map(up, ends)) for each, *ends in points]
            if method == "records":
                edge = [(x, high) for x, _, _, high in at] + [(x, low) for x, _, low, _ in at[::-1]]
                parts.append(f'<polygon class="band" points="{_points(edge)}"/>')
            wide = " wide" if method == "records" else ""
            line = _points((x, y) for x, y, *_ in at)
            parts.append(f'<polyline class="l{wide}" points="{line}"/>')
            parts += [_mark(method, x, y) for x, y, *_ in at]
        parts.append("</g>")
    return "".join([*parts, "</svg>"])


def behind(groups: Mapping[str, Mapping[str, Sequence[Gap]]], titles: Mapping[str, str]) -> str:
    """Return the picture of distances to the best rival: a group of epsilons for each data set.

    Args:
        groups: by title, the distances of each method.
        titles: of the methods.
    """
    left, right, top, bottom, least, most = 40, WIDTH - 8, _HEAD + 4, 330, -20, 10
    wide = (right - left) / len(groups)

    def up(points: float) -> float:
        return bottom - (bottom - top) * (min(max(points, least), most) - least) / (most - least)

    parts = [_text(left, top - 12, "points ahead of the best rival (below 0: behind)", "b")]
    for points in range(least, most + 1, 5):
        parts.append(_line(left, up(points), right, up(points), "grid" if points else "zero"))
        parts.append(_text(left - 5, up(points) + 4, f"{points:+d}" if points else "0", "end"))
    for number, (title, methods) in enumerate(groups.items()):
        start = left + number * wide
        parts.append(_line(start, top, start, bottom + 34, "grid"))
        parts.append(_text(start + wide / 2, bottom + 31, title, "middle"))
        for shift, (method, gaps) in enumerate(methods.items()):
            parts.append(f'<g class="{method}">')
            for at, gap in enumerate(gaps):
                x = start + wide * (at + 0.8) / (len(gaps) + 0.6)
                if not shift:
                    parts.append(_text(x, bottom + 15, f"{gap.epsilon:g}", "middle small"))
                x += 6 * shift - 3
                low, high = up(gap.points - gap.error), up(gap.points + gap.error)
                parts.append(_line(x, low, x, high, "l") + _mark(method, x, up(gap.points)))
            parts.append("</g>")
    note = "Epsilon, and below it the data. Marks on the lowest line are further behind."
    parts.append(_text(left, bottom + 49, note, ""))
    shown = dict.fromkeys(method for methods in groups.values() for method in methods)
    legend, below = _legend(list(shown), titles, bottom + 54)
    return _svg("".join([*parts, legend]), below, "Distance of this project to the best rival")


def _legend(names: Sequence[str], titles: Mapping[str, str], top: float) -> tuple[str, int]:
    """Return a legend in three columns from a height on, and where it ends."""
    parts = []
    for number, name in enumerate(names):
        x, y = 16 + number % 3 * (WIDTH - 16) / 3, top + 16 + number // 3 * 20
        parts.append(f'<g class="{name}">{_line(x, y, x + 26, y, "l", _DASHES.get(name, ""))}')
        parts.append((_mark(name, x + 13, y) if name in _MARKS else "") + "</g>")
        parts.append(_text(x + 32, y + 4, titles[name], ""))
    return "".join(parts), int(top + 16 + -(-len(names) // 3) * 20)


def _svg(body: str, height: int, title: str) -> str:
    light = "".join(f".{name}{{color:{one}}}" for name, (one, _) in COLOURS.items())
    dark = "".join(f".{name}{{color:{two}}}" for name, (_, two) in COLOURS.items())
    style = (
        ".page{fill:#fff}text{fill:#222;font:12px sans-serif}.b{font-weight:bold}.small{font-size:10px}"
        ".end{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#ddd}.zero{stroke:#555}"
        ".l{stroke:currentColor;fill:none;stroke-width:1.2}.wide{stroke-width:2.4}"
        ".band{fill:currentColor;opacity:.12}.mark{fill:currentColor}"
        f"{light}@media(prefers-color-scheme:dark){{.page{{fill:#1e2129}}text{{fill:#ddd}}"
        f".grid{{stroke:#444}}.zero{{stroke:#bbb}}{dark}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{style}</style>"
        f'<rect class="page" width="{WIDTH}" height="{height}"/>\n{body}</svg>\n'.replace(
            "<g ", "\n<g "
        )
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str, dashes: str = "") -> str:
    told = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{kind}" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"{told}/>'


def _mark(name: str, x: float, y: float) -> str:
    return f'<g class="mark" transform="translate({x:.1f},{y:.1f})">{_MARKS[name]}</g>'


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
