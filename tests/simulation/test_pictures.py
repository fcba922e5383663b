"""The pictures that programs draw: nothing runs over an edge, counts are whole, terms are complete."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from pate.data.values import Dataset, Images
from pate.formats.labels import LabelRow, LabelSet
from simulation.report import Report, draw
from student.evaluation.evaluate import Evaluation
from student.evaluation.fairness import Coverage, by_group
from student.evaluation.pictures import draw as draw_evaluation
from student.evaluation.pictures import draw_curves
from student.evaluation.scores import score
from tests.support.student_samples import PRIVACY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


TERMS = ("epsilon", "delta", "unit", "adjacency", "observer")
LONG = (
    "epsilon 0.9974 at delta 0.0001 (unit: patient; adjacency: all records of one patient at one "
    "party added, removed or altered; observer: public)"
)


def campaign(folder: Path, *, labels: int, teachers: int, unit: str = "record") -> Figure:
    """The picture of a campaign over 60 images of three classes."""
    rng = np.random.default_rng(0)
    truth = np.arange(60, dtype=np.int64) % 3
    public = Dataset(
        Images(rng.integers(0, 255, (60, 8, 8, 1)).astype(np.uint8)), truth, ("a", "b", "c")
    )
    rows = tuple(LabelRow(at, at % 3, 1, "teachers") for at in range(labels))
    made = LabelSet(b"c" * 16, public.classes, b"d" * 32, 60, rows, PRIVACY)
    report = Report(
        parties=4, teachers=teachers, labels_asked=60, labels_answered=labels, label_accuracy=1.0,
        student_accuracy=0.9, nonprivate_accuracy=0.99, majority_accuracy=0.34, epsilon=0.99731,
        delta=1e-4, unit=unit, adjacency=f"one {unit} altered: it moves one vote",
        observer="public", mechanism="neighbour", seconds=1.0,
    )  # fmt: skip
    with drawn() as figures:
        draw(folder / "campaign.png", report, made, public.inputs, public)
    (figure,) = figures
    return figure


@pytest.mark.parametrize(("labels", "teachers", "unit"), [(60, 100, "record"), (4, 0, "patient")])
def test_a_campaigns(tmp_path: Path, labels: int, teachers: int, unit: str) -> None:
    figure = campaign(tmp_path, labels=labels, teachers=teachers, unit=unit)
    assert off_the_edge(figure) == []
    said = words(figure)
    assert all(term in said for term in TERMS)
    assert f"one {unit} altered" in said
    assert "moves one vote" not in said
    counts = next(axes for axes in figure.axes if "by class" in axes.get_title("left"))
    assert all(tick == int(tick) for tick in ticks(counts.yaxis))
    # Few labels fill their half.
    examples = [axes for part in figure.subfigs for axes in part.axes]
    assert min(labels, 48) <= len(examples) < 2 * min(labels, 48)


@pytest.mark.parametrize(("size", "grouped"), [(2, False), (2, True), (27, True)])
def test_an_evaluations(tmp_path: Path, size: int, *, grouped: bool) -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, size, (2, 300))
    names = np.array(["female, 60 and over, and a long name", "male"])[rng.integers(0, 2, 300)]
    classes = tuple(f"class {at}" for at in range(size))
    counts = tuple(range(size))
    made = Evaluation(
        classes,
        np.bincount(truth * size + predicted, minlength=size**2)
        .reshape(size, size)
        .astype(np.int64),
        by_group(names, truth, predicted, classes) if grouped else None,
        Coverage(classes, counts, tuple(at // 2 for at in counts), counts) if grouped else None,
    )
    with drawn() as figures:
        draw_evaluation(made, tmp_path / "evaluation.png", promise=LONG)
    (figure,) = figures
    assert off_the_edge(figure) == []
    assert LONG in words(figure)
    groups = (1 if size > 2 else 2) if grouped else 0
    assert words(figure).count("95 %") == 1 + groups
    with Image.open(tmp_path / "evaluation.png") as image:  # there is ink, above and below
        pixels = np.asarray(image.convert("L"))
    assert min(part.std() for part in np.array_split(pixels, 2 if grouped else 1)) > 5


@pytest.mark.parametrize(
    "classes", [("healthy", "ill with a name of many letters"), tuple("abcdef")]
)
@pytest.mark.parametrize("count", [1, 40, 3000])
def test_the_curves_of_an_evaluation(tmp_path: Path, classes: tuple[str, ...], count: int) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, len(classes), count)
    known = rng.dirichlet(np.ones(len(classes)), count)
    made = Evaluation(
        classes,
        np.diag(np.bincount(truth, minlength=len(classes))).astype(np.int64),
        data="a file of a very long name, of which nobody would think that it is one.parquet",
        scores=score(known, truth, classes),
    )
    with drawn() as figures:
        draw_curves(made, tmp_path / "calibration.png", promise=LONG)
    (figure,) = figures
    assert off_the_edge(figure) == []
    said = words(figure)
    assert LONG in said
    assert f"{count} inputs of a file" in said
    assert made.scores is not None
    bins = [each.observed.count for each in made.scores.bins]
    assert f"of {min(bins)}" in said
    # The last line is that of the dots, one a bin, all within the scale of log odds.
    upper = figure.axes[0]
    dots = np.asarray(upper.lines[-1].get_xdata(), dtype=np.float64)
    assert len(dots) == len(bins)
    low, high = upper.get_xlim()
    assert np.all((low <= dots) & (dots <= high))
    assert len(figure.axes) == (2 if len(classes) == 2 and count > 1 else 1)
