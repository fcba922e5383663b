"""What a student makes of the noisy sums of dense votes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.codes import GRID, code_of
from pate.data.values import Table
from pate.errors import DataError
from pate.features.dense import Directions, looked_at
from pate.features.neighbours import representatives
from pate.features.space import codes_over, directions_over
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.rounds.model import RoundModel
from pate.rounds.record_array import residual_sums
from pate.rounds.solver import Released, Start, confirmed, next_model
from student.chances import sums as linear
from student.chances.cells import cells_of
from student.chances.neighbours import averaged, neighbour_graph
from student.chances.sums import (
    is_clear,
    linear_chances,
    matching_weights,
    pooled_weights,
    rounds_chances,
)
from student.fit.rows import is_smooth
from student.lesson import Effort
from student.weights import load, save
from tests.student.chances.test_cells import draw, lesson_of, people
from tests.support.student_samples import noisy_votes, taught_rows
from tests.support.there import there

#: Of the public set.
ROWS = 500


@cache
def summed(sigma: float, classes: int = 2) -> tuple[Table, NoisyVotes]:
    """Return public rows and the dense sums of 6,000 private ones; sigma in votes."""
    public, _ = people(ROWS, 1)
    private, chances = people(6000, 2)
    labels = np.minimum(draw(chances, 3), classes - 1)
    return public, noisy_votes(public, private, labels, "dense-24", 24, sigma, classes=classes)


def test_chances_are_those_of_a_linear_model() -> None:
    public, noisy = summed(0.0)
    found = there(linear_chances(public, noisy))
    assert np.allclose(found.sum(axis=1), 1)
    _, chances = people(ROWS, 1)
    truth = np.stack([chances[:, 0], chances[:, 1:].sum(axis=1)], axis=1)
    # Least squares on the same records themselves, of what differs from the mean.
    space = directions_over(public)
    private, of_private = people(6000, 2)
    points = space.embed(public)
    directions = Directions.fit(points[noisy.queries], points[looked_at(ROWS)])
    rows = directions.codes(space.embed(private)) / GRID
    labels = np.minimum(draw(of_private, 3), 1)
    told = np.eye(2)[labels]
    weights = np.linalg.lstsq(rows, told - told.mean(axis=0), rcond=None)[0]
    plain = told.mean(axis=0) + directions.codes(points) / GRID @ weights
    plain = np.clip(plain, 1e-3, 1)
    plain /= plain.sum(axis=1, keepdims=True)
    assert np.corrcoef(found[:, 0], plain[:, 0])[0, 1] > 0.97
    assert np.abs(found - truth).mean() < np.abs(plain - truth).mean() + 0.03


def test_more_noise_is_shrunk_more_and_noise_alone_says_nothing() -> None:
    _, chances = people(ROWS, 1)
    apart = []
    for sigma in (0.0, 20.0, 100.0):
        found = there(linear_chances(*summed(sigma)))
        apart.append(np.corrcoef(found[:, 0], chances[:, 0])[0, 1])
    assert apart[0] > 0.85
    assert apart[1] > 0.75
    assert apart[2] > 0.4
    public, noisy = summed(0.0)
    nothing = np.rint(3e5 * np.random.default_rng(5).normal(size=noisy.counts.shape))
    empty = NoisyVotes(noisy.queries, nothing.astype(np.int64), 3e5, noisy.code)
    assert linear_chances(public, empty) is None


def test_a_public_set_with_another_mean_does_not_drown_a_rare_class() -> None:
    """One class is rare, and private records that lie elsewhere than the public rows."""
    rng = np.random.default_rng(1)
    known, other = rng.normal(size=ROWS), rng.normal(size=ROWS)
    public = Table(("x", "y"), (known, other))
    x, y = rng.normal(size=20_000), rng.normal(0.3, 1, 20_000)
    labels = (rng.random(20_000) < np.clip(0.02 + 0.01 * x, 0, 1)).astype(np.int64)
    private = Table(("x", "y"), (x, y))
    noisy = noisy_votes(public, private, labels, "dense-8", 8, 5.0, classes=2, noise=rng)
    found = there(linear_chances(public, noisy))
    assert np.corrcoef(found[:, 1], known)[0, 1] > 0.85
    assert abs(np.corrcoef(found[:, 1], other)[0, 1]) < 0.3


@cache
def in_rounds(sigma: float, rounds: int, classes: int = 2) -> tuple[Table, NoisyVotes]:
    """Return public rows, and what 6,000 private ones answer in rounds; sigma in votes."""
    public, _ = people(ROWS, 1)
    private, likely = people(6000, 2)
    labels = np.minimum(draw(likely, 3), classes - 1)
    space = directions_over(public)
    points = space.embed(public)
    chosen = representatives(points, 24)
    directions = Directions.fit(points[chosen], points[looked_at(ROWS)])
    codes, rows = directions.codes(space.embed(private)), directions.codes(points) / GRID
    drawn = np.random.default_rng(4)
    made: list[RoundCounts] = []
    shown: RoundModel | None = None
    for _ in range(rounds + 1):
        sums = residual_sums(codes, labels, classes, shown)
        noise = np.rint(sigma * GRID * drawn.normal(size=sums.shape)).astype(np.int64)
        made.append(RoundCounts(sums + noise, sigma * GRID, shown))
        start = Start.of(made[0].counts[0] / GRID, sigma)
        answered = [
            Released(each.shown, each.counts / GRID, sigma)
            for each in made
            if each.shown is not None
        ]
        shown = next_model(rows, start, answered)
    last = made[-1]
    code = "dense-24 residual"
    return public, NoisyVotes(
        chosen, last.counts, last.sigma, code, last.shown, tuple(made[:-1]), shown
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_a_student_takes_the_model_of_the_last_round(classes: int, tmp_path: Path) -> None:
    _, likely = people(ROWS, 1)
    public, noisy = in_rounds(3.0, 3, classes)
    found = there(rounds_chances(public, noisy))
    assert np.allclose(found.sum(axis=1), 1)
    assert np.corrcoef(found[:, 0], likely[:, 0])[0, 1] > 0.9
    # The mean is what the first round counted.
    counts, _ = noisy.class_counts
    assert np.abs(found.mean(axis=0) - counts / counts.sum()).max() < 0.02
    # Another model says something else, and the first one the class shares to all rows.
    before = replace(noisy, model=noisy.earlier[1].shown)
    assert np.corrcoef(rounds_chances(public, before)[:, 0], likely[:, 0])[0, 1] < 0.6  # type: ignore[index]
    student = taught_rows(lesson_of(public, noisy), seed=0, effort=Effort(steps=20))
    held, chances = people(2000, 5)
    guessed = student.predict_probabilities(held)
    assert np.corrcoef(guessed[:, 0], chances[:, 0])[0, 1] > 0.85
    save(student, tmp_path)
    names = [*(f"{name}.skops" for name in student.models), "model.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert np.array_equal(load(tmp_path).predict_probabilities(held), guessed)


def test_trees_are_joined_by_a_linear_model_where_both_copy_better() -> None:
    """A line is copied by trees with steps; a step is no line."""
    rows = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    for likely, wanted in (
        (1 / (1 + np.exp(-rows[:, 0] - rows[:, 1] - rows[:, 2])), True),
        (np.where(rows[:, 0] ** 2 > 0.5, 0.99, 0.01), False),
    ):
        chances = np.stack([1 - likely, likely], axis=1).astype(np.float64)
        assert is_smooth(rows, chances, 0, 40) == wanted
    assert not is_smooth(rows[:1], chances[:1], 0, 40)


def test_a_head_copies_a_model_closely_unless_its_noise_hides_the_records() -> None:
    _, exact = in_rounds(0.0, 2)
    _, clear = in_rounds(3.0, 2)
    _, hidden = in_rounds(100.0, 2)
    assert is_clear(exact)
    assert is_clear(clear)
    assert not is_clear(hidden)
    # Two rounds of this noise hide less than one.
    assert not is_clear(replace(clear, sigma=900.0 * GRID, earlier=clear.earlier[:1]))
    assert is_clear(replace(clear, sigma=900.0 * GRID))
    for other in (replace(clear, model=None), summed(3.0)[1]):
        assert not is_clear(other)
    counts = clear.earlier[0]
    only = NoisyVotes(clear.queries, counts.counts, counts.sigma, clear.code, model=clear.model)
    assert not is_clear(only)


def test_rounds_without_records_teach_nothing() -> None:
    public, noisy = in_rounds(3.0, 1)
    noise = np.random.default_rng(5).normal(size=noisy.counts.shape)
    hidden = RoundCounts(np.rint(3e6 * noise).astype(np.int64), 3e6)
    assert rounds_chances(public, replace(noisy, earlier=(hidden,))) is None
    assert rounds_chances(public, replace(noisy, model=None)) is None


def test_a_model_that_later_rounds_confirm_is_taken_though_no_record_was_counted() -> None:
    """And not if the noise of those rounds hides what they say."""
    public, noisy = in_rounds(3.0, 3)
    counts = RoundCounts(np.full_like(noisy.counts, -(10**6)), 1e6)
    hidden = replace(noisy, earlier=(counts, *noisy.earlier[1:]))
    found = there(rounds_chances(public, hidden))
    _, likely = people(ROWS, 1)
    assert np.corrcoef(found[:, 0], likely[:, 0])[0, 1] > 0.9
    louder = [replace(each, sigma=1e6) for each in hidden.earlier[1:]]
    assert rounds_chances(public, replace(hidden, sigma=1e6, earlier=(counts, *louder))) is None


@pytest.mark.parametrize(
    ("counted", "follows", "taken"),
    [
        (1.3, 1.3, True), (0.3, 1.9, False), (1.9, 0.3, False), (3.0, -0.5, True), (-0.5, 3.0, True),
        (2.3, -0.5, False),
    ],
)  # fmt: skip
def test_counts_and_later_rounds_are_told_together(
    counted: float, follows: float, taken: bool
) -> None:
    """Both in standard deviations of their noise, which is said to be as large as that takes."""
    public, noisy = in_rounds(3.0, 3)
    rows = codes_over(public, noisy.queries.tolist()) / GRID
    classes = noisy.counts.shape[1]
    counts = RoundCounts(np.full_like(noisy.counts, round(1e6 * counted / classes**0.5)), 1e6)
    rounds = [*noisy.earlier[1:], RoundCounts(noisy.counts, noisy.sigma, noisy.shown)]
    released = [
        Released(there(each.shown), each.counts / GRID, each.sigma / GRID) for each in rounds
    ]
    answer = code_of(noisy.code).answer
    exact = confirmed(rows, Start.of_first(counts.counts[0] / GRID, 1e6 / GRID, answer), released)
    assert exact > 10
    said = [
        replace(
            each,
            counts=int(np.sign(follows)) * each.counts,
            sigma=each.sigma * exact / abs(follows),
        )
        for each in rounds
    ]
    last = said[-1]
    other = replace(noisy, earlier=(counts, *said[:-1]), counts=last.counts, sigma=last.sigma)
    assert (rounds_chances(public, other) is not None) == taken


def test_the_sums_of_all_records_are_taken_from_public_rows_as_far_as_those_are_alike() -> None:
    """A rare class: what it differs from is all records, whose released sums have noise."""
    basis = linear._Basis.of(np.random.default_rng(0).normal(1, 1, (500, 4)), np.full(500, 1 / 500))
    mean = basis.axes @ (basis.shares @ basis.turned)
    near, _ = basis._everyone(1000 * mean, 1e6, 1000.0)
    assert np.allclose(near, basis.axes.T @ (1000 * mean))
    rng = np.random.default_rng(1)
    sums = 1000 * mean
    drawn, left = basis._everyone(sums + 1e3 * rng.normal(size=4), 1e6, 1000.0)
    assert np.abs(drawn - basis.axes.T @ sums).max() < 500
    assert (left < 1e6).all()
    far, _ = basis._everyone(2 * sums + rng.normal(size=4), 1.0, 1000.0)
    assert np.abs(far - basis.axes.T @ (2 * sums)).max() < 10


def test_dense_sums_have_no_cells() -> None:
    assert cells_of(*summed(0.0)) is None
    _, noisy = summed(0.0)
    with pytest.raises(DataError, match="dense-23"):
        NoisyVotes(noisy.queries, noisy.counts, 1.0, "dense-23")


def test_a_student_of_tables_learns_from_dense_sums(tmp_path: Path) -> None:
    public, noisy = summed(10.0)
    student = taught_rows(lesson_of(public, noisy), seed=0, effort=Effort(steps=20))
    held, chances = people(2000, 5)
    found = student.predict_probabilities(held)[:, 0]
    assert np.corrcoef(found, chances[:, 0])[0, 1] > 0.8
    # Its model is stored.
    save(student, tmp_path)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["boosting.skops", "model.json"]
    assert np.array_equal(load(tmp_path).predict_probabilities(held)[:, 0], found)


def test_without_a_label_dense_sums_teach_the_same_and_noise_alone_teaches_nothing() -> None:
    public, noisy = summed(10.0)
    clear = lesson_of(public, noisy)
    none = replace(clear, queries=clear.queries[:0], labels=clear.labels[:0])
    held, _ = people(200, 5)
    one, other = (
        taught_rows(each, seed=0, effort=Effort(steps=5)).predict_probabilities(held)
        for each in (clear, none)
    )
    assert np.array_equal(one, other)
    nothing = np.rint(3e5 * np.random.default_rng(5).normal(size=noisy.counts.shape))
    empty = NoisyVotes(noisy.queries, nothing.astype(np.int64), 3e5, noisy.code)
    with pytest.raises(DataError, match="no more than their noise"):
        taught_rows(replace(none, noisy=empty), seed=0)


def groups(seed: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return points in 150 dimensions, in a group for each of four classes, and their classes."""
    generator = np.random.default_rng(seed)
    group = generator.integers(4, size=count)
    points = np.eye(4, 150)[group] + 0.2 * generator.normal(size=(count, 150))
    return points.astype(np.float32), group


