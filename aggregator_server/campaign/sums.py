"""The sums of a campaign's votes: batch by batch, each in the ledger before the next one begins.

A batch is a contiguous range of the queries that are voted on, so that memory is bounded. Its end depends
only on public numbers, by one rule for every campaign: never on votes, nor on who is connected.
docs/architecture.md explains why the same parties are in the sum of every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aggregator_server.campaign.neighbour import Models
from aggregator_server.exchange.aggregation import Batch, MaskedAggregation, PlainAggregation
from aggregator_server.exchange.ahead import SumsAhead
from aggregator_server.exchange.exchange import Quorum
from pate.campaign.order import query_of_round
from pate.codes import code_of
from pate.data.values import batch_hash
from pate.errors import ProtocolError, QuorumError, UsageError
from pate.printable import listed, number_of
from pate.runtime.failpoints import reach

if TYPE_CHECKING:
    from aggregator_server.exchange.aggregation import Sum
    from aggregator_server.exchange.ahead import AheadAggregation
    from aggregator_server.exchange.by_envelope import KnownKeys
    from aggregator_server.exchange.exchange import Exchange
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.state import CampaignState
    from pate.data.values import Inputs
    from pate.runtime.screen import Screen
    from protos.pate.v1 import vote_pb2

    _Aggregation = PlainAggregation | MaskedAggregation | AheadAggregation

#: Attempts at a masked sum with too few parties left: restarted parties can take part in the next
#: one.
_ATTEMPTS: Final = 3
#: Counts of one batch, queries times classes: at most half a MiB, for example 13,107 queries of 10
#: classes. Each batch costs its own keys and round trips, and needs all parties of the first one,
#: so smaller ones would be no better.
BATCH_COUNTS: Final = 2**17


def next_places(state: CampaignState, most: int = BATCH_COUNTS) -> range | None:
    """Return the places of the next queries to vote on; None if all have votes."""
    # A batch whose unmasking has begun is asked for again unchanged. One release is one matrix a round.
    gap = next(iter(state.missing_votes), None)
    if gap is None or state.spec.one_release:
        return gap
    if any((each.first, each.count) == (gap.start, len(gap)) for each in state.openings):
        return gap
    return gap[: max(1, most // len(state.classes))]


def batch_at(state: CampaignState, inputs: Inputs, places: range, shown: bytes = b"") -> Batch:
    """Return the batch of the queries at ``places``; ``shown``: bytes of the model of a round."""
    rows = state.voted.at(places)
    hashes = inputs.take(rows).row_hashes()
    if not state.spec.in_rounds:
        return Batch(rows, batch_hash(hashes))
    hashes = [query_of_round(each, state.round, shown) for each in hashes]
    return Batch(rows, batch_hash(hashes), state.round, shown)


def check_apart(state: CampaignState, inputs: Inputs, most: int = BATCH_COUNTS) -> None:
    """Check before the first batch that no query is in two, if votes contain the parties' noise."""
    # Two noisy sums of the same votes are less private than one, so no party unmasks a second.
    if not state.spec.sums.distributed or state.spec.one_release or state.openings:
        return
    size = max(1, most // len(state.classes))
    if len(state.voted) <= size:
        return
    found: dict[bytes, int] = {}
    for first in range(0, len(state.voted), size):
        rows = state.voted.rows[first : first + size]
        for row, each in zip(rows, inputs.take(rows).row_hashes(), strict=True):
            batch, same = found.setdefault(each, first), row
            if batch != first:
                raise UsageError(
                    f"input {same} of the public set is repeated, and this campaign asks for "
                    "its queries in several batches, each with its own noise: no party votes "
                    "on a query twice; remove the duplicates"
                )


class Sums:
    """Collects the votes that are missing in a ledger; with parties by envelope, keys come ahead."""

    def __init__(
        self,
        ledger: Ledger,
        inputs: Inputs,
        exchange: Exchange,
        screen: Screen,
        *,
        patience: float,  # seconds to wait for the last parties once enough have voted
        batch: int = BATCH_COUNTS,  # counts of one batch of votes, queries times classes
        keys: KnownKeys | None = None,  # sealing keys that are known before a description
    ) -> None:
        self.exchange = exchange
        self._ledger = ledger
        self._inputs = inputs
        self._screen = screen
        self._patience = patience
        self._batch = batch
        self._store = exchange.carrier.store
        self._ahead: SumsAhead | None = None
        spec = ledger.state().spec
        if self._store is not None:
            rounds = spec.rounds if spec.in_rounds else 1
            self._ahead = SumsAhead(exchange, self._store, keys, rounds)

    @property
    def early(self) -> vote_pb2.AskBundles | None:
        """What parties by envelope are asked together with their description; None: nothing."""
        return None if self._ahead is None else self._ahead.early

    def collect(self) -> None:
        """Collect and record the votes of all queries of the present round that have none."""
        state = self._ledger.state()
        check_apart(state, self._inputs, self._batch)
        shown = b""
        if state.spec.in_rounds:
            shown = Models(self._inputs, self._ledger).shown()
        while (places := next_places(state, self._batch)) is not None:
            self.keep_replies(places.start)
            batch = batch_at(state, self._inputs, places, shown)
            try:
                found = self._sum(places.start, batch)
            except QuorumError as error:
                if not state.models:
                    raise
                done = len(state.models)
                raise QuorumError(
                    f"{error}; `pate-server resume --close` ends the campaign with the model of the "
                    f"{number_of(done, 'round that was', 'rounds that were')} released"
                ) from error
            reach("votes-arrived")
            state = self._ledger.record_votes(places.start, found.total, found.responders)
            reach("votes-recorded")
            whose = f"from {listed(found.responders)}"
            if state.spec.in_rounds:
                self._screen.say(f"round {state.round} of {state.spec.rounds}: votes {whose}")
                continue
            done, all_ = sum(each.count for each in state.batches), len(state.voted)
            more = "" if len(batch.rows) == all_ else f"; {done} of {all_} have votes now"
            code = code_of(state.spec.code)
            where = f"{'in' if code.in_directions else 'on'} {code.asked_in_words(len(batch.rows))}"
            self._screen.say(f"votes {where} {whose}{more}")

    def keep_replies(self, place: int | None) -> None:
        """Delete the stored replies to other sums than the one of this place, None: to all."""
        if self._store is not None:
            self._store.begin_sum(place)
            reach("replies-deleted")

    def _sum(self, place: int, batch: Batch) -> Sum:
        """Return the summed votes on a batch; a failed masked sum is repeated."""
        for attempt in range(1, _ATTEMPTS + 1):
            aggregation = self._begin(place, batch)
            try:
                return self.exchange.collect(aggregation, self._quorum(place))
            except QuorumError as error:
                if isinstance(aggregation, MaskedAggregation):
                    self._require_willing(aggregation, place, error)
                elif self._ahead is not None and not isinstance(aggregation, PlainAggregation):
                    self._ahead.give_up(aggregation, place)
                    raise
                if aggregation.first or attempt == _ATTEMPTS:
                    raise
                self._screen.say(
                    f"the masked sum failed and nothing was revealed: {error.what}; it is tried again"
                )
            except ProtocolError as error:
                raise ProtocolError(
                    f"the votes on {len(batch.rows)} queries could not be summed; nothing was "
                    f"released: {error}"
                ) from error
        raise QuorumError(f"{_ATTEMPTS} attempts at a masked sum failed")

    def _quorum(self, place: int) -> Quorum:
        """Return who is waited for: with keys ahead, all of those that the sum needs."""
        state = self._ledger.state()
        least = state.spec.sums.min_parties
        if self._ahead is not None and state.survivors_needed(place):
            least = len(state.survivors or ())
        return Quorum(least, self._patience, ends=bool(state.models))

    def _begin(self, place: int, batch: Batch) -> _Aggregation:
        state, campaign = self._ledger.state(), self.exchange.campaign
        if not state.spec.sums.masked:
            return PlainAggregation(campaign, state.roster, batch, state.spec.sums.min_parties)

        def list_unmasking(survivors: tuple[str, ...]) -> None:
            self._ledger.record_unmasking(place, len(batch.rows), survivors)
            reach("opening-listed")

        only, all_needed = state.survivors, state.survivors_needed(place)
        if self._ahead is not None:
            return self._ahead.begin(
                state.roster, place, batch, self._quorum(place),
                only=only, all_needed=all_needed, before_opening=list_unmasking,
            )  # fmt: skip
        return MaskedAggregation(
            campaign, state.roster, batch,
            only=only, all_needed=all_needed, before_opening=list_unmasking,
        )  # fmt: skip

    def _require_willing(
        self, aggregation: MaskedAggregation, place: int, error: QuorumError
    ) -> None:
        """Check that a sum whose unmasking has begun can still be completed."""
        state, refused = self._ledger.state(), self.exchange.refused
        fixed = state.survivors
        needed = len(aggregation.needed) or state.spec.sums.min_parties
        if (
            fixed is None
            or not state.survivors_needed(place)
            or len(set(fixed) - refused) >= needed
        ):
            return
        raise QuorumError(
            f"{listed(sorted(refused & set(fixed)))} refused a sum of {listed(fixed)}, so these "
            "queries cannot be completed in this campaign: some parties may already have "
            "unmasked this sum and will not unmask another, since the difference of the two "
            "would reveal votes (if the cause of the refusal can be removed there, run "
            "`pate-server resume`)"
        ) from error
