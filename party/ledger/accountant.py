"""A party's own accountant: one epsilon over all campaigns and synthetic rows of its home.

The costs of campaigns over the same data add up. The accountant knows this party's answers and the
signed terms; it counts

* with **distributed** noise, one noisy histogram for every query of every batch that was answered,
  or one noisy matrix where records vote, in rounds those of all rounds from the first answer on: this
  bounds the view of the *server*, and assumes only that all parties except ``colluders`` of the terms are
  honest;
* with **central** noise, each answered query at its worst cost, as often as the terms allow it to
  be asked, and at most the campaign's cap: this bounds the view of the *public* if the server adds
  the promised noise and keeps votes and noise secret;
* the announced (epsilon, delta) for a **gated** campaign, and for one whose terms were not known
  when it was answered;
* of campaigns of one **series**, in which each unit votes once, the most expensive one;
* the reserved cost of releases of synthetic rows: rho, delta, and a pure epsilon if they have
  one.

These are added up by :mod:`pate.accounting.filters`, which has the theorem: a bound fixed in
advance, with delta and its parts, holds against a coordinator who chooses each campaign adaptively.
A campaign for a larger unit protects a smaller one at least as well, so the sum is stated for the
smallest unit among them, and for the neighbours that all of them cover. Where a party is added or removed
a change of its data is two steps, and counts as twice the distance where a smaller unit is stated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol

from party.ledger.synthesis import unit_of
from pate.accounting.composition import Gate, Gdp, Pure, Zcdp
from pate.accounting.filters import RULES, Delta, Spent, epsilon_of
from pate.campaign.choices import UNITS
from pate.codes import NEAREST, adjacency_for, code_of
from pate.errors import AccountingError, LedgerError, ProtocolError, UsageError
from pate.exact import fraction_from_text
from pate.formats.privacy_statement import (
    ADDED_OR_REMOVED,
    delta_rounded_up,
    in_words,
    neighbours_of,
    rounded_up,
)
from pate.storage.ledger import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from party.ledger.synthesis import Synthesis
    from pate.accounting.composition import Composition
    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from pate.storage.hash_chain import Entry, Json

_ZCDP: Final = Zcdp()
_GDP: Final = Gdp()
_PURE: Final = Pure()


@dataclass(frozen=True)
class Totals:
    """A party's answers to one campaign: distinct queries, and ``asked``, summed over batches.

    A query that is twice in the public set, or in two batches, counts twice in ``asked``.
    """

    offer: Offer
    queries: int = 0
    asked: int = 0


@dataclass(frozen=True)
class LedgerView:
    """The ledger after a request is answered: totals with its queries, and all releases of synthetic rows.

    ``joined`` is whether its campaign was joined before.
    """

    campaigns: tuple[Totals, ...]
    of_request: tuple[str, int]
    joined: bool = False
    syntheses: tuple[Synthesis, ...] = ()

    def of(self, campaign: str) -> Totals:
        """Return the totals of a campaign; UsageError if there are none."""
        for each in self.campaigns:
            if each.offer.campaign == campaign:
                return each
        raise UsageError(f"the ledger has no campaign {campaign[:8]}")


@dataclass(frozen=True)
class Figure:
    """An (epsilon, delta) over campaigns and releases of synthetic rows.

    ``epsilon`` is infinite if more may fail than ``for_failing``, a part of delta. ``observer`` is
    ``server`` if it holds even against the server, else ``public``.
    """

    epsilon: float
    delta: float
    for_failing: float
    unit: str
    observer: str
    neighbours: str

    @property
    def why_none(self) -> str:
        """Why there is no figure; empty if there is one."""
        if math.isinf(self.epsilon):
            return (
                "the deltas of gated campaigns and of synthetic rows exceed the "
                f"{self.for_failing:g} that is set aside for them (failing_share): choose a "
                "campaign with a smaller delta, or a larger share"
            )
        return ""

    @property
    def in_words(self) -> str:
        """One line for people."""
        if self.why_none:
            return f"no figure at delta {self.delta:g}: {self.why_none}"
        return in_words(
            self.epsilon, self.delta, self.unit, self.observer, neighbours=self.neighbours
        )


def cumulative_epsilon(
    totals: Iterable[Totals], delta: Delta, syntheses: Iterable[Synthesis] = ()
) -> Figure:
    """Return the epsilon of all answers, one total a campaign, and all releases of synthetic rows."""
    counted = [each for each in totals if each.asked]
    rows = [each for each in syntheses if not each.free]
    offers = [each.offer.announced for each in counted]
    units: list[str] = [each.unit for each in offers]
    units.extend(filter(None, [unit_of(rows)]))
    unit = min(units, key=UNITS.index, default=UNITS[0])
    campaigns = _of_campaigns(counted, within=unit != "party")
    costs = [Spent.concentrated(each.rho, pure=each.epsilon, failing=each.delta) for each in rows]
    spent = sum((*campaigns, *costs), Spent())
    return Figure(
        epsilon=epsilon_of(spent, delta),
        delta=delta.whole,
        for_failing=float(delta.for_failing),
        unit=unit,
        neighbours=ADDED_OR_REMOVED[unit] if rows else _neighbours(unit, offers),
        # The party itself adds the noise of synthetic rows, so it holds against the server, too.
        observer=(
            "server" if units and all(each.sums.distributed for each in offers) else "public"
        ),
    )


def at_promised_delta(totals: Totals) -> Figure | None:
    """Return the epsilon of the answers to one campaign at the delta of its terms; None if that is 0.

    No part of delta is set aside here, but for a campaign that may fail outright with all of it.
    """
    offer = totals.offer
    if not offer.announced.delta:
        return None
    failing = Fraction(0 if _countable(offer) else 1)
    return cumulative_epsilon([totals], Delta(offer.announced.delta, failing))


def _neighbours(unit: str, offers: Sequence[Announced]) -> str:
    """Return the adjacency that all of these campaigns cover, in words.

    An altered record is covered if records vote, and if the unit is a party; not if teachers vote,
    since it may move to another shard, nor for patients, since it may move to another patient.
    """
    removed = next((each.code for each in offers if _is_removed(each)), NEAREST)
    voting = any(each.records_vote for each in offers) and all(
        each.unit == "party" or (each.unit == unit and each.records_vote) for each in offers
    )
    return neighbours_of(unit, records_vote=voting, code=removed)


def _is_removed(campaign: Announced) -> bool:
    """Whether a campaign's price is that of a unit that is added or removed with all its teachers."""
    return adjacency_for(code_of(campaign.code), campaign.unit) == "remove"


