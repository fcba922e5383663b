"""The filter of several currencies, against adaptive coordinators.

Each world here is *exact*: the pairs are the worst that their costs allow (randomised response, an event that
fails, two discrete Gaussians one apart), the coordinator is the best one, found by enumerating all views, and
its exact delta is compared with the stated one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.accounting.composition import Gdp
from pate.accounting.conversion import epsilon_from_rho
from pate.accounting.events import GaussianThreshold
from pate.accounting.filters import (
    CONCENTRATED_PART,
    FAILING,
    GAUSSIAN_PART,
    ORDER_PART,
    ORDERS,
    Delta,
    Spent,
    epsilon_of,
)
from pate.errors import AccountingError

Losses = NDArray[np.float64]

_GDP = Gdp()


@dataclass(frozen=True)
class Path:
    """What one path of a coordinator has cost."""

    promised: Fraction = Fraction(0)  # sum of epsilons that were promised with a delta
    failing: Fraction = Fraction(0)  # sum of these deltas
    gaussian: Fraction = Fraction(0)  # sum of mu^2 / 2 of all that were not promised


Rule: TypeAlias = "Callable[[tuple[Spent, ...], Path, float], float]"


def of_today(events: tuple[Spent, ...], path: Path, delta: float) -> float:
    """The rule that is used."""
    del path
    return epsilon_of(sum(events, Spent()), Delta(delta, Fraction(1, 2)))


def after_the_fact(events: tuple[Spent, ...], path: Path, delta: float) -> float:
    """The tempting rule: what the promises leave of delta converts the rest, path by path."""
    del events
    left = float(Fraction(delta) - path.failing)
    return float(path.promised) + _GDP.epsilon(path.gaussian, left) if left > 0 else math.inf


def without_failures(events: tuple[Spent, ...], path: Path, delta: float) -> float:
    """The rule that is used, but for the chances to fail."""
    del path
    return epsilon_of(
        sum((replace(each, failing=Fraction(0)) for each in events), Spent()), Delta(delta)
    )


# --- noise first, then whatever looks best ---------------------------------------------------------


class Noise:
    """One count with discrete Gaussian noise, released whole: N_Z(0, s^2) against N_Z(1, s^2)."""

    def __init__(self, sigma: Fraction) -> None:
        self.cost = _GDP.cost(GaussianThreshold(sigma, 1))
        self.rho = GaussianThreshold(sigma, 1).rho
        reach = math.ceil(40 * sigma)
        values = np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-(values**2) / (2 * float(sigma) ** 2))
        self.chances = weights / weights.sum()
        #: ln of the two probabilities' ratio, of each value.
        self.losses = (1 - 2 * values) / (2 * float(sigma) ** 2)

    @property
    def spent(self) -> Spent:
        return Spent.concentrated(self.rho, gaussian=self.cost)

    def exceeds(self, over: Losses) -> Losses:
        """Return sum of (p - e^over p')+, for each of ``over``."""
        gain = np.maximum(0.0, -np.expm1(over[:, None] - self.losses[None, :]))
        result: Losses = gain @ self.chances
        return result


def promise_exceeds(over: Losses, epsilon: float, failing: float) -> Losses:
    """The same of randomised response, but with a chance that everything is shown."""
    up = 1 / (1 + math.exp(-epsilon))
    gain = up * np.maximum(0.0, -np.expm1(over - epsilon))
    gain += (1 - up) * np.maximum(0.0, -np.expm1(over + epsilon))
    return failing + (1 - failing) * gain


def largest(fits: Callable[[Fraction], bool], low: Fraction, high: Fraction) -> Fraction:
    """Return about the largest number that fits; ``low`` does."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low.limit_denominator(10**9) if fits(low.limit_denominator(10**9)) else low


def adaptive_delta(rule: Rule, share: float, dose: float, bound: float, delta: float) -> float:
    """Return delta at ``bound`` of: noise; then, by what it showed, more noise or a promise.

    ``rule``: what admits; ``share``: of the budget of noise that the first release takes; ``dose``:
    part of delta that the promise would take, cut to what the rule allows; ``bound``: epsilon that
    the rule keeps; ``delta``: at which.
    """
    budget = float(largest(
        lambda cost: rule(
            (Spent.concentrated(cost, gaussian=cost),), Path(gaussian=cost), delta
        ) <= bound,
        Fraction(0), Fraction(10),
    ))  # fmt: skip
    # d*^2 / 2 is the cost of one count of sigma; a little wider, for the noise is discrete.
    first = Noise(Fraction(math.ceil(64 * math.sqrt(0.5 / (share * budget))) + 1, 64))
    so_far = Path(gaussian=first.cost)
    sigma = Fraction(math.ceil(64 * math.sqrt(0.5 / (budget - float(first.cost)))), 64)
    while True:
        second = Noise(sigma)
        path = replace(so_far, gaussian=so_far.gaussian + second.cost)
        if rule((first.spent, second.spent), path, delta) <= bound:
            break
        sigma += Fraction(1, 64)

    def admits(epsilon: Fraction, failing: Fraction) -> bool:
        path = replace(so_far, promised=epsilon, failing=failing)
        return rule((first.spent, Spent.promised(epsilon, failing)), path, delta) <= bound

    failing = largest(
        lambda part: admits(Fraction(0), part * Fraction(delta)), Fraction(0), Fraction(dose)
    ) * Fraction(delta)  # fmt: skip
    epsilon = largest(lambda each: admits(each, failing), Fraction(0), Fraction(bound))
    over = bound - first.losses
    ways = (
        np.maximum(0.0, -np.expm1(over)),
        second.exceeds(over),
        promise_exceeds(over, float(epsilon), float(failing)),
    )
    return float(first.chances @ np.max(ways, axis=0))


@pytest.mark.parametrize(
    ("rule", "holds"), [(of_today, True), (after_the_fact, False)], ids=["today", "planted"]
)
def test_a_coordinator_who_looks_before_he_chooses_gets_no_more_than_delta(
    rule: Rule, holds: bool
) -> None:
    """The tempting rule gives him more than one and a half times as much."""
    found = {
        (bound, share, dose): adaptive_delta(rule, share, dose, bound, 1e-5) / 1e-5
        for bound in (0.5, 1.0)
        for share in (0.3, 0.7)
        for dose in (0.95,)
    }
    if holds:
        assert max(found.values()) <= 1
        assert max(found.values()) > 0.5  # it is not safe by being idle
    else:
        assert max(found.values()) > 1.5


# --- randomised responses and failures, in any order, in exact fractions ---------------------------

#: e^step: losses are whole numbers of steps, so that every probability is a fraction.
RATIO = Fraction(5, 4)
STEP = Fraction(math.log(1.25)) + Fraction(1, 10**15)  # above ln 5/4
STEPS = 4
BOUND = float(STEPS * Fraction(math.log(1.25)) - Fraction(1, 10**12))  # below 4 ln 5/4


def best_coordinator(rule: Rule, delta: Fraction, dose: Fraction, longest: int) -> Fraction:
    """Return the exact delta at BOUND of the best coordinator over two kinds of release.

    *Rows*: randomised response, pure. *Promised*: the same, but shown whole with a chance of
    ``dose``. After each he sees the result, and continues as he likes, or stops.
    """
    rows = Spent.concentrated(STEP**2 / 2, pure=STEP)
    promised = Spent.promised(STEP, dose)
    up = RATIO / (1 + RATIO)

    @cache
    def admitted(responses: int, promises: int) -> bool:
        events = (rows,) * responses + (promised,) * promises
        return rule(events, Path(), float(delta)) <= BOUND

    @cache
    def best(loss: int, responses: int, promises: int) -> Fraction:
        gains = [max(Fraction(0), 1 - RATIO ** (STEPS - loss))]
        if responses + promises < longest:
            for more, dosed in ((1, 0), (0, 1)):
                following = responses + more, promises + dosed
                if not admitted(*following):
                    continue
                gain = up * best(loss + 1, *following) + (1 - up) * best(loss - 1, *following)
                gains.append(dosed * dose + (1 - dosed * dose) * gain)
        return max(gains)

    return best(0, 0, 0)


@pytest.mark.parametrize(
    ("rule", "holds"), [(of_today, True), (without_failures, False)], ids=["today", "planted"]
)
def test_the_best_of_all_coordinators_in_exact_fractions(rule: Rule, holds: bool) -> None:
    found = {
        (delta, doses): best_coordinator(rule, delta, delta / doses, 24) / delta
        for delta in (Fraction(1, 10), Fraction(1, 4), Fraction(1, 2))
        for doses in (1, 2, 4, 8)
    }
    if holds:
        assert max(found.values()) <= 1
        assert max(found.values()) >= Fraction(1, 2)
    else:
        assert max(found.values()) > 1


# --- what is spent ---------------------------------------------------------------------------------


def test_the_parts_of_delta_are_the_whole() -> None:
    assert GAUSSIAN_PART + CONCENTRATED_PART + len(ORDERS) * ORDER_PART == 1
    for failing in (Fraction(0), FAILING, Fraction(1, 3)):
        delta = Delta(1e-5, failing)
        parts = [GAUSSIAN_PART, CONCENTRATED_PART, *[ORDER_PART] * len(ORDERS)]
        whole = delta.for_failing + sum(Fraction(delta.of(part)) for part in parts)
        assert Fraction(1e-5) * (1 - Fraction(1, 10**12)) < whole <= Fraction(1e-5)


def test_each_filter_is_converted_at_its_own_part() -> None:
    delta = Delta(1e-5)
    rho = Fraction(1, 4)
    gaussian = epsilon_of(Spent.concentrated(rho, gaussian=rho), delta)
    assert gaussian == _GDP.epsilon(rho, delta.of(GAUSSIAN_PART))
    assert epsilon_of(Spent.concentrated(rho), delta) == epsilon_from_rho(
        rho, delta.of(CONCENTRATED_PART)
    )
    # A promise of 2 next to it would be a rho of 2; at one order it is 2, whatever the order.
    beside = Spent.concentrated(rho, gaussian=rho) + Spent.promised(Fraction(2), Fraction(0))
    assert epsilon_of(beside, delta) < epsilon_from_rho(rho + 2, delta.of(CONCENTRATED_PART)) / 1.5


def test_pure_ones_and_promises_add_up_as_they_are() -> None:
    two = Spent.promised(Fraction(1), Fraction(1, 10**7)) + Spent.concentrated(
        Fraction(1, 2), pure=Fraction(1)
    )
    assert epsilon_of(two, Delta(1e-5)) == 2
    assert epsilon_of(two, Delta(1e-5, Fraction(0))) == math.inf
    assert epsilon_of(two, Delta(1e-5, Fraction(1))) == 2
    assert epsilon_of(Spent(), Delta(1e-5)) == 0
    noise = Spent.concentrated(Fraction(1), gaussian=Fraction(1))
    assert epsilon_of(noise, Delta(1e-5, Fraction(1))) == math.inf


costs = st.fractions(0, 2, max_denominator=1000)
events = st.one_of(
    st.builds(Spent.promised, costs, costs.map(lambda each: each / 10**7)),
    st.builds(Spent.concentrated, costs),
    st.builds(lambda rho: Spent.concentrated(rho, gaussian=rho), costs),
    st.builds(lambda pure: Spent.concentrated(pure**2 / 2, pure=pure), costs),
)


@given(st.lists(events, max_size=5), events)
def test_nothing_makes_it_smaller(before: list[Spent], more: Spent) -> None:
    delta = Delta(1e-5)
    spent = sum(before, Spent())
    assert epsilon_of(spent + more, delta) >= epsilon_of(spent, delta)
    assert spent + more == more + spent


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Spent(rho=Fraction(-1)),
        lambda: Spent(pure=0.5),  # type: ignore[arg-type]
        lambda: Spent(failing=Fraction(-1, 10**9)),
        lambda: Spent(at_orders=(Fraction(0),)),
        lambda: Spent.promised(Fraction(-1), Fraction(0)),
        lambda: Delta(1e-5, Fraction(11, 10)),
        lambda: Delta(1e-5, 0.1),  # type: ignore[arg-type]
        lambda: Delta(math.nan),
        lambda: Delta(1.0),
    ],
)
def test_what_cannot_be_spent(wrong: Callable[[], object]) -> None:
    with pytest.raises(AccountingError):
        wrong()
