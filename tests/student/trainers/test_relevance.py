"""Weights of features in blocks, each of its own size."""

from __future__ import annotations

import numpy as np
import pytest

from student.trainers.relevance import relevant_weights


def test_one_block_is_ridge_regression_of_the_likeliest_size() -> None:
    draw = np.random.default_rng(1)
    adds = np.eye(200) * 3
    true = draw.normal(scale=0.5, size=(200, 1))
    seen = adds @ true + draw.normal(size=(200, 1))
    made = relevant_weights(adds, seen, np.ones((200, 1)), np.zeros(200, np.int64), 5.0)
    # The likeliest variance is (mean square - noise) / 9, known to a tenth.
    size = (np.square(seen).mean() - 1) / 9
    assert size == pytest.approx(0.25, rel=0.5)
    np.testing.assert_allclose(made, seen * 3 * size / (9 * size + 1), rtol=0.05)


def test_blocks_that_say_nothing_fall_silent() -> None:
    draw = np.random.default_rng(2)
    blocks = np.repeat(np.arange(20), 5)
    adds = draw.normal(size=(80, 100))
    true = np.where(blocks == 7, 1.0, 0.0)[:, None] * draw.normal(size=(100, 2))
    noise = np.full((80, 2), 1.0)
    seen = adds @ true + draw.normal(size=(80, 2))
    made = relevant_weights(adds, seen, noise, blocks, 0.3)
    alike = relevant_weights(adds, seen, noise, np.zeros(100, np.int64), 0.3)
    assert np.square(made - true).sum() < 0.2 * np.square(alike - true).sum()
    assert np.abs(made[blocks != 7]).max() < 0.1
