"""Masked sums by envelope: keys come ahead in bundles, and the state of each round is durable."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from aggregator_server.exchange.ahead import AheadAggregation, bundle_roster
from aggregator_server.exchange.bundles import BundleSteps
from pate.errors import ProtocolError, QuorumError
from protos import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.envelopes.known_keys import KnownKeys
    from aggregator_server.envelopes.store import Store
    from aggregator_server.exchange.aggregation import Batch
    from aggregator_server.exchange.exchange import Exchange
    from pate.campaign.roster import RosterParty
    from protos.pate.v1 import vote_pb2


class SumsAhead:
    """Begins the rounds of a campaign, and continues those that were begun.

    Args:
        store: of the campaign's envelopes.
        campaign: its id, hex.
        keys: sealing keys that are known before a party has described itself; None: none are.
        sums: how many there are at least, one after the other: their bundles are asked for together.
    """

    def __init__(
        self, store: Store, campaign: str, keys: KnownKeys | None = None, sums: int = 1
    ) -> None:
        self._store = store
        self._block = min(sums, ahead.MOST_BUNDLES)
        self._keys = keys
        # A bundle is used once in all campaigns of its roster: each campaign has numbers of its own. Two
        # campaigns that meet by chance are refused by the parties.
        self._first = int.from_bytes(hashlib.sha256(bytes.fromhex(campaign)).digest()[:3]) << 8

    @property
    def early(self) -> vote_pb2.AskBundles | None:
        """The request for the bundles of the first sums, to be sent with that for a description.

        It is the same request that the round begins with, so its reply is there then; if a party has
        another sealing key by then that is another request, and all parties are asked again.
        """
        roster = None if self._keys is None else self._keys.roster
        return None if roster is None else ahead.roster_to_wire(roster, self._first, self._block)

    def aggregation(
        self,
        exchange: Exchange,
        roster: Sequence[RosterParty],
        first: int,
        batch: Batch,
        *,
        least: int,
        only: Sequence[str] | None,
        all_needed: bool,
        collect: Callable[[BundleSteps], None],
        before_opening: Callable[[tuple[str, ...]], None],
    ) -> AheadAggregation:
        """Return the round of a batch: the one that was begun, or a new one with new bundles.

        Args:
            exchange: with the parties.
            roster: of the campaign.
            first: place of the batch's first query.
            batch: to be voted on.
            least: number of parties that a sum needs.
            only: names of the parties that may be in the sum; None: all.
            all_needed: whether all of these must be.
            collect: takes the parties through a step.
            before_opening: see :meth:`AheadAggregation.begin`.

        Raises:
            ProtocolError, QuorumError: if there can be no such round.
        """
        number, state = self._store.round(first)
        save = partial(self._store.save_round, number)
        if state is not None:
            return AheadAggregation.restore(
                exchange.campaign, roster, state, save=save, before_opening=before_opening
            )
        names = {each.name: bytes.fromhex(each.identity) for each in roster}
        sealed = bundle_roster(exchange.campaign, exchange.sealing_keys(names), names)
        if self._keys is not None:
            self._keys.learn(sealed)
        start = self._first + number - number % self._block
        block = range(start, start + self._block)
        steps = BundleSteps(sealed, self._first + number, least, only, block)
        try:
            collect(steps)
            return AheadAggregation.begin(
                exchange.campaign, roster, batch, sealed=sealed, bundles=steps.bundles,
                all_needed=all_needed, save=save, before_opening=before_opening,
            )  # fmt: skip
        except (QuorumError, ProtocolError):
            self._store.end_round(first)  # the next one has other bundles
            raise

    def give_up(self, aggregation: AheadAggregation, first: int) -> bool:
        """Forget a round that cannot be completed; return whether another one may begin.

        It may not once parties were sent their list: they may have unmasked that sum.
        """
        if aggregation.survivors:
            return False
        self._store.end_round(first)
        return True
