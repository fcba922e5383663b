from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.data.values import Images, Table
from pate.features.neighbours import nearest, representatives
from pate.features.space import space_over
from pate.formats.noisy_counts import NoisyVotes
from student.chances import evidence, neighbours
from student.chances.cells import Cells, cells_of
from student.chances.neighbours import DOUBT, KernelMachine, neighbour_graph, smooth, spread
from student.lesson import Effort, Lesson
from student.training import train

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SIGMA = 6.0


def points(count: int = 40) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)


def test_the_graph_is_symmetric_and_joins_the_nearest() -> None:
    held = points()
    graph = neighbour_graph(held, 4).toarray()
    assert np.allclose(graph, graph.T)
    assert (np.diag(graph) == 0).all()
    apart = np.square(held[:, None] - held).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    assert all(graph[row, apart[row].argmin()] > 0 for row in range(len(held)))
    # Its largest eigenvalue is 1, so spreading neither dies out nor blows up.
    assert np.linalg.eigvalsh(graph).max() == pytest.approx(1.0)


def test_labels_spread_within_clusters_and_outvote_a_wrong_one() -> None:
    held = points(60)
    held[30:] += 20
    evidence = np.zeros((60, 2))
    evidence[:6, 0] = 1
    evidence[30:36, 1] = 1
    evidence[6, 1] = 1  # wrong
    shares = spread(neighbour_graph(held, 6), evidence, 0.95)
    assert np.allclose(shares.sum(axis=1), 1.0, atol=1e-5)
    assert (shares.argmax(axis=1) == np.repeat([0, 1], 30)).mean() >= 59 / 60


def test_left_out_predictions_are_those_of_refitting_without_the_point() -> None:
    held = points()
    targets = np.sin(held).astype(np.float32)
    targets -= targets.mean(axis=0)
    machine = KernelMachine(held, width=0.5, ridge=0.3, landmarks=40, seed=0)
    kernel = np.exp(-0.5 * np.square(held[:, None] - held).sum(axis=2)).astype(np.float64)
    for row in (0, 17):
        rest = np.arange(40) != row
        weights = np.linalg.solve(kernel[rest][:, rest] + 0.3 * np.eye(39), targets[rest])
        assert np.allclose(machine.left_out(targets)[row], kernel[row, rest] @ weights, atol=2e-3)


def chances_at(points: NDArray[np.floating], classes: int) -> Floats:
    """Return (n, m) chances that bend with the points."""
    scores = np.stack([np.sin(1 + label + 2 * points).sum(axis=1) for label in range(classes)], 1)
    powers = np.exp(1.5 * scores)
    chances: Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances


def heard(classes: int, count: int = 700) -> tuple[NDArray[np.float32], Cells, Floats]:
    """Return public points, noisy cells of 4,000 records at 60 of them, and the true chances."""
    generator = np.random.default_rng(1)
    public = generator.normal(size=(count, 2)).astype(np.float32)
    private = generator.normal(size=(4000, 2)).astype(np.float32)
    drawn = generator.random((4000, 1)) > chances_at(private, classes).cumsum(axis=1)
    queries = representatives(public, 60)
    votes = np.zeros((60, classes))
    np.add.at(votes, (nearest(public[queries], private), drawn.sum(axis=1)), 1)
    cell = nearest(public[queries], public)
    mass = votes.sum(axis=1) + 1.0
    noise = SIGMA * generator.normal(size=votes.shape)
    apart = votes + noise - (votes + noise).mean(axis=1, keepdims=True)
    rows = np.bincount(cell, minlength=60).astype(np.int64)
    shares = 1 / classes + apart / mass[:, None]
    length = np.sqrt(np.square(public).sum(axis=1).mean())
    points = (public / length).astype(np.float32)
    return points, Cells(cell, rows, mass, shares, SIGMA), chances_at(public, classes)


@pytest.mark.parametrize("classes", [2, 4])
def test_smoothed_chances_are_nearer_to_the_truth_than_cells_are(classes: int) -> None:
    points, cells, truth = heard(classes)
    found = smooth([points], cells, seed=0)
    assert found.dtype == np.float32
    assert np.allclose(found.sum(axis=1), 1.0, atol=1e-5)
    raw = np.clip(cells.shares, 0, 1)[cells.cell]
    error = np.abs(found - truth).mean()
    assert error < 0.75 * np.abs(raw - truth).mean()
    assert error < 0.4 * np.abs(cells.overall - truth).mean()


