"""The cost by every neighbour: equal to the exact divergence, of labels and with a threshold test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pate.accounting import Adjacency
from pate.accounting.arrays import Floats
from pate.accounting.bounds import every_neighbour, outcomes
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.bounds.sharp import GaussianSetting, bound_by_outcomes
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting import exact

ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 8.0, 14.0, 32.0])
VOTES = ([30, 30, 29, 5, 0], [8, 90, 10, 0], [50, 50], [12, 3, 3, 3, 3, 3], [1, 0, 60], [7, 7, 7])


def setting_and_noises(
    discrete: bool, sigma: float, threshold: float
) -> tuple[GaussianSetting, exact.Noise, exact.Noise]:
    """Return the setting with a test of noise 20, and both noises for exact divergences."""
    law = DiscreteGaussian if discrete else Gaussian
    setting = GaussianSetting(label=law(sigma), check=law(20.0), threshold=threshold)
    if discrete:
        return setting, exact.Lattice("gaussian", sigma), exact.Lattice("gaussian", 20.0)
    return setting, exact.Gaussian(sigma), exact.Gaussian(20.0)


def worst(
    votes: list[int], unit: Neighbours, noise: exact.Noise, check: exact.Noise, threshold: float
) -> tuple[Floats, Floats]:
    """Return the largest divergences of the label, and of the label with the test, from any neighbour's."""
    histogram = np.array(votes)
    both = np.vstack([histogram, exact.every_neighbour(histogram, unit)])
    log_p = exact.log_labels(both, noise)
    top = both.max(axis=1).astype(np.float64)
    passes, fails = check.log_upto(top - threshold), check.log_below(threshold - top)
    outputs = np.column_stack([fails, passes[:, None] + log_p])
    label, joint = (
        exact.divergences(logs[0], logs[1:], ORDERS).max(axis=0) for logs in (log_p, outputs)
    )
    return label, joint


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("adjacency", ["change", "remove"])
def test_it_is_the_exact_divergence(adjacency: Adjacency, discrete: bool) -> None:
    unit = Neighbours(1, adjacency)
    for votes in VOTES:
        for sigma in (8.0, 12.5):
            threshold = max(votes) + 10.0
            setting, noise, check = setting_and_noises(discrete, sigma, threshold)
            alone = GaussianSetting(label=setting.label)
            both = worst(votes, unit, noise, check, threshold)
            for each, want in zip((alone, setting), both, strict=True):
                made = every_neighbour.rdp([votes], each, unit, ORDERS)[0]
                np.testing.assert_allclose(made, want, rtol=1e-7)
                # Rounded outwards, but for what the exact divergences lose themselves.
                assert (made >= want * (1.0 - 1e-11)).all(), (votes, sigma)


def test_classes_far_behind_are_counted() -> None:
    """As one event: more than exact, by what their chances allow."""
    unit = Neighbours()
    setting, noise, check = setting_and_noises(False, 8.0, 210.0)
    alone = GaussianSetting(label=setting.label)
    want, _ = worst([200, 0, 0, 1], unit, noise, check, 210.0)
    made = every_neighbour.rdp([[200, 0, 0, 1]], alone, unit, ORDERS)[0]
    assert (made >= want).all()
    assert (made < 1e-25).all()


def test_a_wrong_factor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    unit, setting = Neighbours(), GaussianSetting(label=Gaussian(12.5))
    want, _ = worst([30, 30, 29, 5, 0], unit, *setting_and_noises(False, 12.5, 0.0)[1:], 0.0)
    right = outcomes.Chances.log_rival
    monkeypatch.setattr(
        outcomes.Chances,
        "log_rival",
        lambda self, z, *, before: right(self, 1.01 * z, before=before),
    )
    made = every_neighbour.rdp([[30, 30, 29, 5, 0]], setting, unit, ORDERS)[0]
    assert np.abs(made / want - 1.0).max() > 1e-3


@pytest.mark.parametrize("adjacency", ["change", "remove"])
def test_never_above_the_bound_by_outcomes(adjacency: Adjacency) -> None:
    random = np.random.default_rng(3)
    unit = Neighbours(1, adjacency)
    for classes in (2, 3, 10):
        votes = random.multinomial(250, random.dirichlet(np.full(classes, 0.3), 30))
        for law in (Gaussian(40.0), DiscreteGaussian(40.0)):
            setting = GaussianSetting(label=law, check=law, threshold=200.0)
            made = every_neighbour.rdp(votes, setting, unit, ORDERS)
            other = bound_by_outcomes(setting, unit, ORDERS)(
                votes.astype(np.float64), votes.max(axis=1).astype(np.float64)
            )
            assert (made <= other * (1.0 + 1e-7)).all()


def test_a_number_everywhere() -> None:
    """Never above the cost without votes, and no NaN: of high orders, level and unanimous votes."""
    orders = np.array([1.01, 2.0, 14.0, 512.0])
    for sigma in (8.0, 40.0, 1e7):
        for votes in ([[250, 0]], [[5000, *[0] * 19]], [[7] * 20], [[0, 0]], [[0, 0, 1]]):
            setting = GaussianSetting(label=Gaussian(sigma))
            made = every_neighbour.rdp(votes, setting, Neighbours(), orders)
            assert (made <= orders / sigma**2 * (1.0 + 1e-14)).all()
            assert (made >= 0.0).all()
    empty = every_neighbour.rdp(np.zeros((0, 3)), setting, Neighbours(), orders)
    assert empty.shape == (0, 4)


def test_what_cannot_be_charged_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = GaussianSetting(label=Gaussian(10.0))
    for votes, made, unit in (
        ([[0.5, 2.0]], setting, Neighbours()),
        ([[math.nan, 2.0]], setting, Neighbours()),
        ([[4, 2]], setting, Neighbours(2)),
        ([[1] * 21], setting, Neighbours()),
        ([[4, 2]], GaussianSetting(label=Gaussian(7.9)), Neighbours()),
    ):
        with pytest.raises(AccountingError):
            every_neighbour.rdp(votes, made, unit, ORDERS)
    monkeypatch.setattr(every_neighbour, "far_behind", lambda *_: np.full((1, 7), math.nan))
    checked = GaussianSetting(label=Gaussian(10.0), check=Gaussian(10.0), threshold=3.0)
    for each in (setting, checked):
        with pytest.raises(AccountingError, match="NaN"):
            every_neighbour.rdp([[4, 2]], each, Neighbours(), ORDERS)
