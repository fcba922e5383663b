"""The gated release against its claim: exact hockey-stick divergences of all neighbouring votes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, special

from pate.accounting import gate as module
from pate.accounting.arrays import Floats
from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.conversion import epsilon_from_rdp
from pate.accounting.gate import Choice, GateParameters, least_for_public_proxy
from pate.accounting.nearby import Batch
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting.small_worlds import label_bound
from tests.support.simulated_noise import SimulatedNoise


@dataclass(frozen=True)
class Repeated:
    """One image with two classes, asked ``queries`` times: one count determines all votes."""

    teachers: int
    sigma: float
    queries: int
    order: float

    def batch(self, top: int) -> Batch:
        law, neighbours = DiscreteGaussian(self.sigma), Neighbours()
        return Batch.of(
            [[top, self.teachers - top]] * self.queries,
            law,
            neighbours,
            label_bound(law, neighbours, self.order),
            orders=[self.order],
            checked=False,
        )

    @property
    def log_labels(self) -> Floats:
        """(tops, outcomes) exact law of how many labels are the first class; ties go to it."""
        law = DiscreteGaussian(self.sigma)
        ahead = 2 * np.arange(self.teachers + 1.0) - self.teachers
        first, other = law.log_gap_tail(-ahead), law.log_gap_tail(ahead + 1)
        assert np.exp(np.logaddexp(first, other)) == pytest.approx(1.0, rel=1e-9)
        times = np.arange(self.queries + 1.0)
        ways = special.gammaln(self.queries + 1) - special.gammaln(times + 1)
        ways -= special.gammaln(self.queries - times + 1)
        made: Floats = ways + times * first[:, None] + (self.queries - times) * other[:, None]
        return made

    def distances(self, target: float, farthest: int) -> list[int]:
        return [
            self.batch(top).distance_to(target, self.order, farthest)
            for top in range(self.teachers + 1)
        ]


def hockey_stick(labels: Floats, opens: Sequence[float], epsilon: float) -> float:
    """The largest exact divergence of the gated release over all pairs of neighbours."""
    worst = 0.0
    for one in range(len(opens)):
        for two in (one - 1, one + 1):
            if 0 <= two < len(opens):
                closed = 1 - opens[one] - math.exp(epsilon) * (1 - opens[two])
                opened = opens[one] * labels[one] - math.exp(epsilon) * opens[two] * labels[two]
                worst = max(worst, max(closed, 0.0) + float(np.maximum(opened, 0).sum()))
    return worst


WORLDS = [
    (Repeated(60, 5.0, 60, 6.0), GateParameters(order=6.0, target=0.5, test=0.4, failure=1e-3)),
    (Repeated(60, 5.0, 100, 8.0), GateParameters(order=8.0, target=0.8, test=0.3, failure=1e-4)),
    (Repeated(80, 6.0, 100, 3.0), GateParameters(order=3.0, target=0.3, test=0.3, failure=1e-2)),
]


@pytest.mark.parametrize(("world", "gate"), WORLDS)
def test_the_claim_holds_for_all_votes_and_a_broken_gate_breaks_it(
    world: Repeated, gate: GateParameters
) -> None:
    epsilon = gate.epsilon(gate.failure)
    labels = np.exp(world.log_labels)
    distances = world.distances(gate.target, gate.levels - 1)
    # Votes that never get out, that surely get out, and everything between.
    assert min(distances) == -1
    assert max(distances) >= 8
    opens = [gate.opens(distance) for distance in distances]
    exact = hockey_stick(labels, opens, epsilon)
    assert exact <= gate.failure
    # It is not loose: the failure is used up where one unit decides.
    assert exact > 0.99 * gate.failure

    def breaks(broken: Sequence[float]) -> None:
        assert hockey_stick(labels, broken, epsilon) > 3 * gate.failure

    # No gate at all; the gate without a coin; a coin that is fair at distance 0; one that is tossed
    # only for f(D), however near worse votes are; one that takes two levels at a time.
    breaks([1.0] * len(opens))
    breaks([float(distance >= 0) for distance in distances])
    breaks([0.0 if distance < 0 else max(0.5, gate.opens(distance)) for distance in distances])
    breaks([gate.opens(-1 if distance < 0 else gate.levels - 1) for distance in distances])
    breaks([gate.opens(distance if distance < 1 else distance + 3) for distance in distances])


@pytest.mark.parametrize(("world", "gate"), WORLDS)
def test_the_renyi_divergence_is_what_it_says(world: Repeated, gate: GateParameters) -> None:
    labels, order = world.log_labels, gate.order
    distances = world.distances(gate.target, gate.levels - 1)
    worst = 0.0
    for one, distance in enumerate(distances):
        for two in (one - 1, one + 1):
            if not 0 <= two < len(distances):
                continue
            p, p2 = gate.opens(distance), gate.opens(distances[two])
            total = (1 - p) ** order * (1 - p2) ** (1 - order)
            if distance > 0:  # at distance 0 the event that it opens is given up
                each = order * labels[one] + (1 - order) * labels[two]
                total += p**order * p2 ** (1 - order) * np.exp(each).sum()
            worst = max(worst, math.log(total) / (order - 1))
    assert 0.2 * gate.rdp < worst <= gate.rdp


@st.composite
def gates(draw: st.DrawFn) -> GateParameters:
    try:
        return GateParameters(
            order=draw(st.floats(1.05, 200)),
            target=draw(st.floats(1e-3, 20)),
            test=draw(st.floats(5e-3, 3)),
            failure=10 ** draw(st.floats(-12, -0.7)),
        )
    except AccountingError:
        assume(condition=False)
        raise


@settings(max_examples=60, deadline=None)
@given(gates())
def test_coins_of_neighbours_keep_to_the_inequality(gate: GateParameters) -> None:
    a = gate.order
    logs = [module._log_coin(threshold) for threshold in gate._thresholds]
    assert gate.opens(-1) == 0.0
    assert 0.999 * gate.failure < gate.opens(0) <= gate.failure
    for one in range(len(logs)):
        for two in (one - 1, one, one + 1):
            if 0 <= two < len(logs):
                opened = a * logs[one][0] + (1 - a) * logs[two][0] + (a - 1) * gate.target
                closed = a * logs[one][1] + (1 - a) * logs[two][1]
                limit = (a - 1) * gate.rdp
                assert np.logaddexp(opened, closed) <= limit * (1 + 1e-12) + 1e-12
    # Votes beyond the target stay closed, which neighbours at distance 0 do not always.
    assert (1 - a) * logs[0][1] <= (a - 1) * gate.rdp
    # They rise, and a coin could not be better by much: the step is what the inequality leaves.
    chances = [gate.opens(level) for level in range(gate.levels)]
    assert (np.diff(chances) > 0).all()
    assert gate.opens(gate.levels) == gate.opens(10**6) == chances[-1]


@settings(max_examples=60, deadline=None)
@given(gates(), st.floats(0.02, 0.98))
def test_the_claim_holds_for_labels_that_use_their_cost_up(
    gate: GateParameters, share: float
) -> None:
    """Two outcomes whose divergence at the order is the target itself, in either direction."""
    a = gate.order

    def divergence(log_other: float) -> float:
        one = a * math.log(share) + (1 - a) * log_other
        two = a * math.log1p(-share) + (1 - a) * math.log1p(-math.exp(log_other))
        return float(np.logaddexp(one, two)) / (a - 1) - gate.target

    assume(divergence(-700.0) > 0)
    other = math.exp(optimize.brentq(divergence, -700.0, math.log(share), rtol=1e-14))
    here, there = np.array([share, 1 - share]), np.array([other, 1 - other])
    try:
        epsilon = gate.epsilon(gate.failure)
    except AccountingError:
        assume(condition=False)
    chances = [gate.opens(level) for level in range(-1, gate.levels)]
    for one, p in enumerate(chances):
        for p2 in chances[max(0, one - 1) : one + 2]:
            closed = max(0.0, 1 - p - math.exp(epsilon) * (1 - p2))
            opened = np.maximum(p * here - math.exp(epsilon) * p2 * there, 0).sum()
            assert closed + opened <= gate.failure * (1 + 1e-9) + 1e-15


def test_epsilon_is_the_conversion_and_needs_no_share_for_the_failure() -> None:
    gate = WORLDS[1][1]
    assert gate.epsilon(1e-4) == epsilon_from_rdp([8.0], [0.8 + 0.3], 1e-4)
    assert gate.rdp == 0.8 + 0.3
    with pytest.raises(AccountingError, match="fails"):
        gate.epsilon(0.9e-4)


def test_a_coin_has_the_probability_that_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = 50
    monkeypatch.setattr(module, "_SCALE", scale)
    monkeypatch.setattr(module, "_LOG_NORMALISER", math.log1p(math.exp(-1 / scale)))
    x = np.arange(-4000, 4001)
    mass = np.exp(-np.abs(x) / scale)
    mass /= mass.sum()
    for threshold in (-300, -1, 0, 1, 2, 77, 300):
        reached, missed = module._log_coin(threshold)
        assert math.exp(reached) == pytest.approx(mass[x >= threshold].sum(), rel=1e-12)
        assert math.exp(missed) == pytest.approx(mass[x < threshold].sum(), rel=1e-12)


def test_it_opens_as_often_as_it_says() -> None:
    # An exact binomial test per vote, each with a false alarm rate of 1e-8.
    from scipy import stats

    world, gate = WORLDS[0]
    noise, tosses = SimulatedNoise(20), 600
    seen = []
    for top in (30, 44, 49, 52, 55, 60):
        batch = world.batch(top)
        chance = gate.opens(batch.distance_to(gate.target, gate.order, gate.levels - 1))
        opened = sum(gate.decide(batch, noise) for _ in range(tosses))
        assert stats.binomtest(opened, tosses, chance).pvalue > 1e-8
        seen.append(opened / tosses)
    assert seen[0] == 0.0
    assert 0.2 < seen[3] < 0.99
    assert seen == sorted(seen)


class Fixed:
    """Noise that always comes out the same."""

    production: ClassVar[bool] = False

    def __init__(self, value: int) -> None:
        self.value = value

    def gaussian(self, sigma: Fraction, count: int) -> NDArray[np.int64]:
        raise NotImplementedError

    def laplace(self, scale: Fraction, count: int) -> NDArray[np.int64]:
        assert scale == 2**20
        return np.full(count, self.value)


def test_votes_beyond_the_target_never_open_whatever_the_noise() -> None:
    world, gate = WORLDS[0]
    assert not gate.decide(world.batch(30), Fixed(2**60))
    good = world.batch(60)
    assert gate.decide(good, Fixed(2**60))
    assert not gate.decide(good, Fixed(-(2**60)))
    with pytest.raises(AccountingError, match="order"):
        gate.decide(Repeated(60, 5.0, 60, 7.0).batch(60), Fixed(0))


@cache
def proxy() -> Batch:
    law, neighbours = DiscreteGaussian(20.0), Neighbours()
    rng = np.random.default_rng(5)
    votes = rng.multinomial(250, [0.85, 0.05, 0.05, 0.05], size=300)
    orders = np.array([4.0, 8.0, 16.0])
    return Batch.of(
        votes,
        law,
        neighbours,
        lambda top, log_q: theorem6.rdp(log_q, 1 / 400, orders),  # noqa: ARG005  (one signature)
        orders=orders,
        checked=False,
    )


def test_the_least_gate_opens_for_the_proxy_and_a_lesser_one_does_not() -> None:
    found = least_for_public_proxy(proxy(), delta=1e-5)
    assert found is not None
    epsilon = found.gate.epsilon(1e-5)
    assert found.spare >= 0
    assert found.gate.opens(proxy().distance_to(found.gate.target, found.gate.order, 1000)) >= 0.95
    lesser = module._best_of(proxy(), 0.9 * epsilon, 1e-5)
    assert lesser is None or lesser.spare < 0
    more = module._best_of(proxy(), 1.02 * epsilon, 1e-5)
    assert more is not None
    assert more.spare >= 0


def test_a_gate_is_chosen_that_the_proxy_would_open() -> None:
    spares = []
    for epsilon in (2.0, 3.0):
        choice = module._best_of(proxy(), epsilon, 1e-5)
        assert isinstance(choice, Choice)
        gate = choice.gate
        assert epsilon - 1e-6 < gate.epsilon(1e-5) <= epsilon
        needed = gate.distance_to_open(0.95)
        assert needed is not None
        reached = proxy().distance_to(gate.target, gate.order, needed + 200)
        assert choice.spare == reached - needed
        assert gate.opens(needed) >= 0.95 > gate.opens(needed - 1)
        spares.append(choice.spare)
    assert spares[0] < spares[1]
    # It is the best of its kind: no gate of the same worth has more to spare.
    for order in (4.0, 8.0, 16.0):
        for gate in module._gates_worth(3.0, 1e-5, order):
            needed = gate.distance_to_open(0.95)
            if needed is not None:
                reached = proxy().distance_to(gate.target, order, needed + 200)
                assert reached - needed <= spares[1]


def test_what_cannot_be_is_refused() -> None:
    good = {"order": 8.0, "target": 0.5, "test": 0.1, "failure": 1e-5}
    for name, bad in (
        ("order", 1.0), ("order", math.nan), ("target", 0.0), ("target", math.inf),
        ("test", 0.0), ("test", math.nan), ("failure", 0.0), ("failure", 0.3),
        ("failure", math.nan),
    ):  # fmt: skip
        with pytest.raises(AccountingError):
            GateParameters(**{**good, name: bad})
    with pytest.raises(AccountingError, match="never open"):
        GateParameters(order=2.0, target=1e-9, test=1e-9, failure=1e-10)
    with pytest.raises(AccountingError, match="fail less"):
        GateParameters(order=2.0, target=0.05, test=0.05, failure=0.2)
    assert module._best_of(proxy(), 0.1, 1e-5) is None
