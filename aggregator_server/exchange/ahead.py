"""Aggregation of one batch whose keys come ahead, in bundles: two steps, or three with consent.

Bundles are collected in a step of their own. The state of a sum can be stored whenever it changes, and
read by another process: a server that was killed continues with the same round, the same bytes and the
same list of survivors.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from aggregator_server.exchange.aggregation import Batch, MaskedSteps, OneStep, batch_to_wire
from pate.errors import ProtocolError, QuorumError, StateError
from pate.masking.ahead.bundle import BundleRoster, Sealed
from pate.masking.ahead.server import ServerAhead
from pate.masking.context import Member, Phase
from pate.masking.encoding import decode, encode
from protos import ahead, masked, wire
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aggregator_server.exchange.by_envelope import KnownKeys
    from aggregator_server.exchange.exchange import Exchange, Quorum
    from aggregator_server.exchange.store import Store
    from pate.campaign.offer import Offer
    from pate.campaign.roster import RosterParty

_STATE: Final = "aggregation ahead"


def bundle_roster(
    campaign: Offer,
    sealing: Mapping[bytes, vote_pb2.SealingKey],  # the parties' sealing keys, by identity
    names: Mapping[str, bytes],
) -> BundleRoster:
    """Return the roster that bundles are made for."""
    for name, identity in names.items():
        if identity not in sealing:
            raise ProtocolError(f"{name} gave no sealing key: it makes no bundles")
    return BundleRoster(
        tuple(
            Sealed(
                Member(name, names[name]), sealing[names[name]].key, sealing[names[name]].signature
            )
            for name in sorted(names)
        ),
        campaign.announced.sums.min_parties,
        campaign.announced.sums.colluders,
    )


class BundleSteps(OneStep):
    """One step: every party sends a bundle of a number, and those of later sums."""

    def __init__(
        self,
        sealed: BundleRoster,  # the roster that the bundles are made for
        number: int,
        least: int,  # number of parties that the sum needs
        only: Sequence[str] | None = None,  # names of the parties that may be in it; None: all
        # bundles that are asked for together; the same request asks for each of them
        block: range | None = None,
    ) -> None:
        block = range(number, number + 1) if block is None else block
        self._asked = ahead.roster_to_wire(sealed, block.start, len(block))
        self._at = number - block.start
        roster = frozenset(each.member.name for each in sealed.parties)
        may = roster if only is None else roster & frozenset(only)
        super().__init__("ask_bundles", may, least, "sent keys ahead")
        self.bundles: dict[str, vote_pb2.Bundle] = {}  # of the parties that answered, by name

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return the request for bundles."""
        del name  # the same for all
        return vote_pb2.PartyRequest(ask_bundles=self._asked)

    def take(self, party: RosterParty, reply: vote_pb2.Reply) -> None:
        """Take a party's bundle; its signature and boxes are checked when a round begins with it."""
        if not reply.bundles.bundles:
            raise ProtocolError(
                f"{party.name} has another sealing key now than the one that it described"
            )
        ahead.check_bundles(reply.bundles, self._asked)
        self.bundles[party.name] = reply.bundles.bundles[self._at]
        self.answered |= {party.name}


