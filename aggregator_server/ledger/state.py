"""The state of a campaign, the result of replaying its ledger."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, cast

from aggregator_server.ledger.label_table import Answered, Labels, ReleasedLabel, Source
from pate.accounting.composition import total_cost
from pate.campaign.offer import Settled
from pate.campaign.order import VotedRows
from pate.campaign.roster import Member
from pate.errors import LedgerError, StateError
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.mechanisms import rounds_cost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.accounting.composition import Composition
    from pate.accounting.events import Charged
    from pate.campaign.choices import CompositionName
    from pate.campaign.roster import RosterParty
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Mechanism
    from pate.rounds.model import RoundModel
    from pate.storage.hash_chain import Head

#: Relative difference that bisection leaves, and that parties allow.
_LEFT: Final = 1e-9
Phase = Literal["gathering", "voting", "labelling", "predicting", "finished"]
__all__ = [
    "CampaignState",
    "Charge",
    "Phase",
    "PredictionRecord",
    "ReleasedLabel",
    "Source",
    "SumUnmasking",
    "VoteBatch",
]


@dataclass(frozen=True)
class SumUnmasking:
    """The survivors of a masked sum, recorded before any party is asked to unmask it.

    A party gives its shares for only one list of survivors, ever. ``first`` is the place of the
    batch's first query among those that are voted on, of which ``count`` are consecutive.
    """

    first: int
    count: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class VoteBatch:
    """The chain's record of one batch of summed votes, with a hiding commitment to the counts.

    ``teachers`` is how many voted, the sum of each row; for neighbour votes, the most that one
    count can be.
    """

    first: int
    count: int
    teachers: int
    responders: tuple[str, ...]
    digest: str
    entry: int


@dataclass(frozen=True)
class PredictionRecord:
    """The chain's record of the student's predictions for a round."""

    digest: str
    entry: int


@dataclass(frozen=True)
class Charge:
    """A durable charge: the right to draw noise once for each of its queries.

    ``events`` are possible ones of each query, in order, of which a prefix occurs; or the one gated
    batch or matrix. ``cost`` is their worst, together, in the campaign's composition.
    """

    entry: int
    round: int
    queries: tuple[int, ...]
    events: tuple[Charged, ...]
    cost: Fraction


@dataclass(frozen=True)
class CampaignState:
    """The state of a campaign as of one entry of its ledger."""

    spec: CampaignSpec
    head: Head
    # the current one; ``labelling`` after the last round until the close
    phase: Phase = "gathering"
    round: int = 1
    roster: tuple[RosterParty, ...] = ()
    classes: tuple[str, ...] = ()
    # that of the first round, and with interactive that of all later ones
    mechanisms: tuple[Mechanism, ...] = ()
    composition: Composition | None = None
    cap: Fraction = Fraction(0)  # the budget in it, fixed with the roster; 0 while gathering
    spent: Fraction = Fraction(0)  # charged so far, interrupted charges included
    wasted: Fraction = Fraction(0)  # the part of ``spent`` for charges without answers
    voted: VotedRows = field(default_factory=VotedRows)
    # unmaskings of masked sums, ordered by first query; all with the same survivors, in rounds with
    # no more than the one before
    openings: tuple[SumUnmasking, ...] = ()
    batches: tuple[VoteBatch, ...] = ()
    labels: Labels = field(default_factory=Labels)
    # by round, the queries that got a label or no answer in it
    answered: Mapping[int, Answered] = field(default_factory=dict)
    predictions: Mapping[int, PredictionRecord] = field(default_factory=dict)
    # where records vote in rounds, those of round 2 and later, and then the final one; public
    models: tuple[RoundModel, ...] = ()
    open_charge: Charge | None = None  # the last charge, while its release is possible
    # whether the gate of a gated batch opened; None before it was tried
    gate: Literal["open", "closed"] | None = None
    # the noisy counts of matrices, one for each round, which are public
    released: tuple[NoisyVotes, ...] = ()
    rounds_over: bool = False

    @property
    def noisy(self) -> NoisyVotes | None:
        """The noisy counts of a matrix, in rounds of all that are released, with models; None before."""
        if not self.released or not self.spec.in_rounds:
            return self.released[-1] if self.released else None
        shown: tuple[RoundModel | None, ...] = (None, *self.models)
        *earlier, last = (
            RoundCounts(each.counts, each.sigma, model)
            for each, model in zip(self.released, shown, strict=False)
        )
        model = self.models[len(earlier)] if len(self.models) > len(earlier) else None
        if model is None and self.phase == "finished" and self.models:  # closed before it was made
            model = self.models[-1]
        return replace(self.released[-1], shown=last.shown, earlier=tuple(earlier), model=model)

    @property
    def left(self) -> Fraction:
        """The remaining budget."""
        return self.cap - self.spent

    @property
    def teachers(self) -> int:
        """M, the number of teachers of the whole roster; 0 where records vote."""
        if self.spec.records_vote:
            return 0
        return sum(party.teachers for party in self.roster)

    @property
    def settled(self) -> Settled:
        """What parties see of the roster and of what follows from it."""
        found = [Member(each.name, each.identity, each.teachers) for each in self.roster]
        return Settled(
            roster=tuple(sorted(found, key=lambda each: each.name)),
            mechanisms=self.mechanisms,
            composition=cast("CompositionName", self.currency.name),
            cap=self.cap,
            gate=self.spec.gate,
        )

    @property
    def currency(self) -> Composition:
        """How costs add up; StateError before the roster is complete."""
        if self.composition is None:
            raise StateError("the roster is not complete: how costs add up is not known yet")
        return self.composition

    @property
    def epsilon(self) -> float:
        """The guarantee: epsilon of the budget at the campaign's delta; 0 before the roster.

        A cap of the whole stated epsilon converts to a little less, by bisection: it says 8, not
        7.999999999995904.
        """
        if self.composition is None:
            return 0.0
        exact, stated = self.epsilon_of(self.cap), self.spec.epsilon
        return stated if stated * (1 - _LEFT) <= exact <= stated else exact

    def epsilon_of(self, cost: Fraction) -> float:
        """Return the epsilon of a cost at the campaign's delta."""
        return self.currency.epsilon(cost, self.spec.delta)

    @property
    def limit(self) -> Fraction:
        """The largest total spending by the end of the current round."""
        if self.spec.in_rounds and self.mechanisms:
            return rounds_cost(self.currency, self.mechanisms, self.round)
        if self.round == 1 and self.spec.rounds > 1:
            return self.cap * self.spec.first_round_share
        return self.cap

    @property
    def queries_asked(self) -> int:
        """Queries that were answered, by a label or by no answer; twice if in two rounds."""
        return sum(len(queries) for queries in self.answered.values())

    @property
    def queries_left(self) -> int | None:
        """How many more queries the campaign may answer, None without a bound."""
        most = self.spec.max_queries
        return None if most is None else most - self.queries_asked

    @property
    def places(self) -> range:
        """The places among those that are voted on whose votes may be asked for now."""
        if self.spec.in_rounds:
            return self.voted.of_round(self.round)
        return range(len(self.voted))

    def round_of(self, place: int) -> int:
        """Return the round that a place is voted on in, from 1; that of labels may be a later one."""
        return place // len(self.voted.rows) + 1 if self.spec.in_rounds else 1

    @property
    def missing_votes(self) -> tuple[range, ...]:
        """The queries without votes, as ranges of places among those that may be asked for now.

        A batch whose unmasking has begun is a separate range: it is asked for again unchanged.
        """
        held = {batch.first for batch in self.batches}
        gaps: list[range] = []
        at = 0
        places = {(batch.first, batch.count) for batch in self.batches}
        places |= {(opening.first, opening.count) for opening in self.openings}
        for first, count in sorted(places):
            gaps.append(range(at, first))
            at = first + count
            if first not in held:
                gaps.append(range(first, at))
        gaps.append(range(at, self.places.stop))
        return tuple(gap for gap in gaps if gap)

    @property
    def survivors(self) -> tuple[str, ...] | None:
        """The parties of every further masked sum, in rounds at most; None before the first unmasking."""
        return self.openings[-1].survivors if self.openings else None

    def survivors_needed(self, first: int) -> bool:
        """Return whether a sum needs all survivors; of a round only if its unmasking has begun.

        Each round has noise of its own, by fewer parties too, and other votes on other queries.
        """
        begun = any(each.first == first for each in self.openings)
        return begun or (bool(self.openings) and not self.spec.in_rounds)

    def batch_of(self, query: int) -> VoteBatch:
        """Return the batch of votes that ``query`` is in; where records vote in rounds, of this round."""
        place = self.voted.place_of(query)
        if place is None:
            raise LedgerError(f"query {query} is not voted on")
        place += self.places.start
        at = bisect_right(self.batches, place, key=lambda batch: batch.first) - 1
        if at < 0 or place >= self.batches[at].first + self.batches[at].count:
            raise LedgerError(f"query {query} has no votes in the ledger")
        return self.batches[at]

    def charged(self, queries: int) -> tuple[tuple[Charged, ...], Fraction]:
        """Return the events and cost of a charge for ``queries`` queries of the current round.

        For single queries, the events of each and the cost of all; or the gated batch, or the one
        event of a matrix.
        """
        if self.spec.gate is not None:
            return (self.spec.gate,), self.currency.cost(self.spec.gate)
        events = self.mechanism(self.round).worst
        if self.spec.one_release:
            return events, total_cost(self.currency, events)
        return events, total_cost(self.currency, events) * queries

    def without_charge(self) -> CampaignState:
        """Return the state in which the open charge, if there is one, has no release: it stays spent."""
        if self.open_charge is None:
            return self
        return replace(self, wasted=self.wasted + self.open_charge.cost, open_charge=None)

    def mechanism(self, round_: int) -> Mechanism:
        """Return the mechanism of a round, from 1."""
        if not self.mechanisms:
            raise StateError("the roster is not complete: the mechanism is not known yet")
        if not 1 <= round_ <= self.spec.rounds:
            raise LedgerError(f"there is no round {round_} of {self.spec.rounds}")
        return self.mechanisms[min(round_, len(self.mechanisms)) - 1]
