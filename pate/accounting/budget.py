"""A privacy filter: how much of a zCDP budget is spent, held back, and left.

A query first *reserves* its worst cost, is answered, and is then *settled* at what it did cost:
an unanswered query gives back the cost of the label that it did not release. Reservation is what
makes mechanisms with a random number of answers correct: at no time can the costs already incurred
exceed the budget, whatever comes out. All that the filter looks at is public: parameters, and
whether a query was answered. It must never be fed a cost that depends on votes in another way,
since when it stops would then say something about them.

Stopping at an adaptive moment costs nothing: Whitehouse, Ramdas, Rogers, Wu, "Fully Adaptive
Composition in Differential Privacy" (ICML 2023, arXiv 2203.05481), whose zCDP filter has the same
constants as for a plan fixed beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pate.accounting.conversion import check_rho
from pate.errors import AccountingError, BudgetError


def _text(rho: Fraction) -> str:
    try:
        return f"{float(rho):.6g}"
    except OverflowError:
        return "more than 1e308"


@dataclass(frozen=True)
class Reservation:
    """What one query, or one batch of queries, holds back of a budget.

    Attributes:
        number: of the reservation within its filter.
        rho: held back.
    """

    number: int
    rho: Fraction


class ZcdpFilter:
    """Admits queries while their total worst cost stays within ``rho_max``.

    All sums are exact: a float could admit one query too many. Not safe to share between threads
    without a lock.

    >>> budget = ZcdpFilter(Fraction(1, 100))
    >>> held = budget.reserve(Fraction(1, 150))
    >>> budget.settle(held, Fraction(1, 600))
    >>> budget.left
    Fraction(1, 120)

    Args:
        rho_max: the budget.
        spent: already spent of it, when a campaign is taken up again.

    Raises:
        AccountingError: for a budget that is not exact or negative, or less than is spent.
    """

    def __init__(self, rho_max: Fraction, spent: Fraction = Fraction(0)) -> None:
        self._rho_max = check_rho(rho_max, "the budget")
        self._spent = check_rho(spent, "what is spent")
        if self._spent > self._rho_max:
            raise AccountingError(
                f"spent is {self._spent}, more than the budget of {self._rho_max}: "
                f"the ledger belongs to another budget"
            )
        self._open: dict[int, Fraction] = {}
        self._reserved = Fraction(0)
        self._issued = 0

    @property
    def rho_max(self) -> Fraction:
        """The budget."""
        return self._rho_max

    @property
    def spent(self) -> Fraction:
        """What settled queries did cost."""
        return self._spent

    @property
    def reserved(self) -> Fraction:
        """What open queries may yet cost."""
        return self._reserved

    @property
    def left(self) -> Fraction:
        """What a new query may reserve."""
        return self._rho_max - self._spent - self._reserved

    def fits(self, rho: Fraction, times: int) -> int:
        """Return how many of ``times`` queries, each of worst cost ``rho``, fit what is left.

        Raises:
            AccountingError: for a cost that is not exact or negative, or a negative number.
        """
        rho = check_rho(rho, "a cost")
        if times < 0:
            raise AccountingError(f"there cannot be {times} queries")
        return times if rho == 0 else min(times, self.left // rho)

    def reserve(self, rho: Fraction) -> Reservation:
        """Hold ``rho`` back for a query that is about to be answered.

        Raises:
            BudgetError: if it does not fit; nothing is then held back.
            AccountingError: for a cost that is not exact or negative.
        """
        rho = check_rho(rho, "a cost")
        if rho > self.left:
            raise BudgetError(
                f"the query may cost rho = {_text(rho)}, and {_text(self.left)} of "
                f"{_text(self._rho_max)} is left: the campaign has given what it may"
            )
        self._issued += 1
        self._open[self._issued] = rho
        self._reserved += rho
        return Reservation(self._issued, rho)

    def settle(self, reservation: Reservation, used: Fraction) -> None:
        """Spend ``used`` of a reservation, and give the rest back.

        Raises:
            AccountingError: if the reservation is not open, or ``used`` is negative or more than
                was reserved; it then stays as it was.
        """
        used = check_rho(used, "a cost")
        if self._open.get(reservation.number) != reservation.rho:
            raise AccountingError(
                f"reservation {reservation.number} is not open: it was settled before, "
                f"or belongs to another budget"
            )
        if used > reservation.rho:
            raise AccountingError(
                f"a query used rho = {used}, more than the {reservation.rho} that it reserved"
            )
        del self._open[reservation.number]
        self._reserved -= reservation.rho
        self._spent += used
