"""Weights with which public rows have the mean of private records."""

from __future__ import annotations

import numpy as np
import pytest

from student.trainers.covariates import matching_weights


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
