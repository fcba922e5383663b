"""Inspection of drawn figures: clipping, texts and axes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axis import Axis
    from matplotlib.figure import Figure, FigureBase


@contextmanager
def drawn() -> Iterator[list[Figure]]:
    """The figures that the block saves, each as it was saved."""
    from matplotlib.figure import Figure

    found: list[Figure] = []
    save = Figure.savefig

    def spy(figure: Figure, *arguments: Any, **options: Any) -> None:
        found.append(figure)
        save(figure, *arguments, **options)

    with patch.object(Figure, "savefig", spy):
        yield found


def words(figure: Figure) -> str:
    """All that is written on a figure outside of its ticks."""
    parts: list[FigureBase] = [figure, *figure.subfigs]
    said = [text.get_text() for part in parts for text in part.texts]
    for axes in figure.axes:
        said += [axes.get_title(at) for at in ("left", "center", "right")]
        said += [axes.get_xlabel(), axes.get_ylabel(), *(text.get_text() for text in axes.texts)]
        legend = axes.get_legend()
        said += [] if legend is None else [text.get_text() for text in legend.get_texts()]
    return " ".join(" ".join(said).split())


def off_the_edge(figure: Figure) -> list[str]:
    """The artists that exceed the edge of a figure."""
    width, height = figure.bbox.width, figure.bbox.height
    parts: list[FigureBase] = [figure, *figure.subfigs]
    found = {text.get_text(): text.get_window_extent() for part in parts for text in part.texts}
    found |= {
        f"axes {at}": box for at, axes in enumerate(figure.axes) if (box := axes.get_tightbbox())
    }
    return [
        what
        for what, box in found.items()
        if box.x0 < 0 or box.y0 < 0 or box.x1 > width or box.y1 > height
    ]


def ticks(axis: Axis) -> list[float]:
    """Where an axis has ticks that are seen."""
    low, high = sorted(axis.get_view_interval())
    return [float(tick) for tick in axis.get_majorticklocs() if low <= tick <= high]
