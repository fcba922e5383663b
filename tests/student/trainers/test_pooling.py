"""Weights for answers that are like each other."""

from __future__ import annotations

import numpy as np
import pytest

from student.trainers.pooling import pooled_weights


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


def test_nothing_but_noise_is_shrunk_to_almost_nothing() -> None:
    rng = np.random.default_rng(2)
    seen = 30 * rng.normal(size=(300, 4))
    # Noise of answers that overlap is not of full rank.
    noise = np.full((4, 4), 900.0)
    seen[:] = seen[:, :1]
    made = pooled_weights(np.full(300, 50.0), seen, noise, np.zeros((4, 4)))
    assert np.isfinite(made).all()
    assert np.abs(made).mean() < 0.1 * np.abs(seen / 50).mean()
