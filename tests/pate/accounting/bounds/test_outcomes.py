"""The bound by outcomes and the cost by every neighbour against exact divergences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

from pate.accounting import Adjacency
from pate.accounting.arrays import Floats
from pate.accounting.bounds import every_neighbour, outcomes, theorem6_plus
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.bounds.sharp import GaussianSetting, bound_by_outcomes
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


def test_every_neighbour_costs_a_number_everywhere() -> None:
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


def test_no_neighbour_is_charged_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
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