class AheadAggregation(MaskedSteps[vote_pb2.AskMaskedAhead, ServerAhead]):
    """A masked sum with one bundle of each party that takes part; see :meth:`begin`, :meth:`restore`."""

    _ending = "_ahead"
    _listed = (Phase.CONSISTENCY, Phase.UNMASK, Phase.DONE)
    #: A party that restarts has all that it needs on disk: it may join any step.
    first: ClassVar[bool] = True

    def __init__(
        self,
        campaign: Offer,
        roster: Sequence[RosterParty],
        asked: vote_pb2.AskMaskedAhead,
        masking: ServerAhead,
        before_opening: Callable[[tuple[str, ...]], None],
        save: Callable[[bytes], None],
        boxes: Mapping[str, Mapping[str, bytes]],
        *,
        all_needed: bool,
    ) -> None:
        self._save = save
        self._boxes = boxes
        everybody = tuple(masking.round.bundles) if all_needed else ()
        super().__init__(campaign, roster, asked, masking, before_opening, everybody)

    @classmethod
    def begin(
        cls,
        campaign: Offer,
        roster: Sequence[RosterParty],
        batch: Batch,
        *,
        sealed: BundleRoster,  # the roster that the bundles are made for
        # an unused one of each party that takes part, by name, with its boxes
        bundles: Mapping[str, vote_pb2.Bundle],
        # whether all of these must be in the sum: an earlier one of the campaign was unmasked with
        # them, and parties unmask no other
        all_needed: bool = False,
        # called with the whole state after each change of it, before anything that follows from it
        # can be sent. If it raises nothing is
        save: Callable[[bytes], None] = lambda _: None,
        # called with the names of the parties in the sum, in the order of the roster, once they are
        # fixed and before any party is sent their list. If it raises none is
        before_opening: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> AheadAggregation:
        """Begin a sum. Its bundles are spent from here on, whatever becomes of it."""
        asked = vote_pb2.AskMaskedAhead(
            attempt=wire.new_id(),
            batch=batch_to_wire(batch),
            roster=sealed.digest,
            bundles=[
                vote_pb2.PeerBundle(
                    party=name, number=bundles[name].number, keys=bundles[name].keys
                )
                for name in sorted(bundles)
            ],
        )
        boxes = {name: masked.boxes_from_wire(each.boxes) for name, each in bundles.items()}
        masking = ServerAhead(ahead.round_of(campaign, asked, sealed))
        made = cls(
            campaign, roster, asked, masking, before_opening, save, boxes, all_needed=all_needed
        )
        made._commit()
        return made

    def _fill(self, asked: Any, name: str) -> None:
        masking = self._masking
        if masking.phase is Phase.MASKED:
            for each in asked.bundles:
                if each.party != name:
                    each.box = self._boxes[each.party].get(name, b"")
            return
        asked.masked.extend(masked.signatures_to_wire(masking.masked))
        if masking.phase is Phase.UNMASK:
            asked.consents.extend(masked.signatures_to_wire(masking.consents))

    def _take(self, name: str, reply: vote_pb2.Reply) -> None:
        ahead.check_masked_ahead(reply.masked_ahead)
        given = reply.masked_ahead
        self._masking.take_masked(name, given.packed, given.signature)

    def _commit(self) -> None:
        self._save(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the state, for :meth:`restore`."""
        boxes = (
            vote_pb2.Boxes(boxes=masked.boxes_to_wire(self._boxes[each.party]))
            for each in self._opens.bundles
        )
        return encode(
            _STATE,
            self._masking.round.roster.to_bytes(),
            self._opens.SerializeToString(deterministic=True),
            self._masking.to_bytes(),
            bytes([bool(self._everybody)]),
            *(each.SerializeToString(deterministic=True) for each in boxes),
        )

    @classmethod
    def restore(
        cls,
        campaign: Offer,
        roster: Sequence[RosterParty],
        raw: bytes,
        *,
        save: Callable[[bytes], None] = lambda _: None,
        before_opening: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> AheadAggregation:
        """Return the aggregation whose state :meth:`to_bytes` wrote."""
        sealed, stored, state, all_needed, *rest = decode(_STATE, raw)
        asked = vote_pb2.AskMaskedAhead.FromString(stored)
        if len(rest) != len(asked.bundles):
            raise StateError("the stored state of a sum is damaged")
        boxes = {
            each.party: masked.boxes_from_wire(vote_pb2.Boxes.FromString(sealed_boxes).boxes)
            for each, sealed_boxes in zip(asked.bundles, rest, strict=True)
        }
        round_ = ahead.round_of(campaign, asked, BundleRoster.from_bytes(sealed))
        masking = ServerAhead.restore(round_, state)
        made = cls(
            campaign, roster, asked, masking, before_opening, save, boxes,
            all_needed=all_needed == b"\1",
        )  # fmt: skip
        if masking.survivors:  # the process may have been killed before it was called
            before_opening(made.survivors)
        return made


class SumsAhead:
    """Begins and continues the rounds of a campaign; asks for the bundles of ``sums`` of them together."""

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
        """The request for the bundles of the first sums, to be sent with that for a description."""
        # The round begins with the same request, unless a party has another sealing key by then.
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
        """Return the round of a batch, of parties ``only``: the one that was begun, or a new one."""
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
        """Forget a round that cannot be completed, unless parties may have unmasked its list of survivors."""
        if not aggregation.survivors:
            self._store.end_round(place)
