"""The outbox: what was asked of parties and is not answered yet.

A request is known by its recipient and the SHA-256 of its signed bytes. It is answered once, by the first
reply under its digest, or it is closed, and then nothing is waited for. A carrier only takes bytes away and
brings bytes back.

What is asked of a party over a connection ends with this process: after a restart it is asked anew, and the
ledgers of both sides decide what may be answered again. What is asked by envelope is durable before a file
of it appears, and so is each reply before anything follows from it; see
:class:`~aggregator_server.exchange.store.Store`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aggregator_server.exchange.carrier import Arrival
from aggregator_server.exchange.store import STANDING
from protos import wire
from protos.terms import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.exchange.aggregation import Steps
    from aggregator_server.exchange.carrier import Carrier
    from pate.campaign.offer import Offer
    from protos.pate.v1 import vote_pb2


@dataclass
class Request:
    """A request without a reply."""

    node: int
    about: str  # describe, public_piece, encoder_piece, early_bundles, finish, or a step of a sum
    party: str | None  # name of the node's party, if known
    steps: Steps | None  # that the step belongs to
    nonce: bytes = b""
    sent: bytes = b""  # digest of the campaign in it; empty: it has only the digest
    digest: bytes = b""  # in it; empty: it has the campaign
    again: vote_pb2.PartyRequest | None = None  # sent again to a party that lacks the campaign
    # Whether the node has disconnected since. A party that refuses ends at once, and its refusal may be
    # fetched after that; no other reply of it is read.
    left: bool = False

    def is_at(self, steps: Steps | None) -> bool:
        """Whether it asks for the present step of a sum."""
        return steps is not None and (self.steps, self.about) == (steps, steps.step)


class Outbox:
    """Signs requests with the campaign's key, sends them, and matches replies to them."""

    def __init__(self, carrier: Carrier, campaign: Offer, key: Ed25519PrivateKey) -> None:
        self.carrier = carrier
        self._id = bytes.fromhex(campaign.campaign)
        # Before its terms are known: after a restart a party by envelope is asked the same again.
        self._bare = packed(campaign.text)
        self._key = key
        self._open: dict[tuple[int, bytes], Request] = {}
        self._found: dict[tuple[int, bytes], Arrival] = {}  # replies that were stored before
        self.fix_terms(campaign)

    def fix_terms(self, campaign: Offer) -> None:
        """Take the campaign as it is now: each party is sent the whole once more."""
        self._packed, self._digest = packed(campaign.text), campaign.digest
        self._known: dict[int, bytes] = {}  # digest of the campaign that each node's party knows

    # --- what is asked -------------------------------------------------------------------

    def lasting(self, node: int) -> str | None:
        """Return the name of the party by envelope at a node, None for one that is connected."""
        store = self.carrier.store
        return None if store is None else store.names.get(node)

    def put(
        self,
        node: int,
        message: vote_pb2.PartyRequest,
        about: str,
        party: str | None = None,
        steps: Steps | None = None,
    ) -> None:
        """Sign a request and send it, or take the reply that it had before; see :class:`Request`."""
        message.version = wire.VERSION
        message.digest = b""
        request = Request(node, about, party, steps)
        store = self.carrier.store
        if store is not None and node in store.names:
            # Bundles are for parties and two numbers, whatever the other terms.
            ahead = about in (*STANDING, "ask_bundles")
            message.campaign = self._bare if ahead else self._packed
            message.nonce = store.nonce(message.SerializeToString(deterministic=True))
        else:
            if self._known.get(node) == self._digest:
                request.digest = message.digest = self._digest
                message.campaign = b""
            else:
                request.sent = self._digest
                message.campaign = self._packed
            message.nonce = wire.new_id()
        request.nonce = message.nonce
        if about in ("describe", "finish"):
            request.again = message
        body = wire.sign_request(message, self._key)
        digest = hashlib.sha256(body).digest()
        self._open[node, digest] = request
        if store is None or node not in store.names:
            self.carrier.send(node, digest, body)
        elif (reply := store.ask(store.names[node], digest, body, about)) is not None:
            self._found[node, digest] = Arrival(node, digest, reply, None)

    def open(self, about: str) -> set[int]:
        """Return the nodes of connected parties with an open request about this."""
        return {each.node for each in self._open.values() if each.about == about and not each.left}

    def busy(self, steps: Steps | None) -> set[str]:
        """Return the names of the parties that are asked nothing more now."""
        # One by envelope may have the request of an earlier step open for days, and gets the next one.
        return {
            each.party
            for each in self._open.values()
            if each.party
            and not each.left
            and (each.steps is None or each.is_at(steps) or self.lasting(each.node) is None)
        }

    def closed(self, steps: Steps) -> set[str]:
        """Return the parties whose answer to the present step is not waited for any more."""
        store = self.carrier.store
        if store is None:
            return set()
        waiting = store.waiting()
        return {
            each.party
            for (node, digest), each in self._open.items()
            if (name := store.names.get(node)) is not None
            and (name, digest) not in waiting
            and (node, digest) not in self._found
            and each.party
            and (each.steps is None or each.is_at(steps))
        }

    # --- what came back ------------------------------------------------------------------

    def arrivals(self) -> Iterator[tuple[Request, Arrival]]:
        """Yield what arrived under an open request, which it closes; a late or second reply is dropped."""
        while arrivals := self._received():
            for arrival in arrivals:
                request = self._open.pop((arrival.node, arrival.digest), None)
                if request is None:
                    continue
                if arrival.body is None:  # it may be a new process, which knows no campaign
                    self._known.pop(request.node, None)
                yield request, arrival

    def _received(self) -> list[Arrival]:
        received = self.carrier.receive()
        found, self._found = self._found, {}
        return [*found.values(), *received]

    def read(self, request: Request, body: bytes) -> tuple[bytes, vote_pb2.Reply]:
        """Return the identity key (32 bytes) that signed a reply, and the reply to this request."""
        return wire.read_reply(body, campaign=self._id, nonce=request.nonce, digest=request.digest)

    def learns(self, request: Request, reply: vote_pb2.Reply) -> None:
        """Take it that a party knows the campaign that it was sent, if it has compared and stored it."""
        refused = reply.WhichOneof("body") == "refusal"
        stores = request.about not in ("finish", "encoder_piece")
        if request.sent and stores and not (refused or request.left):
            self._known[request.node] = request.sent

    def lacks(self, node: int) -> None:
        """Have the whole campaign in the next request to a node."""
        self._known.pop(node, None)

    def drop(self, which: Callable[[Request], bool]) -> None:
        """Forget requests that will not be answered."""
        self._open = {key: each for key, each in self._open.items() if not which(each)}

    def leaves(self, node: int) -> None:
        """Take it that a node has disconnected. The result of a farewell is still pending."""
        self.lacks(node)
        for request in self._open.values():
            if request.node == node and request.about != "finish":
                request.left = True
