"""A privacy filter: how much of a budget is spent, reserved, and left.

A query first *reserves* its worst cost, is answered, and is then *settled* at its actual cost: an
unanswered query returns the cost of the label that it did not release. Reservation makes mechanisms
with a random number of answers correct: incurred costs never exceed the budget, whatever the
outcome. The filter sees only public values: parameters, and whether a query was answered. It must
never receive a cost that depends on votes in another way, since its stopping time would then leak
information about them.

Costs are exact fractions in the currency of one composition (:mod:`pate.accounting.composition`:
rho of zCDP, or half of mu squared of GDP). In either, stopping at an adaptive moment costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pate.accounting.conversion import check_rho
from pate.errors import AccountingError, BudgetError


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
