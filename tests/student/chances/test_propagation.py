from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pate.data.values import Images
from pate.features import space
from pate.features.distortions import distorted, strokes
from pate.features.fitted import AXES
from pate.formats.noisy_counts import NoisyVotes
from student.chances import propagation as beliefs
from student.lesson import Lesson
from tests.support.student_samples import accuracy, digits, noisy_lesson


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