def cost_of(totals: Totals, composition: Composition) -> Fraction:
    """Return an upper bound on the cost of the answers to one campaign; AccountingError if it has none."""
    offer = totals.offer
    if offer.settled is None:
        raise AccountingError(f"the terms of campaign {offer.campaign[:8]} are not known")
    if offer.announced.sums.distributed:
        # Each unmasked batch shows the server its noisy sums, whatever the cap.
        return offer.whole_cost(composition, totals.asked)
    # The cap is in the campaign's own currency, and bounds rho in each: mu^2/2 does by definition, and
    # no divergence exceeds a pure epsilon.
    answers = offer.announced.rounds * min(totals.asked, offer.announced.queries)
    return min(offer.settled.cap, offer.whole_cost(composition, answers))


def _countable(offer: Offer) -> bool:
    settled = offer.settled
    return (
        settled is not None
        and settled.composition != Gate.name
        and all(_ZCDP.supports(event) for each in settled.mechanisms for event in each.worst)
    )


def _of_campaigns(counted: Iterable[Totals], *, within: bool) -> Iterable[Spent]:
    """Return the costs to add up: one of each series, and one of each campaign outside.

    ``within``: whether the unit is a part of a party.

    A unit has a part of its votes in each campaign of a series, and they are no more than the votes
    that one of them charges: the party's ledger sees to that (:mod:`party.ledger.series`).

    Source: docs/proofs/composition.md, section 8.
    """
    found: dict[tuple[bytes, str], Spent] = {}
    for each in counted:
        offer, spent = each.offer, _of_campaign(each, within=within)
        alone = offer.announced.series is None or not _countable(offer)
        name = (
            offer.key,
            f"campaign {offer.campaign}" if alone else f"series {offer.announced.series}",
        )
        found[name] = found[name].or_more(spent) if name in found else spent
    return found.values()


