"""Students of teachers' votes in one release: what is shrunk, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from pate.codes import GRID
from pate.data.values import Table
from pate.features.dense import LEVEL, Axes, cut
from pate.features.space import space_over
from pate.formats.noisy_counts import NoisyVotes
from student.chances.teachers import levelled, shrunk, teachers_chances

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
