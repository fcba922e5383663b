"""Chances by teachers' votes and by propagation, and what becomes of each kind of evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pate.codes import GRID
from pate.data.values import Images, Table
from pate.errors import DataError
from pate.features import space
from pate.features.dense import LEVEL, Axes, cut
from pate.features.distortions import distorted, strokes
from pate.features.fitted import AXES
from pate.features.space import space_over
from pate.formats.noisy_counts import NoisyVotes
from student.chances import propagation as beliefs
from student.chances.evidence import Chances, chances_of, labelled
from student.chances.teachers import levelled, shrunk, teachers_chances
from student.fit.rows import encoding_of
from student.lesson import Lesson
from student.training import train
from tests.student.chances.test_cells import lesson_of, voted
from tests.student.chances.test_sums import in_rounds, summed
from tests.support.encoders.embedded import embedded_records
from tests.support.student_samples import accuracy, digits, noisy_lesson, taught_rows

COLUMNS = np.random.default_rng(3).normal(size=(4, 300))
PUBLIC = Table(tuple("abcd"), tuple(COLUMNS))
TRUTH = COLUMNS[0] + COLUMNS[1]
ROWS = [at * 300 // 5 for at in range(5)]
TEACHERS = 200


def normal(*shape: int) -> np.ndarray:
    """The same numbers at each call."""
    return np.random.default_rng(5).normal(size=shape)


def released(noise: float, share: float = 0.5) -> NoisyVotes:
    """Arrays of teachers that agree about the truth, of whom each class has its share, and noise."""
    axes = Axes.fit(space_over(PUBLIC).embed(PUBLIC), ROWS)
    scores = np.stack([-TRUTH, TRUTH], axis=1)
    one = axes.array(axes.reading @ scores, np.array([1 - share, share]))
    drawn = np.rint(noise * normal(*one.shape)).astype(np.int64)
    return NoisyVotes(np.array(ROWS), TEACHERS * one + drawn, noise, "axes-5")


def test_what_teachers_agree_on_is_learnt_through_noise() -> None:
    for noise, least in ((0.0, 0.999), (0.1 * GRID * TEACHERS, 0.9)):
        chances = teachers_chances(PUBLIC, released(noise), TEACHERS)
        odds = np.log(chances[:, 1] / chances[:, 0])
        assert np.corrcoef(odds, TRUTH)[0, 1] > least
        np.testing.assert_allclose(chances.sum(axis=1), 1)


def test_a_level_is_taken_if_it_is_clear_of_the_noise() -> None:
    clear = teachers_chances(PUBLIC, released(0.02 * GRID * TEACHERS, share=0.1), TEACHERS)
    assert clear[:, 1].mean() == pytest.approx(0.1, abs=0.05)
    # Noise of a third of the array: its level says nothing.
    unclear = teachers_chances(PUBLIC, released(0.6 * GRID * TEACHERS, share=0.4), TEACHERS)
    assert unclear[:, 1].mean() == pytest.approx(0.5, abs=0.02)


def test_no_level_takes_a_class_to_nothing_by_chance() -> None:
    noise = 0.1 * GRID * TEACHERS
    counts = np.zeros((5, 10), dtype=np.int64)
    counts[1:] = np.rint(0.5 * GRID * TEACHERS * normal(4, 10))
    # As long as one in a hundred is by chance, with more noise on a share than the share itself.
    counts[0] = np.rint(1.7 * noise * np.resize([1, -1], 10))
    rows = NoisyVotes(np.array(ROWS), counts, noise, "axes-5")
    assert teachers_chances(PUBLIC, rows, TEACHERS).mean(axis=0) == pytest.approx(0.1, abs=0.01)
    # The same level with a tenth of the noise is one.
    less = NoisyVotes(np.array(ROWS), counts, noise / 10, "axes-5")
    assert teachers_chances(PUBLIC, less, TEACHERS).mean(axis=0).min() < 0.02


def test_no_share_is_much_less_than_its_noise() -> None:
    noise = 0.08 * GRID * TEACHERS
    for level in (3.0, -3.0):
        counts = released(0.0).counts.copy()
        counts[0] = np.rint(level * noise * np.array([1, -1]))
        rows = NoisyVotes(np.array(ROWS), counts, noise, "axes-5")
        chances = teachers_chances(PUBLIC, rows, TEACHERS)
        assert chances.mean(axis=0).min() > 0.1
        # So the ranks of what was released are there.
        assert np.ptp(chances[:, 1]) > 0.5


def test_counts_of_all_queries_are_regressed() -> None:
    counts = np.stack([150 - 15 * TRUTH, 50 + 15 * TRUTH], axis=1)
    noise = 20.0
    noisy = np.rint(counts + noise * normal(*counts.shape)).astype(np.int64)
    chances = teachers_chances(
        PUBLIC, NoisyVotes(np.arange(300), noisy, noise, "each-300"), TEACHERS
    )
    assert np.corrcoef(chances[:, 1], TRUTH)[0, 1] > 0.9
    assert chances[:, 1].mean() == pytest.approx(0.25, abs=0.05)


def test_noise_alone_is_shrunk_to_nothing_and_none_is_left_alone() -> None:
    moments = np.geomspace(1, 0.01, 40)
    noise = normal(40, 3)
    noise -= noise.mean(axis=1, keepdims=True)
    assert shrunk(moments, 0.01 * noise, 0.01**2).max() < 0.3
    assert shrunk(moments, 50 * noise * np.sqrt(moments)[:, None], 0.01).min() > 0.9
    assert (shrunk(moments, noise, 0.0) == 1).all()


def test_scores_are_shifted_to_the_shares_of_classes() -> None:
    shares = np.array([0.7, 0.2, 0.1])
    made = levelled(normal(500, 3), shares)
    np.testing.assert_allclose(made.mean(axis=0), shares, atol=1e-3)


def test_no_array_is_longer_than_its_code_allows() -> None:
    axes = Axes.fit(space_over(PUBLIC).embed(PUBLIC), ROWS)
    for size in (1e-300, 1.0, 1e300):
        for level in (np.zeros(2), np.array([-1.0, 5.0]), np.array([1.0, 0.0])):
            made = axes.array(size * normal(4, 2), level)
            assert 0.8 * GRID**2 < np.square(made).sum() <= GRID**2
    assert np.square(axes.array(np.zeros((4, 2)), np.array([1.0, 0.0]))).sum() <= LEVEL * GRID**2
    assert np.square(cut(np.full((4, 2), 1.0))).sum() <= GRID**2


def test_classes_between_others_are_not_hidden() -> None:
    """Nine classes on a grid: linear answers hardly have those at the sides on top."""
    truth = np.arange(450) % 9
    columns = np.vstack([truth // 3, truth % 3]) + 0.15 * np.random.default_rng(4).normal(
        size=(2, 450)
    )
    public = Table(("a", "b"), tuple(columns))
    points = space_over(public).embed(public)
    axes = Axes.fit(points, [0, 4, 8])
    apart = points - points.mean(axis=0)
    answer = apart @ np.linalg.lstsq(apart, np.eye(9)[truth] - 1 / 9, rcond=None)[0]
    sides = np.isin(truth, (1, 3, 5, 7))
    assert (answer.argmax(axis=1) == truth)[sides].mean() < 0.3
    one = axes.array(axes.reading @ answer, np.full(9, 1 / 9))
    for noise in (0.0, 0.005 * GRID * TEACHERS):
        drawn = np.rint(noise * normal(*one.shape)).astype(np.int64)
        noisy = NoisyVotes(np.array([0, 4, 8]), TEACHERS * one + drawn, noise, "axes-3")
        right = teachers_chances(public, noisy, TEACHERS).argmax(axis=1) == truth
        assert right[sides].mean() > 0.9


def test_the_level_of_many_classes_is_a_prior_where_noise_hides_shares() -> None:
    """Twelve groups in a row, one with half of the rows: a mean made equal would move most of them."""
    rng = np.random.default_rng(8)
    truth = np.concatenate([np.zeros(300, np.int64), np.arange(300) % 11 + 1])
    places = 4 * np.stack([np.cos(truth), np.sin(truth)])
    public = Table(("a", "b"), tuple(places + 0.1 * rng.normal(size=(2, 600))))
    points = space_over(public).embed(public)
    rows = [0, 300, 303]
    axes = Axes.fit(points, rows)
    means = np.stack(
        [(points - points.mean(axis=0))[truth == each].mean(axis=0) for each in range(12)]
    )
    one = axes.array(axes.reading @ (points - points.mean(axis=0)) @ means.T, np.full(12, 1 / 12))
    hidden, known = 0.03 * GRID * TEACHERS, 0.0
    found = {
        noise: teachers_chances(
            public, NoisyVotes(np.array(rows), TEACHERS * one, noise, "axes-3"), TEACHERS
        )
        for noise in (hidden, known)
    }
    assert found[hidden][:, 0].mean() > 0.1
    np.testing.assert_allclose(found[known].mean(axis=0), 1 / 12, atol=0.01)


def test_arrays_that_say_nothing_are_equal_chances() -> None:
    noisy = NoisyVotes(np.array(ROWS), np.zeros((5, 9), np.int64), 0.0, "axes-5")
    np.testing.assert_allclose(teachers_chances(PUBLIC, noisy, TEACHERS), 1 / 9)


FEW = np.arange(0, 300, 20)


def of(lesson: Lesson) -> Chances:
    rows = encoding_of(lesson.public).encode(lesson.public)
    (found,) = chances_of(lesson, rows, seed=0)
    return found


def test_each_evidence_over_a_table_has_its_chances() -> None:
    for (public, noisy), source in (
        (voted(), "counts"),
        (summed(3.0), "sums"),
        (in_rounds(3.0, 2), "rounds"),
    ):
        found = of(lesson_of(public, noisy))
        assert found.source == source
        assert found.matrix.shape == (len(public), 2)
        np.testing.assert_allclose(found.matrix.sum(axis=1), 1.0, atol=1e-6)
        # Trees are moved to agree with counts; they copy what has no noise of its own.
        assert (found.cells is not None) == (source == "counts")
        assert found.smooth == (source != "counts")


def test_where_the_sums_are_only_noise_the_labels_are_left() -> None:
    """Of tables and of embeddings alike."""
    data = embedded_records(300, seed=2)
    table, noisy = summed(3.0)
    lost = NoisyVotes(noisy.queries, noisy.counts * 0, 1e9, noisy.code)
    lesson = lesson_of(table, lost)
    assert of(lesson).source == "labels"
    assert (of(lesson).matrix == labelled(lesson).matrix).all()
    nothing = np.zeros((24, 3), np.int64)
    drowned = NoisyVotes(np.arange(24), nothing, 1e9, "dense-24")
    known = replace(
        lesson,
        public=data.inputs,
        queries=FEW,
        labels=data.labels[FEW],
        classes=data.classes,
        noisy=drowned,
    )
    found = of(known)
    assert found.source == "labels"
    right = (found.matrix.argmax(axis=1) == data.labels).mean()
    assert right > 0.9
    test = embedded_records(300, seed=3)
    student = taught_rows(known)
    assert (student.predict(test.inputs) == test.labels).mean() > 0.9
    none = replace(known, queries=FEW[:0], labels=FEW[:0])
    with pytest.raises(DataError, match="no more than their noise"):
        of(none)
    with pytest.raises(DataError, match="no more than their noise"):
        train(none, seed=0)


def test_what_rises_above_the_noise_is_evidence() -> None:
    public, _ = digits()
    lesson = noisy_lesson(public, 3, wrong=0.0)
    first, other = min(lesson.queries.tolist()), 899
    counts = np.zeros((2, 10), dtype=np.int64)
    counts[0, 4] = 300
    counts[1, 7] = 60  # few votes: half of them are above the noise, and they weigh little
    noisy = NoisyVotes(np.array([first, other]), counts, 40.0)
    evidence = beliefs.evidence_of(replace(lesson, noisy=noisy))
    assert evidence[first, 4] == 1.0
    assert 0 < evidence[other, 7] < 0.5
    assert evidence.sum(axis=1).max() <= 1.0 + 1e-12
    assert (evidence.sum(axis=1) > 0).sum() == 4


def test_noise_in_many_classes_does_not_outweigh_the_votes() -> None:
    counts = np.rint(np.random.default_rng(0).normal(0, 10, (50, 150))).astype(np.int64)
    counts[:, 3] += 160
    evidence = beliefs.shares(NoisyVotes(np.arange(50), counts, 10.0))
    assert evidence[:, 3].mean() > 0.9


@pytest.mark.slow
def test_large_sets_of_drawn_shapes_are_described_by_what_distortions_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(space, "STEADY_FROM", 800)
    kinds = np.tile(np.arange(40), 20)
    public = distorted(strokes(40, (20, 20, 1)).take(kinds))
    rows = np.sort(np.random.default_rng(0).permutation(800)[:120])
    lesson = Lesson(public, rows, kinds[rows], tuple(map(str, range(40))))
    (points,) = beliefs.described(public, 0)
    assert points.shape == (800, AXES)
    assert np.square(points).sum(axis=1).mean() == pytest.approx(1, abs=1e-3)
    # Three labels a class.
    assert (beliefs.believe(lesson, seed=0).argmax(axis=1) == kinds).mean() > 0.85


def test_labels_may_be_wrong() -> None:
    sure = np.array([[0.999, 0.001], [0.6, 0.4]], dtype=np.float32)
    evidence = np.array([[0.0, 1.0], [0.0, 1.0]])
    known = beliefs.with_labels(sure, evidence)
    assert known[0].argmax() == 0  # contradicted with confidence
    assert known[1].argmax() == 1
    assert np.allclose(beliefs.with_labels(sure, np.zeros((2, 2))), sure, atol=1e-6)


@pytest.mark.slow
def test_beliefs_beat_the_labels_they_came_from() -> None:
    public, _ = digits()
    lesson = noisy_lesson(public, 100, wrong=0.1)
    believed = beliefs.believe(lesson, seed=0)
    assert believed.shape == (900, 10)
    assert np.allclose(believed.sum(axis=1), 1.0, atol=1e-5)
    assert believed.min() > 0
    # Nine of ten labels are right, of a ninth of the images; the seed is fixed.
    assert accuracy(believed.argmax(axis=1), public) >= 0.95


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_handful_of_images_is_enough(count: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 1), dtype=np.uint8)
    one = np.zeros(1, dtype=np.int64)
    believed = beliefs.believe(Lesson(Images(pixels), one, one, ("a", "b")), seed=0)
    assert believed.shape == (count, 2)
    assert np.isfinite(believed).all()


def test_equal_images_do_no_harm() -> None:
    pixels = np.full((30, 8, 8, 1), 7, dtype=np.uint8)
    rows = np.arange(4, dtype=np.int64)
    believed = beliefs.believe(Lesson(Images(pixels), rows, rows % 2, ("a", "b")), seed=0)
    assert np.isfinite(believed).all()
