"""Masked sums by envelope: keys come ahead in bundles, and the state of each round is durable."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

from aggregator_server.exchange.ahead import AheadAggregation, BundleSteps, bundle_roster
from pate.errors import ProtocolError, QuorumError
from protos import ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.exchange.aggregation import Batch
    from aggregator_server.exchange.by_envelope import KnownKeys
    from aggregator_server.exchange.exchange import Exchange, Quorum
    from aggregator_server.exchange.store import Store
    from pate.campaign.roster import RosterParty
    from protos.pate.v1 import vote_pb2


class SumsAhead:
    """Begins the rounds of a campaign, and continues those that were begun.

    The bundles of ``sums`` sums, one after the other, are asked for together.
    """

    def __init__(
        self, exchange: Exchange, store: Store, keys: KnownKeys | None = None, sums: int = 1
    ) -> None:
        self._exchange = exchange
        self._store = store
        self._keys = keys
        self._block = min(sums, ahead.MOST_BUNDLES)
        # A bundle is used once in all campaigns of its roster: each campaign has numbers of its own. Two
        # campaigns that meet by chance are refused by the parties.
        campaign = hashlib.sha256(bytes.fromhex(exchange.campaign.campaign)).digest()
        self._first = int.from_bytes(campaign[:3]) << 8

    @property
    def early(self) -> vote_pb2.AskBundles | None:
        """The request for the bundles of the first sums, to be sent with that for a description.

        It is the same request that the round begins with, so its reply is there then; if a party has
        another sealing key by then that is another request, and all parties are asked again.
        """
        roster = None if self._keys is None else self._keys.roster
        return None if roster is None else ahead.roster_to_wire(roster, self._first, self._block)

    def begin(
        self,
        roster: Sequence[RosterParty],
        place: int,
        batch: Batch,
        quorum: Quorum,
        *,
        only: Sequence[str] | None,
        all_needed: bool,
        before_opening: Callable[[tuple[str, ...]], None],
    ) -> AheadAggregation:
        """Return the round of the batch at a place: the one that was begun, or one with new bundles.

        The sum is of the parties ``only``, or all; ``all_needed``: each of them must be in it. For the last
        argument see :class:`~aggregator_server.exchange.aggregation.MaskedSteps`.
        """
        campaign = self._exchange.campaign
        number, state = self._store.round(place)
        save = partial(self._store.save_round, number)
        if state is not None:
            return AheadAggregation.restore(
                campaign, roster, state, save=save, before_opening=before_opening
            )
        names = {each.name: bytes.fromhex(each.identity) for each in roster}
        sealed = bundle_roster(campaign, self._exchange.sealing_keys(names), names)
        if self._keys is not None:
            self._keys.learn(sealed)
        start = self._first + number - number % self._block
        block = range(start, start + self._block)
        steps = BundleSteps(sealed, self._first + number, quorum.least, only, block)
        try:
            self._exchange.go_through(steps, quorum)
            return AheadAggregation.begin(
                campaign, roster, batch, sealed=sealed, bundles=steps.bundles,
                all_needed=all_needed, save=save, before_opening=before_opening,
            )  # fmt: skip
        except (QuorumError, ProtocolError):
            self._store.end_round(place)  # the next one has other bundles
            raise

    def give_up(self, aggregation: AheadAggregation, place: int) -> None:
        """Forget a round that cannot be completed, unless parties were sent its list of survivors.

        They may have unmasked that sum, and unmask no other one.
        """
        if not aggregation.survivors:
            self._store.end_round(place)
