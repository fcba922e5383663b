"""Privacy filters: of a campaign, in one currency, and of a data holder, over events of several.

A campaign's filter *reserves* a query's worst cost, and *settles* it at its actual cost: an unanswered
query returns the cost of the label that it did not release. So incurred costs never exceed the budget,
whatever the outcome. It sees only public values: parameters, and whether a query was answered. It must
never receive a cost that depends on votes in another way, since its stopping time would then leak them.

A data holder's bound (epsilon, delta) must hold over releases that a coordinator chooses adaptively, each
after seeing all before it. No currency suits all of them, and choosing the best one *afterwards*, path by
path, is not valid: the failure probabilities add up over the paths. So each currency is a filter of its
own, with its own part of delta, fixed in advance:

* outright failures (the delta of a promised (epsilon, delta), or of approximate zCDP) add up to
  at most ``failing`` of delta;
* the *pure* filter adds epsilons, and needs no delta;
* the *Gaussian* filter adds mu^2 / 2, the *concentrated* one rho, and one filter for each Renyi
  order in :data:`ORDERS` adds divergences: each is converted at its own part of the rest, always.

A release is admitted if at least one filter has room for it, so the total spent converts to the
least of the filters' epsilons: for every bound fixed in advance, stopping before that least epsilon
would exceed it is (bound, delta)-DP against a fully adaptive coordinator.

Proof: docs/proofs/composition.md. Sources of the single filters: Feldman and Zrnic 2021 (arXiv
2008.11193) for one Renyi order, Whitehouse et al. 2023 (2203.05481) for approximate zCDP, Koskela
et al. 2023 (2209.15596) and Smith and Thakurta 2022 (2210.17520) for Gaussian DP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from operator import add
from typing import TYPE_CHECKING, Final, Self

from pate.accounting.composition import Gdp
from pate.accounting.conversion import (
    check_delta,
    check_rho,
    epsilon_from_rdp,
    epsilon_from_rho,
    float_up,
)
from pate.errors import AccountingError, BudgetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Version of the list of filters and their parts below. A change of the list needs a new version: a
#: bound that holds by one list need not hold by another.
RULES: Final = 1
#: Renyi orders with a filter each.
ORDERS: Final = (3, 6, 12, 24)
#: Each filter's part of the delta that failing events leave; they sum to 1.
GAUSSIAN_PART: Final = Fraction(3, 8)
CONCENTRATED_PART: Final = Fraction(3, 8)
ORDER_PART: Final = Fraction(1, 16)
#: Default delta of all releases of a site.
SITE_DELTA: Final = 1e-5
#: Default part of delta for events that may fail outright.
FAILING: Final = Fraction(1, 10)
#: That part of a delta that is written with few digits is hardly ever a float: 1e-5 is a little more than a
#: tenth of 1e-4. So it is larger by this share of itself, and the rest smaller.
_HAIR: Final = Fraction(1, 2**50)

_GDP: Final = Gdp()


@dataclass(frozen=True)
class Delta:
    """A failure probability and its division, fixed before anything is released."""

    whole: float  # delta of the whole guarantee
    failing: Fraction = FAILING  # part of it for events that may fail outright, from 0 to 1

    def __post_init__(self) -> None:
        check_delta(self.whole)
        if type(self.failing) is not Fraction or not 0 <= self.failing <= 1:
            raise AccountingError(
                f"the part of delta for failures must be between 0 and 1, got {self.failing!r}"
            )

    @property
    def for_failing(self) -> Fraction:
        """Total delta of events that may fail outright.

        >>> Fraction(1e-5) <= Delta(1e-4, Fraction(1, 10)).for_failing
        True
        """
        return min(self.failing * (1 + _HAIR), Fraction(1)) * Fraction(self.whole)

    def of(self, part: Fraction) -> float:
        """Return a filter's part of the rest, rounded down."""
        exact = part * (Fraction(self.whole) - self.for_failing)
        near = float(exact)
        return near if Fraction(near) <= exact else math.nextafter(near, 0.0)


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Total cost of some events in each currency; ``None`` where one of them has no cost in it.

    Costs are exact upper bounds, and add up. Each holds given that no event fails.
    """

    pure: Fraction | None = Fraction(0)  # sum of pure epsilons
    gaussian: Fraction | None = Fraction(0)  # sum of mu^2 / 2
    rho: Fraction = Fraction(0)  # of zCDP
    # (orders,) Renyi divergences at :data:`ORDERS`, nats
    at_orders: tuple[Fraction, ...] = field(default=(Fraction(0),) * len(ORDERS))
    failing: Fraction = Fraction(0)  # sum of the failure probabilities

    def __post_init__(self) -> None:
        for cost in (self.pure, self.gaussian, self.rho, *self.at_orders, self.failing):
            if cost is not None:
                check_rho(cost, "a cost")
        if len(self.at_orders) != len(ORDERS):
            raise AccountingError(f"{len(self.at_orders)} costs for {len(ORDERS)} orders")

    @classmethod
    def concentrated(
        cls,
        rho: Fraction,
        *,
        gaussian: Fraction | None = None,
        pure: Fraction | None = None,
        failing: Fraction = Fraction(0),
    ) -> Self:
        """Return the cost of ``failing``-approximate ``rho``-zCDP.

        ``gaussian`` is mu^2 / 2, if it is mu-GDP as well; ``pure`` epsilon, if it is pure epsilon-DP as well.
        """
        at_orders = (order * check_rho(rho) for order in ORDERS)
        return cls(
            pure=pure,
            gaussian=gaussian,
            rho=rho,
            at_orders=tuple(cost if pure is None else min(pure, cost) for cost in at_orders),
            failing=failing,
        )

    @classmethod
    def promised(cls, epsilon: Fraction, delta: Fraction) -> Self:
        """Return the cost of (epsilon, delta)-DP: pure epsilon-DP except with probability delta.

        Pure epsilon-DP is (epsilon^2 / 2)-zCDP, and epsilon bounds the divergence at every order.

        >>> Spent.promised(Fraction(2), Fraction(0)).at_orders == (2, 2, 2, 2)
        True

        Source: Kairouz, Oh, Viswanath 2015, for the exception; Bun and Steinke 2016, Proposition
        1.4.
        """
        return cls.concentrated(check_rho(epsilon, "epsilon") ** 2 / 2, pure=epsilon, failing=delta)

    def or_more(self, other: Spent) -> Spent:
        """Return the larger cost in each currency.

        For campaigns of one series, of which a unit has a part of its votes in each; failures still
        add up. It is at least either cost, so no total falls when a campaign joins its series.

        Source: docs/proofs/composition.md, section 8.
        """
        return Spent(
            pure=_both(max, self.pure, other.pure),
            gaussian=_both(max, self.gaussian, other.gaussian),
            rho=max(self.rho, other.rho),
            at_orders=tuple(map(max, self.at_orders, other.at_orders)),
            failing=self.failing + other.failing,
        )

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            pure=_both(add, self.pure, other.pure),
            gaussian=_both(add, self.gaussian, other.gaussian),
            rho=self.rho + other.rho,
            at_orders=tuple(
                mine + theirs for mine, theirs in zip(self.at_orders, other.at_orders, strict=True)
            ),
            failing=self.failing + other.failing,
        )


def epsilon_of(spent: Spent, delta: Delta) -> float:
    """Return the least epsilon of all filters, rounded up; infinite if failures exceed their part of delta.

    Stopping before this exceeds a bound fixed in advance gives (bound, delta)-DP, however
    adaptively the events are chosen. It increases with every event.

    >>> delta = Delta(1e-5)
    >>> epsilon_of(Spent.promised(Fraction(1), Fraction(1, 10**6)), delta)
    1.0
    >>> epsilon_of(Spent.promised(Fraction(1), Fraction(1, 10**5)), delta)
    inf
    """
    if spent.failing > delta.for_failing:
        return math.inf
    return min(_epsilons(spent, delta), default=math.inf)


def _epsilons(spent: Spent, delta: Delta) -> Iterator[float]:
    if spent.pure is not None:
        yield float_up(spent.pure)
    if delta.for_failing == Fraction(delta.whole):
        return  # nothing is left for the others
    if spent.gaussian is not None:
        yield _GDP.epsilon(spent.gaussian, delta.of(GAUSSIAN_PART))
    yield epsilon_from_rho(spent.rho, delta.of(CONCENTRATED_PART))
    for order, cost in zip(ORDERS, spent.at_orders, strict=True):
        yield epsilon_from_rdp([order], [float_up(cost)], delta.of(ORDER_PART))


def _both(
    how: Callable[[Fraction, Fraction], Fraction], one: Fraction | None, other: Fraction | None
) -> Fraction | None:
    return None if one is None or other is None else how(one, other)


def _text(cost: Fraction) -> str:
    try:
        return f"{float(cost):.6g}"
    except OverflowError:
        return "more than 1e308"


@dataclass(frozen=True)
class Reservation:
    """The part of a budget that is reserved for one query or batch.

    Attributes:
        number: of the reservation within its filter.
        cost: the reserved amount.
    """

    number: int
    cost: Fraction


class PrivacyFilter:
    """Admits queries while their total worst cost stays within ``cap``.

    All sums are exact: a float could admit one query too many. Not safe to share between threads
    without a lock.

    >>> budget = PrivacyFilter(Fraction(1, 100))
    >>> reservation = budget.reserve(Fraction(1, 150))
    >>> budget.settle(reservation, Fraction(1, 600))
    >>> budget.left
    Fraction(1, 120)

    Args:
        cap: the budget.
        spent: amount already spent, when a campaign is resumed.

    Raises:
        AccountingError: for a budget that is not exact or negative, or less than is spent.
    """

    def __init__(self, cap: Fraction, spent: Fraction = Fraction(0)) -> None:
        self._cap = check_rho(cap, "the budget")
        self._spent = check_rho(spent, "what is spent")
        if self._spent > self._cap:
            raise AccountingError(
                f"spent is {self._spent}, more than the budget of {self._cap}: "
                f"the ledger belongs to another budget"
            )
        self._open: dict[int, Fraction] = {}
        self._reserved = Fraction(0)
        self._issued = 0

    @property
    def cap(self) -> Fraction:
        """The budget."""
        return self._cap

    @property
    def spent(self) -> Fraction:
        """Total cost of settled queries."""
        return self._spent

    @property
    def reserved(self) -> Fraction:
        """Total worst cost of open queries."""
        return self._reserved

    @property
    def left(self) -> Fraction:
        """The amount that a new query may reserve."""
        return self._cap - self._spent - self._reserved

    def fits(self, cost: Fraction, times: int) -> int:
        """Return how many of ``times`` queries of worst cost ``cost`` the budget still covers.

        Raises:
            AccountingError: for a cost that is not exact or negative, or a negative number.
        """
        cost = check_rho(cost, "a cost")
        if times < 0:
            raise AccountingError(f"there cannot be {times} queries")
        return times if cost == 0 else min(times, self.left // cost)

    def reserve(self, cost: Fraction) -> Reservation:
        """Reserve ``cost`` for a query that is about to be answered.

        Raises:
            BudgetError: if it does not fit; nothing is then reserved.
            AccountingError: for a cost that is not exact or negative.
        """
        cost = check_rho(cost, "a cost")
        if cost > self.left:
            raise BudgetError(
                f"the query may cost {_text(cost)}, and {_text(self.left)} of "
                f"{_text(self._cap)} is left: the privacy budget is exhausted"
            )
        self._issued += 1
        self._open[self._issued] = cost
        self._reserved += cost
        return Reservation(self._issued, cost)

    def settle(self, reservation: Reservation, used: Fraction) -> None:
        """Spend ``used`` of a reservation and return the rest to the budget.

        Raises:
            AccountingError: if the reservation is not open, or ``used`` is negative or more than
                was reserved; it then stays as it was.
        """
        used = check_rho(used, "a cost")
        if self._open.get(reservation.number) != reservation.cost:
            raise AccountingError(
                f"reservation {reservation.number} is not open: it was settled before, "
                f"or belongs to another budget"
            )
        if used > reservation.cost:
            raise AccountingError(
                f"a query used {used}, more than the {reservation.cost} that it reserved"
            )
        del self._open[reservation.number]
        self._reserved -= reservation.cost
        self._spent += used
