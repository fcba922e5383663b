"""A party's own accountant: one epsilon over all campaigns and synthetic rows of its home.

Campaigns over the same data cost together. The accountant knows what this party answered and the
signed terms; it counts

* with **distributed** noise, one noisy histogram for every query of every batch that was answered,
  or one noisy matrix where records vote themselves: this is what the *server* may have seen, and
  needs nobody's honesty but that of all parties save the ``colluders`` of the terms;
* with **central** noise, as often as the terms allow each answered query to be put to the
  mechanism, at its worst cost, and at most the campaign's cap: this is what the *public* may have
  seen if the server adds the noise that it promises and keeps votes and noise to itself;
* what is promised, (epsilon, delta), for a **gated** campaign, and for one whose terms were not
  known when it was answered;
* what they reserved, for releases of synthetic rows: rho, delta, and a pure epsilon where they have
  one.

All of these are added up by :mod:`pate.accounting.filters`, which has the theorem: a bound that was
fixed beforehand, with delta and its parts, holds against a coordinator who chooses each campaign
after a look at what was released before. A campaign for a larger unit protects a smaller one at
least as well, so the sum is stated for the smallest unit among them, and for the neighbours that
all of them cover.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from party.ledger.synthesis import unit_of
from pate.accounting.composition import Gate, Gdp, Zcdp
from pate.accounting.filters import Spent, epsilon_of
from pate.campaign.choices import UNITS
from pate.errors import AccountingError, UsageError
from pate.formats.privacy_statement import ADDED_OR_REMOVED, in_words, neighbours_of
from pate.mechanisms import worst_cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from party.ledger.synthesis import Synthesis
    from party.offer import Offer
    from pate.accounting.composition import Composition
    from pate.accounting.filters import Delta

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
    """The ledger as it will be once a request is answered.

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
        raise UsageError(f"the ledger has no campaign {campaign[:8]}")


@dataclass(frozen=True)
class Figure:
    """An (epsilon, delta) over campaigns and releases of synthetic rows.

    Attributes:
        epsilon: infinite if more may fail than ``for_failing``, or if anything was released that is
            not private.
        delta: of the whole.
        for_failing: what of delta is set aside for campaigns and releases that may fail outright.
        unit: what it protects.
        observer: ``server`` if it holds even against the server, else ``public``.
        neighbours: what two worlds differ by that it makes hard to tell apart, in words.
        private: False if synthetic rows were released without differential privacy.
    """

    epsilon: float
    delta: float
    for_failing: float
    unit: str
    observer: str
    neighbours: str
    private: bool = True

    @property
    def why_none(self) -> str:
        """Why there is no figure, in words; empty if there is one."""
        if not self.private:
            return "synthetic rows were released without differential privacy"
        if math.isinf(self.epsilon):
            return (
                "the deltas of gated campaigns and of synthetic rows come to more than the "
                f"{self.for_failing:g} of it that is set aside for them (failing_share): a campaign at "
                "a smaller delta, or a larger share, would fit"
            )
        return ""

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


def cumulative_epsilon(
    totals: Iterable[Totals], delta: Delta, syntheses: Iterable[Synthesis] = ()
) -> Figure:
    """Return what all answers and releases of synthetic rows together are worth.

    Args:
        totals: one per campaign.
        delta: failure probability of the whole, with its parts.
        syntheses: releases of synthetic rows, with what they reserved.

    Raises:
        AccountingError: for costs too large for a number.
    """
    counted = [each for each in totals if each.asked]
    rows = [each for each in syntheses if not each.free]
    private = all(each.private for each in rows)
    spent = sum((*map(_of_campaign, counted), *map(_of_rows, rows)), Spent())
    offers = [each.offer for each in counted]
    units: list[str] = [each.unit for each in offers]
    units.extend(filter(None, [unit_of(rows)]))
    unit = min(units, key=UNITS.index, default=UNITS[0])
    return Figure(
        epsilon=epsilon_of(spent, delta) if private else math.inf,
        delta=delta.whole,
        for_failing=float(delta.for_failing),
        unit=unit,
        neighbours=ADDED_OR_REMOVED[unit] if rows else _neighbours(unit, offers),
        # Noise in synthetic rows is our own, and nobody sees anything before it.
        observer=(
            "server" if units and all(each.sums.distributed for each in offers) else "public"
        ),
        private=private,
    )


def _neighbours(unit: str, offers: Sequence[Offer]) -> str:
    """Return what two worlds differ by that all of these campaigns cover, in words.

    A record that is altered is covered where records vote themselves, and where all of a party's
    data may be; not where teachers vote, whom it may change shards of, nor by a promise for
    patients, as it may become another patient's.
    """
    voting = any(each.records_vote for each in offers) and all(
        each.unit == "party" or (each.unit == unit and each.records_vote) for each in offers
    )
    return neighbours_of(unit, records_vote=voting)


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
    if offer.sums.distributed:
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


def _of_campaign(totals: Totals) -> Spent:
    offer = totals.offer
    if not _countable(offer):
        return Spent.promised(Fraction(offer.epsilon), Fraction(offer.delta))
    return Spent.concentrated(
        cost_of(totals, _ZCDP),
        gaussian=cost_of(totals, _GDP) if offer.composition == Gdp.name else None,
    )


def _of_rows(made: Synthesis) -> Spent:
    return Spent.concentrated(made.rho, pure=made.epsilon, failing=made.delta)
