"""What a party's own accountant makes of its answers: one epsilon over all its campaigns.

Campaigns over the same data cost together. The accountant knows what this party answered and the
signed terms; it counts

* with **distributed** noise, one noisy histogram for every query of every batch that was answered,
  or one noisy matrix where records vote themselves: this is what the *server* may have seen, and
  needs nobody's honesty but that of all parties save the ``colluders`` of the terms;
* with **central** noise, as often as the terms allow each answered query to be put to the
  mechanism, at its worst cost, and at most the campaign's cap: this is what the *public* may have
  seen if the server adds the noise that it promises and keeps votes and noise to itself;
* what is promised, (epsilon, delta), for a **gated** campaign, and for one whose terms were not
  known when it was answered; these add up as they are.

All others are summed in zCDP (half of mu squared is a rho: mu-GDP implies mu^2/2-zCDP), or in
Gaussian DP where all of them are, if that gives less. A campaign for a larger unit protects a
smaller one at least as well, so the sum is stated for the smallest unit among them.

That the sum stays below a bound fixed beforehand is a guarantee (a filter); the figure as of some
day only describes what was answered until then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.offer import UNITS, Offer
from pate.accounting.composition import Gate, Gdp, Zcdp
from pate.accounting.conversion import check_delta, float_up
from pate.errors import AccountingError, UsageError
from pate.mechanisms import worst_cost
from pate.statement import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pate.accounting.composition import Composition

_ZCDP: Final = Zcdp()
_GDP: Final = Gdp()


@dataclass(frozen=True)
class Totals:
    """What a party answered for one campaign.

    Attributes:
        offer: its terms, as far as they are known.
        queries: different queries of which votes left.
        asked: the same summed over different batches: a query that is twice in the public set,
            or in two batches, counts twice.
    """

    offer: Offer
    queries: int = 0
    asked: int = 0


@dataclass(frozen=True)
class LedgerView:
    """The books as they will be once a request is answered.

    Attributes:
        campaigns: totals of all campaigns, that of the request with its queries counted in.
        of_request: id of its campaign, and how many queries it asks votes on.
        joined: whether the campaign was joined before.
    """

    campaigns: tuple[Totals, ...]
    of_request: tuple[str, int]
    joined: bool = False

    def of(self, campaign: str) -> Totals:
        """Return the totals of a campaign.

        Raises:
            UsageError: if there are none.
        """
        for each in self.campaigns:
            if each.offer.campaign == campaign:
                return each
        raise UsageError(f"the books have no campaign {campaign[:8]}")


@dataclass(frozen=True)
class Figure:
    """An (epsilon, delta) over campaigns.

    Attributes:
        epsilon: infinite if ``delta`` is too small for the campaigns' own deltas.
        delta: of the whole.
        unit: what it protects.
        observer: ``server`` if it holds even against the server, else ``public``.
    """

    epsilon: float
    delta: float
    unit: str
    observer: str

    @property
    def in_words(self) -> str:
        """One line for people."""
        if math.isinf(self.epsilon):
            return (
                f"no figure at delta {self.delta:g}: the campaigns' own deltas are more than that"
            )
        return in_words(self.epsilon, self.delta, self.unit, self.observer)


def own_figure(totals: Iterable[Totals], delta: float) -> Figure:
    """Return what all answers together come to.

    Args:
        totals: one per campaign.
        delta: failure probability of the whole.

    Raises:
        AccountingError: for a delta outside (0, 1), or costs too large for a number.
    """
    check_delta(delta)
    counted = [each for each in totals if each.asked]
    promised = [each.offer for each in counted if not _countable(each.offer)]
    exact = [each for each in counted if _countable(each.offer)]
    left = Fraction(delta) - sum((Fraction(each.delta) for each in promised), Fraction(0))
    epsilon = sum((Fraction(each.epsilon) for each in promised), Fraction(0))
    whole = float_up(epsilon)
    if left < 0 or (exact and left <= 0):
        whole = math.inf
    elif exact:
        whole = float_up(epsilon + Fraction(_composed(exact, _float_down(left))))
    return Figure(
        epsilon=whole,
        delta=float(delta),
        unit=min((each.offer.unit for each in counted), key=UNITS.index, default=UNITS[0]),
        observer=(
            "server"
            if counted and all(each.offer.noise == "distributed" for each in counted)
            else "public"
        ),
    )


def own_epsilon(totals: Iterable[Totals], delta: float) -> float:
    """Return the epsilon of :func:`own_figure`."""
    return own_figure(totals, delta).epsilon


def cost_of(totals: Totals, composition: Composition) -> Fraction:
    """Return what the answers to one campaign cost at most.

    Args:
        totals: of the campaign.
        composition: a currency in which its events have costs.

    Raises:
        AccountingError: if its terms are not known, or have no cost in the currency.
    """
    offer = totals.offer
    if offer.mechanisms is None or offer.cap is None:
        raise AccountingError(f"the terms of campaign {offer.campaign[:8]} are not known")
    if offer.noise == "distributed":
        # Each batch opened shows the server its noisy sums, cap or not.
        return worst_cost(composition, offer.mechanisms, totals.asked)
    answers = offer.rounds * min(totals.asked, offer.public_queries)
    return min(offer.cap, worst_cost(composition, offer.mechanisms, answers))


def _countable(offer: Offer) -> bool:
    return (
        offer.mechanisms is not None
        and offer.cap is not None
        and offer.composition not in (None, Gate.name)
        and all(_ZCDP.supports(event) for each in offer.mechanisms for event in each.worst)
    )


def _composed(campaigns: Sequence[Totals], delta: float) -> float:
    found = [_worth(_ZCDP, campaigns, delta)]
    if all(each.offer.composition == Gdp.name for each in campaigns):
        found.append(_worth(_GDP, campaigns, delta))
    return min(found)


def _worth(composition: Composition, campaigns: Sequence[Totals], delta: float) -> float:
    total = sum((cost_of(each, composition) for each in campaigns), Fraction(0))
    return composition.epsilon(total, delta)


def _float_down(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)