def test_it_is_the_posterior_mean_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    width, strength, residual = 0.5, 2.0, 0.3
    monkeypatch.setattr(neighbours, "WIDTHS", (width,))
    monkeypatch.setattr(neighbours, "_STRENGTHS", (strength,))
    monkeypatch.setattr(neighbours, "_RESIDUALS", (residual,))
    points, cells, _ = heard(2, 300)
    found = smooth([points], cells, seed=0)
    kernel = np.exp(-width * np.square(points[:, None] - points).sum(axis=2)).astype(np.float64)
    mean = (cells.cell == np.arange(60)[:, None]) / cells.rows[:, None]
    share = cells.overall[1]
    spread = share * (1 - share)
    own = residual * spread / cells.mass + SIGMA**2 / 2 / cells.mass**2
    covariance = strength * spread * mean @ kernel @ mean.T + np.diag(own)
    weights = np.linalg.solve(covariance, cells.shares[:, 1] - share)
    wanted = share + strength * spread * kernel @ mean.T @ weights
    wanted = np.clip(np.stack([1 - wanted, wanted], axis=1), DOUBT / 2, 1)
    assert np.allclose(found, wanted / wanted.sum(axis=1, keepdims=True), atol=2e-3)


def test_few_landmarks_say_nearly_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points, cells, _ = heard(2)
    whole = smooth([points], cells, seed=0)
    monkeypatch.setattr(neighbours, "_LANDMARKS", 200)
    few = smooth([points], cells, seed=0)
    assert 0 < np.abs(few - whole).max() < 0.05


def test_noise_alone_says_nothing() -> None:
    points, cells, _ = heard(2)
    loud = Cells(cells.cell, cells.rows, cells.mass, cells.shares, 1e4)
    assert np.allclose(smooth([points], loud, seed=0), loud.overall, atol=0.02)


def test_a_student_of_tables_may_learn_smoothed_counts() -> None:
    generator = np.random.default_rng(2)
    public, private, held = (generator.normal(size=(count, 2)) for count in (800, 6000, 500))
    table = Table(("a", "b"), tuple(public.T.copy()))
    space = space_over(table)
    points = space.embed(table)
    queries = representatives(points, 60)
    labels = (generator.random(6000) > chances_at(private, 2)[:, 0]).astype(np.int64)
    at = nearest(points[queries], space.embed(Table(("a", "b"), tuple(private.T.copy()))))
    votes = np.bincount(at * 2 + labels, minlength=120).reshape(60, 2)
    noise = np.rint(SIGMA * generator.normal(size=votes.shape)).astype(np.int64)
    one = np.zeros(1, dtype=np.int64)
    lesson = Lesson(table, one, one, ("no", "yes"), NoisyVotes(queries, votes + noise, SIGMA))
    errors = {}
    for model in ("selftraining", "smoothing"):
        student = train(lesson, model=model, seed=0)
        found = student.predict_probabilities(Table(("a", "b"), tuple(held.T.copy())))
        errors[model] = np.abs(found - chances_at(held, 2)).mean()
    assert errors["smoothing"] < errors["selftraining"] < 0.2


@pytest.mark.parametrize("drawn", [True, False])
def test_photographs_are_told_by_smoothed_counts(
    drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.random.default_rng(0).integers(60, 190, (40, 16, 16, 1), dtype=np.uint8)
    images = Images(np.where(pixels > 125, 255, 0).astype(np.uint8) if drawn else pixels)
    counts = np.tile(np.array([[200, 0], [0, 200]]), (5, 1))
    noisy = NoisyVotes(np.arange(10), counts, 1.0)
    assert cells_of(images, noisy) is not None
    asked = []
    made: list[NDArray[np.float32]] = []

    def watched(
        views: list[NDArray[np.float32]], cells: Cells, *, seed: int
    ) -> NDArray[np.float32]:
        asked.append(len(views))
        made.append(smooth(views, cells, seed=seed))
        return made[-1]

    monkeypatch.setattr(evidence, "smooth", watched)
    rows = np.arange(10)
    student = train(
        Lesson(images, rows, rows % 2, ("a", "b"), noisy),
        seed=0,
        device="cpu",
        effort=Effort(steps=2),
    )
    assert asked == ([] if drawn else [2])
    for chances in made:  # the network's shares of the classes are those of the counts
        found = student.predict_probabilities(images)
        assert np.allclose(found.mean(axis=0), chances.mean(axis=0), atol=0.01)
