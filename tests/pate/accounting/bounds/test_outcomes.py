"""The bound by outcomes: exact chances, never below an exact divergence, and a number everywhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

from pate.accounting.arrays import Floats
from pate.accounting.bounds import outcomes, theorem6_plus
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting import exact

ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 8.0, 14.0, 32.0])
UNIT = Neighbours()


def one_to_one(histogram: exact.Counts, neighbours: Neighbours) -> exact.Counts:
    """Return what the proof says are the worst: all votes of the unit, from one class to one class.

    Counts may be below 0 here: the divergences do not mind, and the bound does not ask.
    """
    step = neighbours.votes * np.eye(histogram.size, dtype=np.int64)
    if neighbours.adjacency == "remove":
        return np.vstack([histogram - step, histogram + step])
    return np.array([histogram - a + b for a, b in itertools.permutations(step, 2)])


def divergence(histogram: exact.Counts, neighbours: Neighbours, noise: exact.Noise) -> Floats:
    both = np.vstack([histogram, one_to_one(histogram, neighbours)])
    log_p = exact.log_labels(both, noise)
    made: Floats = exact.divergences(log_p[0], log_p[1:], ORDERS).max(axis=0)
    return made


def test_wrong_factors_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instrument itself: each wrong factor makes the bound too small where it counts most."""
    cases = [np.array(votes) for votes in ([20, 20], [30, 0], [90, *[10] * 9])]
    worst = [divergence(votes, UNIT, exact.Gaussian(20.0)) for votes in cases]

    def least() -> float:
        law = Gaussian(20.0)
        bounds = [outcomes.rdp(votes[None], law, UNIT, ORDERS)[0] for votes in cases]
        return min(float((bound / found).min()) for bound, found in zip(bounds, worst, strict=True))

    assert least() >= 1.0 - 1e-9
    rivals, own = outcomes._Costs._rivals, outcomes._Costs._own
    for name, wrong in (
        ("_rivals", lambda self, gaps, votes: rivals(self, -gaps, votes)),
        ("_rivals", lambda self, gaps, votes: rivals(self, gaps, 0.5 * votes)),
        ("_own", lambda self, log_p, side: 0.98 * own(self, log_p, side)),
        ("_own", lambda self, log_p, side: own(self, np.log1p(-np.exp(log_p)), side)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(outcomes._Costs, name, wrong)
            assert least() < 1.0 - 1e-3, name


@pytest.mark.parametrize("discrete", [False, True])
def test_chances_are_exact(discrete: bool) -> None:
    """With ties to the first class; of classes that are near, however rare."""
    for counts in ([5, 5, 5], [0, 9, 9, 1], [60, 0, 30], [3, 2], [4] * 12, [0, 0, 0, 70, 69]):
        for sigma in (2.0, 7.3, 40.0):
            law: Law = DiscreteGaussian(sigma) if discrete else Gaussian(sigma)
            noise = exact.Lattice("gaussian", sigma) if discrete else exact.Gaussian(sigma)
            want = exact.log_labels(np.array([counts]), noise)[0]
            order = np.argsort(-np.array(counts), kind="stable")
            got = outcomes.Chances(law, len(counts)).of(np.array([counts], np.float64))
            made = np.concatenate([got.log_star[:, None], got.log_p], axis=1)[0]
            near = np.isfinite(made)
            assert near.sum() == (max(counts) - np.array(counts) <= 20.0 * sigma).sum()
            np.testing.assert_allclose(made[near], want[order][near], rtol=0, atol=3e-11)


def test_two_classes_are_exact() -> None:
    """There the label is one bit of one Gaussian, and Neyman and Pearson leave nothing open."""
    for votes in ([20, 20], [25, 5], [70, 0]):
        for sigma in (4.0, 40.0):
            bound = outcomes.rdp([votes], Gaussian(sigma), UNIT, ORDERS)[0]
            worst = divergence(np.array(votes), UNIT, exact.Gaussian(sigma))
            np.testing.assert_allclose(bound, worst, rtol=1e-8)


def test_the_wider_the_lead_the_lower_the_cost() -> None:
    """From a lead of 3 sigma on: near a tie the exact divergence itself may rise with the lead."""
    for law in (Gaussian(40.0), DiscreteGaussian(40.0)):
        for rest in ([30], [30, 20, 0], [10] * 9):
            tops = np.arange(max(rest) + 120, max(rest) + 400, 7)
            made = outcomes.rdp([[int(top), *rest] for top in tops], law, UNIT, ORDERS)
            assert (np.diff(made, axis=0) <= 1e-9 * made[1:]).all()


def test_against_theorem_6_plus() -> None:
    """Lower for typical votes; higher by little, and only where classes are level with the first."""
    random = np.random.default_rng(7)
    ratios = []
    for sigma in (10.0, 40.0):
        table = theorem6_plus.Table.build(math.sqrt(2.0) / sigma, ORDERS, 256, 1e-3)
        for classes in (2, 3, 10):
            votes = random.multinomial(250, random.dirichlet(np.full(classes, 0.3), 40))
            counts = np.vstack([votes, np.full(classes, 50)])
            found = outcomes.Chances(Gaussian(sigma), classes).of(counts.astype(np.float64))
            log_q = np.minimum(special.logsumexp(found.log_p, axis=1), 0.0)
            bound = outcomes.rdp(counts, Gaussian(sigma), UNIT, ORDERS)
            six = table.lookup(log_q)
            ratios.append((bound / six)[six > 1e-10])
    both = np.concatenate(ratios)
    assert both.max() < 1.06
    assert np.median(both) < 0.9


@pytest.mark.parametrize("sigma", [0.01, 1.0, 40.0, 5000.0, 1e8])
@pytest.mark.parametrize("adjacency", ["change", "remove"])
def test_a_number_everywhere(sigma: float, adjacency: str) -> None:
    unit = Neighbours(3, adjacency)  # type: ignore[arg-type]
    orders = np.array([1.01, 2.0, 14.0, 512.0])
    cap = orders * unit.squared_distance / (2.0 * sigma**2)
    for counts in ([[250, 0]], [[5000, *[0] * 99]], [[7] * 100], [[0, 0]], [[0.5, 3.25, 0.0]]):
        made = outcomes.rdp(counts, Gaussian(sigma), unit, orders)
        assert np.isfinite(made).all()
        assert (made <= cap * (1.0 + 1e-14)).all()
        assert (np.diff(made, axis=1) >= -1e-9 * made[:, 1:]).all()
    assert outcomes.rdp(np.zeros((0, 3)), Gaussian(sigma), unit, orders).shape == (0, 4)


def test_what_cannot_be_charged_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    for votes, law, orders in (
        ([[1.0, math.nan]], Gaussian(1.0), [2.0]),
        ([[1, 2]], Gaussian(1.0), [1.0]),
        ([[0.5, 2.0]], DiscreteGaussian(3.0), [2.0]),
        ([[1, 2]], DiscreteGaussian(1.0), [2.0]),
    ):
        with pytest.raises(AccountingError):
            outcomes.rdp(votes, law, UNIT, orders)
    monkeypatch.setattr(outcomes, "far_behind", lambda *_: math.nan)
    with pytest.raises(AccountingError, match="NaN"):
        outcomes.rdp([[9, 3]], Gaussian(4.0), UNIT, [2.0])
