"""No bound that is offered is ever below the exact divergence of what is released.

Random histograms of 2 to 20 classes, units of 1 to 5 votes, both adjacencies, noises of all kinds.
Exact divergences are those of tests/support/accounting/exact.py, over all neighbours where there are
few classes and votes, and otherwise over the moves from one class to one class that matter and
random mixed ones: a bound may then be compared with less than the worst, never with more.

Each bound is tried at the q that the accountant computes, and at the exact q, which is less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import special

from pate.accounting import Adjacency
from pate.accounting.arrays import Floats
from pate.accounting.bounds import laws, outcomes, outlier, theorem3, theorem6, threshold
from pate.accounting.bounds import theorem6_plus as plus
from pate.accounting.units import Neighbours
from tests.support.accounting import exact
from tests.support.needs import others_slow

ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 8.0, 14.0, 32.0])
#: Of the exact divergences: they are good to nine digits.
ROUNDING = 1e-9
#: The cases that both tiers have.
FIRST = range(60)
FEWER = (range(30), range(30, 50))
#: A divergence below it is lost among the rounding errors of its own probabilities.
LEAST = 1e-290


@dataclass
class Margins:
    """Bound over exact divergence, by name of the bound."""

    found: dict[str, list[float]]

    def check(self, name: str, bound: Floats, exact_: Floats, case: object) -> None:
        """``bound`` and ``exact_``: (orders,)."""
        assert np.isfinite(bound).all(), (name, case)
        assert (bound >= exact_ * (1.0 - ROUNDING)).all(), (name, case, bound, exact_)
        told = exact_ > LEAST
        self.found.setdefault(name, []).extend((bound[told] / exact_[told]).tolist())

    def medians(self) -> dict[str, float]:
        return {name: float(np.median(ratios)) for name, ratios in self.found.items()}


@pytest.fixture(scope="module")
def margins() -> Iterator[Margins]:
    made = Margins({})
    yield made
    for name, median in sorted(made.medians().items()):
        print(f"median bound/exact of {name}: {median:.3f} ({len(made.found[name])})")  # noqa: T201


@dataclass(frozen=True)
class Case:
    seed: int
    histogram: exact.Counts
    neighbours: Neighbours
    others: exact.Counts
    sigma: float

    @property
    def k(self) -> int:
        return self.neighbours.votes

    @property
    def both(self) -> exact.Counts:
        return np.vstack([self.histogram, self.others])


def cases(seed: int, numbers: range, sigmas: tuple[float, float]) -> Iterator[Case]:
    """Histograms from near unanimous to level; noise from far below the gap to far above it."""
    for at in numbers:
        random = np.random.default_rng([seed, at])
        classes = int(random.choice([2, 3, 4, 5, 7, 10, 14, 20]))
        k = int(random.integers(1, 6))
        adjacency: Adjacency = "change" if random.random() < 0.7 else "remove"
        neighbours = Neighbours(k, adjacency)
        sigma = float(np.exp(random.uniform(*np.log(sigmas))))
        # The first class is not always the plurality: ties must be broken both ways.
        share = random.dirichlet(np.full(classes, random.choice([0.05, 0.3, 1.0, 30.0])))
        teachers = int(random.integers(max(8, k + 1), 12 + int(12.0 * sigma)))
        histogram = random.multinomial(teachers, share).astype(np.int64)
        if random.random() < 0.1:
            histogram[:] = histogram.max()
        if classes**k <= 81 or (classes <= 10 and k == 1):
            others = exact.every_neighbour(histogram, neighbours)
        else:
            others = exact.some_neighbours(histogram, neighbours, random, mixed=6)
        yield Case(at, histogram, neighbours, others, sigma)


def label_divergence(case: Case, noise: exact.Noise) -> tuple[Floats, Floats, Floats]:
    """Return log p of all labels and histograms, the worst divergence per order, and exact log q."""
    log_p = exact.log_labels(case.both, noise)
    assert np.abs(special.logsumexp(log_p, axis=1)).max() < 1e-11
    worst = exact.divergences(log_p[0], log_p[1:], ORDERS).max(axis=0)
    log_q = special.logsumexp(np.delete(log_p[0], case.histogram.argmax()))
    return log_p, worst, np.minimum(np.atleast_1d(log_q), 0.0)


def check_gnmax(margins: Margins, case: Case, law: laws.Law, noise: exact.Noise, kind: str) -> None:
    _, worst, exact_log_q = label_divergence(case, noise)
    log_q = outlier.gnmax_log_q(case.histogram[None, :], law)
    # Ties count against the plurality, and the sum over classes is a union bound.
    assert log_q[0] >= exact_log_q[0] - 1e-9
    distance = case.neighbours.squared_distance
    mu, rate = math.sqrt(distance) * law.mu_of_step, distance / (2.0 * law.sigma**2)
    by_outcomes = outcomes.rdp(case.histogram[None, :], law, case.neighbours, ORDERS)[0]
    margins.check(f"outcomes, {kind}", by_outcomes, worst, case)
    for told, q in (("", log_q), (", exact q", exact_log_q)):
        for name, bound in (
            ("theorem 6", theorem6.rdp(q, rate, ORDERS)),
            ("theorem 6+", plus.rdp(q, mu, ORDERS)),
        ):
            margins.check(f"{name}, {kind}{told}", bound[0], worst, case)
    if case.seed % 20 == 0:
        # A coarse table, which is dear to make, so that rounding q up is what is tried.
        table = plus.Table.build(mu, ORDERS, knots=256)
        margins.check(f"table, {kind}", table.lookup(log_q)[0], worst, case)
        margins.check(f"table, {kind}, exact q", table.lookup(exact_log_q)[0], worst, case)


@pytest.mark.parametrize("numbers", others_slow([FIRST, range(60, 240)], FIRST.__eq__))
def test_labels_of_gaussian_noise(margins: Margins, numbers: range) -> None:
    for case in cases(1, numbers, (1.0, 60.0)):
        law = laws.Gaussian(case.sigma)
        check_gnmax(margins, case, law, exact.Gaussian(case.sigma), "gaussian")
    medians = margins.medians()
    # A bound that is never below because it is far above would pass all else.
    assert medians["theorem 6, gaussian"] < 3.5
    assert medians["theorem 6+, gaussian"] < 3.0
    assert medians["theorem 6+, gaussian"] < medians["theorem 6, gaussian"]
    assert medians["outcomes, gaussian"] < 0.9 * medians["theorem 6+, gaussian"]


@pytest.mark.parametrize("numbers", others_slow([FIRST, range(60, 160)], FIRST.__eq__))
def test_labels_of_discrete_gaussian_noise(margins: Margins, numbers: range) -> None:
    for case in cases(2, numbers, (2.0, 15.0)):
        law = laws.DiscreteGaussian(case.sigma)
        check_gnmax(margins, case, law, exact.Lattice("gaussian", case.sigma), "discrete")
    medians = margins.medians()
    assert medians["theorem 6, discrete"] < 3.5
    assert medians["theorem 6+, discrete"] < 3.0
    assert medians["outcomes, discrete"] < 0.9 * medians["theorem 6+, discrete"]


@pytest.mark.parametrize("kind", ["laplace", "geometric"])
@pytest.mark.parametrize("numbers", others_slow(FEWER, FEWER[0].__eq__))
def test_labels_of_laplace_noise(margins: Margins, kind: str, numbers: range) -> None:
    for case in cases(3, numbers, (1.0, 25.0)):
        scale = 2.0 * case.sigma
        noise = exact.Laplace(1 / scale) if kind == "laplace" else exact.Lattice("geometric", scale)
        _, worst, exact_log_q = label_divergence(case, noise)
        epsilon0 = case.neighbours.gap_shift / scale
        histograms = case.histogram[None, :]
        log_q = outlier.lnmax_log_q(histograms, 1 / scale, discrete=kind == "geometric")
        assert log_q[0] >= exact_log_q[0] - 1e-9
        for told, q in (("", log_q), (", exact q", exact_log_q)):
            for name, sharp in (("theorem 3", False), ("theorem 3+", True)):
                bound = theorem3.rdp(q, epsilon0, ORDERS, sharp)
                margins.check(f"{name}, {kind}{told}", bound[0], worst, case)
    medians = margins.medians()
    assert medians[f"theorem 3+, {kind}, exact q"] < 4.0
    assert medians[f"theorem 3, {kind}, exact q"] < 6.0


@pytest.mark.parametrize("kind", ["gaussian", "discrete"])
@pytest.mark.parametrize("numbers", others_slow(FEWER, FEWER[0].__eq__))
def test_bits_and_joint_outputs(margins: Margins, kind: str, numbers: range) -> None:
    """The threshold test by itself, and Confident-GNMax as one mechanism: no answer, or one of the labels."""
    for case in cases(4, numbers, (2.0, 12.0)):
        random = np.random.default_rng([5, case.seed])
        sigma1 = float(np.exp(random.uniform(np.log(2.0), np.log(40.0))))
        top = case.both.max(axis=1).astype(np.float64)
        limit = float(np.round(top[0] + random.normal() * 2.0 * sigma1))
        check: laws.Law
        label: laws.Law
        if kind == "gaussian":
            check, label = laws.Gaussian(sigma1), laws.Gaussian(case.sigma)
            noise1: exact.Noise = exact.Gaussian(sigma1)
            noise2: exact.Noise = exact.Gaussian(case.sigma)
        else:
            check, label = laws.DiscreteGaussian(sigma1), laws.DiscreteGaussian(case.sigma)
            noise1 = exact.Lattice("gaussian", sigma1)
            noise2 = exact.Lattice("gaussian", case.sigma)
        log_pass = noise1.log_upto(top - limit)  # symmetric: P[v + Z >= T] = P[Z <= v - T]
        log_fail = noise1.log_below(limit - top)
        bits = np.stack([log_fail, log_pass], axis=1)
        worst = exact.divergences(bits[0], bits[1:], ORDERS).max(axis=0)
        free = np.zeros((1, len(ORDERS)))
        bound = threshold.joint(top[:1], limit, check, case.k, ORDERS, free)
        margins.check(f"bit, {kind}", bound[0], worst, case)

        log_labels, _, log_q = label_divergence(case, noise2)
        outputs = np.column_stack([log_fail, log_pass[:, None] + log_labels])
        worst = exact.divergences(outputs[0], outputs[1:], ORDERS).max(axis=0)
        mu = math.sqrt(case.neighbours.squared_distance) * label.mu_of_step
        cost = plus.rdp(log_q, mu, ORDERS)
        joint = threshold.joint(top[:1], limit, check, case.k, ORDERS, cost)
        margins.check(f"joint, {kind}", joint[0], worst, case)
        cost = outcomes.rdp(case.histogram[None, :], label, case.neighbours, ORDERS)
        joint = threshold.joint(top[:1], limit, check, case.k, ORDERS, cost)
        margins.check(f"joint by outcomes, {kind}", joint[0], worst, case)
    medians = margins.medians()
    assert medians[f"bit, {kind}"] < 2.0
    assert medians[f"joint, {kind}"] < 3.0


def test_the_reverse_divergence_is_not_bounded() -> None:
    """What these bounds do not say: they hold with the histogram at hand first."""
    log_p = exact.log_labels(np.array([[30, 0], [29, 1]]), exact.Gaussian(3.0))
    log_q = outlier.gnmax_log_q(np.array([[30, 0]]), laws.Gaussian(3.0))
    forward = exact.divergences(log_p[0], log_p[1:], [8.0, 14.0])[0]
    reverse = exact.divergences(log_p[1], log_p[:1], [8.0, 14.0])[0]
    bound = plus.rdp(log_q, math.sqrt(2.0) / 3.0, [8.0, 14.0])[0]
    assert (forward <= bound).all()
    assert bound[0] < 0.5 * reverse[0]
    assert forward[1] == pytest.approx(1.97e-11, rel=0.01)
    assert reverse[1] == pytest.approx(1.396, rel=0.001)


def test_a_bound_that_is_too_low_is_found() -> None:
    """The instrument itself: a twentieth less than Theorem 6+ is caught where it is tight."""
    margins = Margins({})
    # Two classes, level: the label is the sign of one Gaussian, and the worst q' the only one.
    log_p = exact.log_labels(np.array([[20, 20], [19, 21]]), exact.Gaussian(2.0))
    worst = exact.divergences(log_p[0], log_p[1:], [14.0])[0]
    assert exact.divergences(log_p[0], log_p[:1], [14.0])[0, 0] == 0.0
    with pytest.raises(AssertionError):
        margins.check("too low", worst * (1.0 - 1e-8), worst, "two classes")
    margins.check("exact", worst, worst, "two classes")
