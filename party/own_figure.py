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

Releases of synthetic rows count with what they reserved, each a rho and a delta: rho goes into the
sum before that is converted, once; deltas add up. It is the same neighbour: a record (or patient)
more or less moves one row of the table, and the votes of one teacher. Where a release has a pure
epsilon, its adding up is a second bound, and the smaller one is stated. A release is priced for a
row that comes or goes, not for one that is altered, so a figure with a paid one says no more,
whatever the votes beside it say. A release without
differential privacy leaves no figure, for good.

That the sum stays below a bound fixed beforehand is a guarantee (a filter); the figure as of some
day only describes what was answered until then.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.offer import UNITS, Offer
from party.synthesis_books import unit_of
from pate.accounting.composition import Gate, Gdp, Zcdp
from pate.accounting.conversion import check_delta, float_up
from pate.errors import AccountingError, UsageError
from pate.mechanisms import worst_cost
from pate.statement import ADDED_OR_REMOVED, NEIGHBOURS, in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.synthesis_books import Synthesis
    from pate.accounting.composition import Composition

_ZCDP: Final = Zcdp()
_GDP: Final = Gdp()
_NOTHING: Final = Fraction(0)


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
        syntheses: all releases of synthetic rows.
    """

    campaigns: tuple[Totals, ...]
    of_request: tuple[str, int]
    joined: bool = False
    syntheses: tuple[Synthesis, ...] = ()

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
    """An (epsilon, delta) over campaigns and releases of synthetic rows.

    Attributes:
        epsilon: infinite if ``delta`` is too small for the campaigns' own deltas, or if anything
            was released that is not private.
        delta: of the whole.
        unit: what it protects.
        observer: ``server`` if it holds even against the server, else ``public``.
        neighbours: what two worlds differ by that it makes hard to tell apart, in words.
        private: False if synthetic rows were released without differential privacy.
    """

    epsilon: float
    delta: float
    unit: str
    observer: str
    neighbours: str
    private: bool = True

    @property
    def why_none(self) -> str:
        """Why there is no figure, in words; empty if there is one."""
        if not self.private:
            return "synthetic rows were released without differential privacy"
        return "the campaigns' own deltas are more than that" if math.isinf(self.epsilon) else ""

    @property
    def in_words(self) -> str:
        """One line for people."""
        if not self.private:
            return f"no figure, and there will be none: {self.why_none}"
        if self.why_none:
            return f"no figure at delta {self.delta:g}: {self.why_none}"
        return in_words(
            self.epsilon, self.delta, self.unit, self.observer, neighbours=self.neighbours
        )


def own_figure(
    totals: Iterable[Totals], delta: float, syntheses: Iterable[Synthesis] = ()
) -> Figure:
    """Return what all answers and releases of synthetic rows together come to.

    Args:
        totals: one per campaign.
        delta: failure probability of the whole.
        syntheses: releases of synthetic rows, with what they reserved.

    Raises:
        AccountingError: for a delta outside (0, 1), or costs too large for a number.
    """
    check_delta(delta)
    counted = [each for each in totals if each.asked]
    rows = [each for each in syntheses if not each.free]
    promised = [each.offer for each in counted if not _countable(each.offer)]
    exact = [each for each in counted if _countable(each.offer)]
    left = Fraction(delta)
    left -= sum((Fraction(each.delta) for each in promised), Fraction(0))
    left -= sum((each.delta for each in rows), Fraction(0))
    epsilon = sum((Fraction(each.epsilon) for each in promised), Fraction(0))
    private = all(each.private for each in rows)
    whole = math.inf
    if private and left >= 0:
        whole = min(
            (float_up(epsilon + worth) for worth in _worths(exact, rows, left)), default=whole
        )
    units = [each.offer.unit for each in counted]
    units.extend(filter(None, [unit_of(rows)]))
    unit = min(units, key=UNITS.index, default=UNITS[0])
    return Figure(
        epsilon=whole,
        delta=float(delta),
        unit=unit,
        neighbours=(ADDED_OR_REMOVED if rows else NEIGHBOURS)[unit],
        # Noise in synthetic rows is our own, and nobody sees anything before it.
        observer=(
            "server"
            if units and all(each.offer.noise == "distributed" for each in counted)
            else "public"
        ),
        private=private,
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


def _worths(
    campaigns: Sequence[Totals], rows: Sequence[Synthesis], left: Fraction
) -> Iterator[Fraction]:
    """Yield bounds on epsilon at ``left``, each of which holds."""
    pure = [each.epsilon for each in rows if each.epsilon is not None]
    added = sum(pure, Fraction(0)) if len(pure) == len(rows) else None
    if not campaigns and added is not None:
        yield added
    if left <= 0 or not (campaigns or rows):
        return
    delta = _float_down(left)
    rho = sum((each.rho for each in rows), Fraction(0))
    yield Fraction(_worth(_ZCDP, campaigns, delta, rho))
    if added is not None and all(each.offer.composition == Gdp.name for each in campaigns):
        yield added + Fraction(_worth(_GDP, campaigns, delta))


def _worth(
    composition: Composition, campaigns: Sequence[Totals], delta: float, more: Fraction = _NOTHING
) -> float:
    total = sum((cost_of(each, composition) for each in campaigns), more)
    return composition.epsilon(total, delta)


def _float_down(value: Fraction) -> float:
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)