def test_rows_averaged_over_their_graph_are_taken_where_classes_are_groups() -> None:
    points, truth = groups(1, 400)
    graph = neighbour_graph(points, 10)
    views = [averaged(graph, points, memory) for memory in (0.0, 0.8)]
    basis = linear._Basis.of(
        np.hstack([points, np.ones((400, 1))]).astype(np.float64), np.full(400, 1 / 400)
    )
    votes, labels = groups(2, 4000)
    lifted = np.hstack([votes, np.ones((4000, 1))])
    sums = np.stack([lifted[labels == label].sum(axis=0) for label in range(4)], axis=1)
    sums += np.random.default_rng(3).normal(0, 100, sums.shape)
    right = {}
    for name, some in (("plain", views[:1]), ("both", views)):
        values = replace(basis, views=tuple(some)).values(sums, 100.0, np.ones(4), np.eye(4), "one")
        right[name] = float((values.argmax(axis=1) == truth).mean())
    assert right["both"] > right["plain"] + 0.03


def rows_of(number: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """Rows of three columns of which the last is constant; the first lies elsewhere by ``shift``."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(shift, 1, number), rng.normal(0, 1, number)
    return np.stack([x, x * y, np.full(number, 0.35)], axis=1)


def test_weighted_rows_have_the_mean_and_so_the_moments_of_the_records() -> None:
    public, private = rows_of(5000, 1), rows_of(50_000, 2, 0.5)
    weights = matching_weights(public, private.mean(axis=0), 1e-9, len(private))
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()
    assert np.allclose(weights @ public, private.mean(axis=0), atol=0.02)
    # A normal law that is tilted is one with another mean: second moments agree as well.
    wanted = private.T @ private / len(private)
    found = (public * weights[:, None]).T @ public
    plain = public.T @ public / len(public)
    assert np.abs(found - wanted).max() < 0.5 * np.abs(plain - wanted).max()


def test_a_mean_that_may_be_noise_moves_nothing() -> None:
    public = rows_of(5000, 1)
    rng = np.random.default_rng(3)
    for noise in (1e-4, 1.0, 1e4):
        mean = public.mean(axis=0) + rng.normal(0, np.sqrt(noise), 3)
        weights = matching_weights(public, mean, noise, 1e9)
        assert 1 / np.square(weights).sum() > 0.97 * len(public)


def test_a_mean_that_no_rows_have_leaves_them_equal() -> None:
    public = rows_of(500, 1)
    weights = matching_weights(public, np.array([50.0, 0.0, 0.35]), 1e-9, 1e9)
    assert np.array_equal(weights, np.full(500, 1 / 500))


def test_answers_that_go_together_tell_of_each_other() -> None:
    """Eight answers with one and the same weight in each direction: the noise of eight is averaged."""
    rng = np.random.default_rng(0)
    size = np.full(200, 40.0)
    truth = 0.5 * rng.normal(size=(200, 1)) * np.ones((1, 8))
    seen = size[:, None] * truth + 40 * rng.normal(size=(200, 8))
    pooled = pooled_weights(size, seen, 1600 * np.eye(8), np.zeros((8, 8)))
    alone = np.concatenate(
        [
            pooled_weights(size, seen[:, [at]], 1600 * np.eye(1), np.zeros((1, 1)))
            for at in range(8)
        ],
        axis=1,
    )
    # By itself each has an error of 0.25 * 1 / 1.25 = 0.2; together, of 0.25 / 8 / (0.25 + 1 / 8) = 0.083.
    assert np.square(alone - truth).mean() == pytest.approx(0.2, rel=0.15)
    assert np.square(pooled - truth).mean() == pytest.approx(0.083, rel=0.25)


def test_answers_of_their_own_are_left_apart() -> None:
    """Independent weights of known sizes: about the best estimate of each, which shrinks by its own size."""
    rng = np.random.default_rng(1)
    size = rng.uniform(20, 80, 400)
    spread = np.array([0.1, 1.0, 0.3])
    truth = spread * rng.normal(size=(400, 3))
    drawn = np.diag([1.0, 4.0, 9.0])
    noise = np.diag([400.0, 900.0, 100.0])
    variances = np.diag(noise) + size[:, None] * np.diag(drawn)
    seen = size[:, None] * truth + np.sqrt(variances) * rng.normal(size=(400, 3))
    power = np.square(size[:, None] * spread)
    best = power / (power + variances) * seen / size[:, None]
    found = pooled_weights(size, seen, noise, drawn)
    for at in range(3):
        error, least = (np.square(each[:, at] - truth[:, at]).mean() for each in (found, best))
        assert error < 1.1 * least


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_a_party_that_lies_have_weights_too(seed: int) -> None:
    """Beside the largest of these the errors are nothing."""
    rng = np.random.default_rng(seed)
    size = 10 ** rng.uniform(-3, 6, size=6)
    seen = 10 ** rng.uniform(0, 14) * np.outer(rng.normal(size=6), rng.normal(size=4))
    assert np.isfinite(pooled_weights(size, seen, np.eye(4), np.eye(4))).all()


def test_nothing_but_noise_is_shrunk_to_almost_nothing() -> None:
    rng = np.random.default_rng(2)
    seen = 30 * rng.normal(size=(100, 4))
    # Noise of answers that overlap is not of full rank.
    noise = np.full((4, 4), 900.0)
    seen[:] = seen[:, :1]
    made = pooled_weights(np.full(100, 50.0), seen, noise, np.zeros((4, 4)))
    assert np.isfinite(made).all()
    assert np.abs(made).mean() < 0.1 * np.abs(seen / 50).mean()
