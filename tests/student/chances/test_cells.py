from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.data.values import Table
from pate.errors import DataError
from pate.formats.noisy_counts import NoisyVotes
from student import weights
from student.chances.cells import Cells, additive, cells_of, steps, tilt
from student.chances.evidence import Chances
from student.fit.rows import TableStudent
from student.fit.trees import boost, fit_chances
from student.lesson import Effort, Lesson
from tests.support.student_samples import noisy_votes, taught_rows

SIGMA = 6.0
THREE = ("low", "middle", "high")


def people(count: int, seed: int) -> tuple[Table, NDArray[np.float64]]:
    """Return made-up rows and (n, 3) the chances of their labels."""
    generator = np.random.default_rng(seed)
    age, pay = generator.normal(size=(2, count))
    ward = generator.choice(["a", "b", "c"], count, p=[0.5, 0.3, 0.2])
    score = 1.5 * age + 1.5 * (ward == "b") - 1.0 * (age > 0) * (ward == "c") - 0.5
    powers = np.exp(np.stack([np.zeros(count), score, 1.5 * score - 2], axis=1))
    return Table(("age", "pay", "ward"), (age, pay, ward)), powers / powers.sum(1, keepdims=True)


def draw(chances: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    uniform = np.random.default_rng(seed).random((len(chances), 1))
    labels: NDArray[np.int64] = (uniform > chances.cumsum(axis=1)).sum(axis=1).astype(np.int64)
    return labels


def voted(classes: int = 2, queries: int = 60, sigma: float = SIGMA) -> tuple[Table, NoisyVotes]:
    """Return 1,000 public rows and what 6,000 private ones say at some of them."""
    public, _ = people(1000, 1)
    private, chances = people(6000, 2)
    labels = np.minimum(draw(chances, 3), classes - 1)
    return public, noisy_votes(public, private, labels, "nearest", queries, sigma, classes=classes)


def lesson_of(public: Table, noisy: NoisyVotes | None) -> Lesson:
    """Return a lesson whose labels are one, and of one class."""
    classes = THREE[: 2 if noisy is None else noisy.counts.shape[1]]
    return Lesson(public, np.array([0]), np.array([0]), classes, noisy)


@pytest.fixture(scope="module")
def student() -> TableStudent:
    return taught_rows(lesson_of(*voted()), seed=0, effort=Effort(steps=30))


def test_student_of_counts_knows_how_likely_it_is(student: TableStudent) -> None:
    held, chances = people(2000, 5)
    apart = student.predict_probabilities(held)[:, 1] - (1 - chances[:, 0])
    # With only the shares of the classes the error is 0.25.
    assert np.abs(apart).mean() < 0.08


def test_a_smooth_guess_beside_an_additive_one_finds_what_columns_say_together() -> None:
    generator = np.random.default_rng(7)
    public, private = generator.normal(size=(2, 4000, 3))

    def chances(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = 1.5 * rows[:, 0] + 1.5 * rows[:, 1] * rows[:, 2]
        return np.asarray(1 / (1 + np.exp(-scores)))

    table, voters = (Table(("a", "b", "c"), tuple(rows.T)) for rows in (public[:1200], private))
    labels = (generator.random(len(private)) < chances(private)).astype(np.int64)
    noisy = noisy_votes(table, voters, labels, "nearest", 80, SIGMA, classes=2, noise=generator)
    found = taught_rows(lesson_of(table, noisy), seed=0)
    cells = cells_of(table, noisy)
    assert cells is not None
    rows, truth = found.encoding.encode(table), chances(public[:1200])
    guess = Chances(additive(rows, cells), "counts", cells=cells, passes=4)
    alone = boost(rows, guess, seed=0, effort=Effort()).predict_proba(rows)[:, 1]
    error = np.square(found.predict_probabilities(table)[:, 1] - truth).mean()
    assert error < 0.95 * np.square(alone - truth).mean()


def test_labels_of_one_class_do_not_hide_a_rare_one() -> None:
    public, noisy = voted()
    # Of ten of a rare class only one is left: no query's majority is of it.
    rare = NoisyVotes(noisy.queries, noisy.counts // np.array([1, 10]), SIGMA)
    assert (rare.counts[:, 1] - rare.counts[:, 0] < 2 * np.sqrt(2) * SIGMA).all()
    student = taught_rows(lesson_of(public, rare), seed=0, effort=Effort(steps=30))
    held, chances = people(2000, 5)
    found = student.predict_probabilities(held)[:, 1]
    assert np.corrcoef(found, chances[:, 0])[0, 1] < -0.8


def test_three_classes_and_a_class_that_nobody_has() -> None:
    public, noisy = voted(3)
    held, chances = people(2000, 5)
    student = taught_rows(lesson_of(public, noisy), seed=0, effort=Effort(steps=20))
    assert np.abs(student.predict_probabilities(held) - chances).mean() < 0.09
    none = NoisyVotes(noisy.queries, noisy.counts * np.array([1, 1, 0]), SIGMA)
    again = taught_rows(lesson_of(public, none), seed=0, effort=Effort(steps=5))
    assert again.predict_probabilities(held)[:, 2].max() < 0.1


@pytest.mark.parametrize(("noise", "stages"), [(True, (6, 1)), (False, (6,))])
def test_every_model_of_a_table_is_a_step(noise: bool, stages: tuple[int, ...]) -> None:
    """Five widths and an additive guess, then boosted trees; or two models, three times."""
    public, noisy = voted()
    lesson = lesson_of(public, noisy)
    if not noise:
        rows = np.arange(40)
        lesson = Lesson(public, rows, rows % 2, THREE[:2], None)
    told: list[tuple[int, int]] = []
    effort = Effort(steps=5)
    taught_rows(lesson, seed=0, effort=effort, progress=lambda done, of, _: told.append((done, of)))
    assert told == [(done, models) for models in stages for done in range(models + 1)]


def test_cells_are_unbiased_about_what_they_hold() -> None:
    public, noisy = voted(sigma=0.0)
    cells = cells_of(public, noisy)
    assert cells is not None
    assert cells.rows.sum() == len(public)
    assert (cells.cell[noisy.queries] == np.arange(60)).all()
    assert cells.mass.sum() == pytest.approx(6000, rel=0.05)
    # Without noise the masses are the totals, and the shares those of the counts.
    totals = noisy.counts.sum(axis=1)
    full = totals > 30
    assert np.allclose(cells.mass[full], totals[full], rtol=1e-6)
    assert np.allclose(cells.shares[full], noisy.counts[full] / totals[full, None], atol=1e-6)
    assert np.allclose(cells.overall.sum(), 1.0)


def test_counts_of_noise_alone_are_not_learnt_from() -> None:
    public, noisy = voted()
    generator = np.random.default_rng(6)
    noise = np.rint(50 * generator.normal(size=noisy.counts.shape)).astype(np.int64)
    noise[0] -= noise.sum()
    assert cells_of(public, NoisyVotes(noisy.queries, noise, 50.0)) is None
    empty = NoisyVotes(np.zeros(0, np.int64), np.zeros((0, 2), np.int64), SIGMA)
    assert cells_of(public, empty) is None
    student = taught_rows(lesson_of(public, empty), seed=0)
    assert student.constant == 0


def test_equal_rows_and_one_query() -> None:
    table = Table(("a",), (np.zeros(12),))
    twins = NoisyVotes(np.array([3, 7]), np.array([[40, 10], [35, 20]]), 1.0)
    for noisy in (twins, NoisyVotes(np.array([5]), np.array([[90, 10]]), 1.0)):
        student = taught_rows(lesson_of(table, noisy), seed=0, effort=Effort(steps=2))
        chances = student.predict_probabilities(table)
        assert np.isfinite(chances).all()
        assert (chances.argmax(axis=1) == 0).all()


def test_tilting_meets_the_counts_as_far_as_they_can_be_trusted() -> None:
    cell = np.repeat(np.arange(2), 50)
    flat = np.full((100, 2), 0.5)
    shares = np.array([[0.8, 0.2], [0.3, 0.7]])
    mass = np.array([1e5, 1e5])
    clear = Cells(cell, np.array([50, 50]), mass, shares, 1.0)
    assert np.allclose(clear.means(tilt(clear, flat)), shares, atol=1e-3)
    # Noise that explains the differences by itself: the guesses stay.
    vague = Cells(cell, np.array([50, 50]), mass, shares, 1e6)
    assert np.allclose(tilt(vague, flat), flat)


def test_guesses_find_the_column_that_tells_the_cells_apart() -> None:
    generator = np.random.default_rng(0)
    rows = generator.random((600, 2)).astype(np.float32)
    cell = (rows[:, 0] * 6).astype(np.int64)
    sizes = np.bincount(cell, minlength=6)
    share = np.linspace(0.1, 0.9, 6)
    cells = Cells(cell, sizes, np.full(6, 1e4), np.stack([1 - share, share], axis=1), 1.0)
    found = additive(rows, cells)
    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.corrcoef(found[:, 1], rows[:, 0])[0, 1] > 0.95
    assert abs(np.corrcoef(found[:, 1], rows[:, 1])[0, 1]) < 0.2


def test_steps_of_numbers_alone() -> None:
    rows = np.array([[0, 0], [0, 1], [0, 0], [0, 1], [5, 0], [9, 1]], dtype=np.float32)
    made = steps(rows)
    # The constant, both columns, and steps of the first: above 0, where most are, and between.
    assert made.shape[1] > 4
    assert np.isfinite(made).all()
    assert np.allclose(made[:, 1:].mean(axis=0), 0, atol=1e-9)


def test_chances_of_one_class_still_make_a_model() -> None:
    rows = np.random.default_rng(0).random((40, 2)).astype(np.float32)
    sure = np.tile([1.0, 0.0, 0.0], (40, 1))
    model = fit_chances(rows, sure, seed=0, trees=2)
    assert (model.predict_proba(rows)[:, 0] > 0.9).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("left", 10**6), ("right", 0), ("feature_idx", -1), ("feature_idx", 99), ("value", np.nan)],
)
def test_boosted_trees_that_point_outside_are_refused(
    student: TableStudent, tmp_path: Path, field: str, value: float
) -> None:
    import skops.io

    weights.save(student, tmp_path)
    model = skops.io.loads(
        (tmp_path / "boosting.skops").read_bytes(),
        trusted=["sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"],
    )
    nodes = model._predictors[1][0].nodes
    assert not nodes[0]["is_leaf"]
    nodes[field][0] = value
    content = skops.io.dumps(model)
    (tmp_path / "boosting.skops").write_bytes(content)
    fields = json.loads((tmp_path / "model.json").read_text())
    fields["files"]["boosting.skops"] = hashlib.sha256(content).hexdigest()
    (tmp_path / "model.json").write_text(json.dumps(fields))
    with pytest.raises(DataError, match="point outside"):
        weights.load(tmp_path)