def _of_campaign(totals: Totals, *, within: bool) -> Spent:
    offer = totals.offer
    steps = 2 if within and _is_removed(offer.announced) else 1
    if not _countable(offer):
        epsilon, delta = Fraction(offer.announced.epsilon), Fraction(offer.announced.delta)
        if steps == 2:  # of both together delta is at most that of one times 1 + exp(epsilon)
            delta *= 1 + Fraction(
                math.nextafter(math.exp(min(offer.announced.epsilon, 700)), math.inf)
            )
        return Spent.promised(steps * epsilon, min(delta, Fraction(1)))
    composition = offer.require_settled().composition
    # Of Gaussian noise the cost is the square of the distance.
    return Spent.concentrated(
        steps**2 * cost_of(totals, _ZCDP),
        gaussian=steps**2 * cost_of(totals, _GDP) if composition == Gdp.name else None,
        pure=cost_of(totals, _PURE) if composition == Pure.name else None,
    )


# --- the bound of a home --------------------------------------------------------------------------
# A privacy filter needs a bound that is fixed *in advance*. So the site's bound is written into its
# ledger before anything leaves under it, and so is each change.
# The joint guarantee of successive bounds: docs/proofs/composition.md, section 7.


@dataclass(frozen=True)
class Bound(Step["HasBounds"]):
    """A site's bound on everything that leaves its home, and the entry that records it.

    ``epsilon`` None is no bound; ``rules`` is the version of the list of filters.
    """

    kind = "bound"
    epsilon: float | None
    delta: Delta
    rules: int = RULES

    def __post_init__(self) -> None:
        if self.epsilon is not None and not (
            type(self.epsilon) is float and 0 < self.epsilon < math.inf
        ):
            raise ProtocolError(f"a bound must be a number above 0, got {self.epsilon!r:.40}")
        if type(self.rules) is not int or self.rules < 1:
            raise ProtocolError(f"unknown version {self.rules!r:.40} of the list of filters")

    def body(self) -> dict[str, Json]:
        """Return its form in the ledger; numbers are exact, as text."""
        return {
            "epsilon": None if self.epsilon is None else repr(self.epsilon),
            "delta": repr(self.delta.whole),
            "failing": str(self.delta.failing),
            "rules": self.rules,
        }

    @classmethod
    def of_body(cls, fields: Mapping[str, Any]) -> Bound:
        """Return what :meth:`body` made."""
        try:
            made = cls(
                epsilon=None if fields["epsilon"] is None else float(fields["epsilon"]),
                delta=Delta(float(fields["delta"]), fraction_from_text(fields["failing"])),
                rules=fields["rules"],
            )
        except (KeyError, TypeError, ValueError, AccountingError, ProtocolError) as error:
            raise LedgerError(f"not a bound of the party's accountant: {error}") from error
        if made.body() != dict(fields):
            raise LedgerError("not a bound of the party's accountant: it has another text")
        return made

    def follow(self, state: HasBounds, at: Entry) -> HasBounds:
        """Set a bound that was not in force."""
        del at
        if not self.changes(state.bounds):
            raise LedgerError("a bound of the party's accountant that was already in force")
        state.bounds = (*state.bounds, self)
        return state

    def changes(self, earlier: Sequence[Bound]) -> bool:
        """Return whether it differs from the one in force, the last one."""
        return self != earlier[-1] if earlier else self.epsilon is not None

    @property
    def in_words(self) -> str:
        """One line for people."""
        if self.epsilon is None:
            return "no bound"
        failing = float(self.delta.for_failing)
        return (
            f"epsilon {rounded_up(self.epsilon)} at delta {delta_rounded_up(self.delta.whole)}, of which "
            f"{failing:g} is for campaigns and releases that may fail outright; towards the public, of "
            "the unit and between the neighbours that each campaign states"
        )


class HasBounds(Protocol):
    """The part of a ledger's state that is about bounds: those so far."""

    bounds: tuple[Bound, ...]


def together(bounds: Iterable[Bound]) -> str:
    """Return the joint guarantee of successive bounds, in words.

    The largest epsilon, at the sum of the deltas of those with different filters: only raising or
    lowering a bound costs no further delta.
    """
    given = tuple(bounds)
    largest = [each.epsilon for each in given]
    finite = [each for each in largest if each is not None]
    if not finite or len(finite) < len(largest):
        return "nothing, as there was no bound at one time"
    deltas = sum(Fraction(one.whole) for one, _ in {(each.delta, each.rules) for each in given})
    return f"epsilon {rounded_up(max(finite))} at delta {delta_rounded_up(float(deltas))}"
