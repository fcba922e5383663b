"""Signed requests to nodes, and validation of their replies: one open question per request.

Presence is tracked in :mod:`aggregator_server.exchange.attendance`;
:mod:`aggregator_server.exchange.exchange` decides what to ask and how long to wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.aggregation import ANSWERS
from aggregator_server.exchange.public_set import piece_request
from aggregator_server.exchange.wire import EXPIRED, GONE, LOST
from pate.data.embeddings import encoder_in
from pate.errors import DiskError, PateError, ProtocolError, RefusedError, every_kind
from protos import wire
from protos.pate.v1 import vote_pb2
from protos.terms import packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aggregator_server.exchange.aggregation import Steps
    from aggregator_server.exchange.attendance import Attendance
    from aggregator_server.exchange.parties import DescribedParty
    from aggregator_server.exchange.public_set import Handout
    from aggregator_server.exchange.wire import Arrival, Courier, Wire
    from pate.campaign.offer import Offer

#: Least seconds between requests for a description to a node that keeps reconnecting: an earlier
#: request is still pending.
_AGAIN_S: Final = 1.0
#: Most nodes that are sent the encoder at a time, since the pieces wait in memory until they are fetched.
_MOST_SENT: Final = 32


@dataclass
class _Question:
    """One request that waits for its reply.

    Attributes:
        node: the recipient.
        nonce: of the request.
        about: describe, public_piece, encoder_piece, finish, or a step of an aggregation.
        party: name of the node's party, if known.
        aggregation: that the step belongs to.
        sent: digest of the campaign in it; empty: it has only the digest.
        digest: in it; empty: it has the campaign.
        again: a description or an end that is asked for, in case the party lacks the campaign; else None.
        left: whether the node has disconnected since. A party that refuses ends at once, and its
            refusal may be fetched after that; no other reply of it is read.
        agreed: the class list of most parties, which differs from that of this one; empty: it was not sent.
    """

    node: int
    nonce: bytes
    about: str
    party: str | None
    aggregation: Steps | None = None
    sent: bytes = b""
    digest: bytes = b""
    again: vote_pb2.PartyRequest | None = None
    left: bool = False
    agreed: tuple[str, ...] = ()


class Conversation:
    """Sends requests and takes their replies.

    Args:
        link: carries bytes to and from nodes.
        campaign: sent to parties.
        signing_key: the campaign's; every request is signed with it.
        who: the connected parties.
        handout: the public set, for parties without a copy.
        encoder: the encoder of its inputs, likewise; None: it is not sent.
        say: one line for the server's screen.
        clock: seconds, monotonic.
        courier: of the parties by envelope; None: there are none.

    Attributes:
        aggregation: the sum that is being collected, if there is one.
        farewells: names of the parties that know of the campaign's end.
        met: when each party last described itself.
        sealing: the key for bundles that each party gave in its description, by identity.
    """

    def __init__(
        self,
        link: Wire,
        campaign: Offer,
        *,
        signing_key: Ed25519PrivateKey,
        who: Attendance,
        handout: Handout,
        encoder: Handout | None = None,
        say: Callable[[str], None],
        clock: Callable[[], float],
        courier: Courier | None = None,
    ) -> None:
        self._link = link
        self._campaign = campaign
        self._courier = courier
        # Before its terms are known: after a restart a party is asked the same again.
        self._bare = packed(campaign.text)
        self._packed, self._digest = self._bare, campaign.digest
        self._known: dict[int, bytes] = {}  # digest of the campaign that each node's party knows
        self._signing_key = signing_key
        self._who = who
        self._handout = handout
        self._encoder = encoder
        self._wanting: set[int] = set()  # nodes that lack the encoder
        self._say = say
        self._clock = clock
        self._questions: dict[str, _Question] = {}
        self._asked_who: dict[int, float] = {}  # when each node was asked for a description
        self.met: dict[str, float] = {}
        self.aggregation: Steps | None = None
        self.farewells: set[str] = set()
        self.sealing: dict[bytes, vote_pb2.SealingKey] = {}

    def fix_roster(self, campaign: Offer) -> None:
        """Take the campaign's terms as fixed: each party is sent the whole once more."""
        self._packed, self._digest = packed(campaign.text), campaign.digest

    @property
    def busy(self) -> set[str]:
        """Names of the parties with an open request."""
        return {
            each.party
            for each in self._questions.values()
            if each.party and not each.left and not self._is_over(each)
        }

    @property
    def by_envelope(self) -> set[str]:
        """Names of the parties that are reached by envelope."""
        return {name for name, node in self._who.node_of.items() if self._courier_to(node)}

    def closed(self) -> set[str]:
        """Return the parties by envelope whose answer to the current step is not waited for."""
        if self._courier is None:
            return set()
        found = (self._questions.get(handle) for handle in self._courier.closed())
        return {each.party for each in found if each and each.party and not self._is_over(each)}

    def _courier_to(self, node: int) -> str | None:
        """Return the name of the party by envelope at a node, None for one that is online."""
        return None if self._courier is None else self._courier.party_at(node)

    def _is_over(self, question: _Question) -> bool:
        """Return whether a question by envelope is about a step that is over: it may stay open."""
        now = None if self.aggregation is None else self.aggregation.step
        return (
            question.aggregation is not None
            and self._courier_to(question.node) is not None
            and (question.aggregation, question.about) != (self.aggregation, now)
        )

    def step(self) -> None:
        """Ask new nodes for a description, forget disconnected ones, and process arrivals."""
        nodes = self._link.nodes()
        now = self._clock()
        self._asked_who = {n: t for n, t in self._asked_who.items() if now - t < _AGAIN_S}
        asked = {e.node for e in self._questions.values() if e.about == "describe" and not e.left}
        again = self._who.preparing.keys() & nodes - asked
        for node in sorted((nodes - self._who.described | again) - self._asked_who.keys()):
            self._who.described.add(node)
            self._asked_who[node] = now
            name = self._courier_to(node)
            self._ask_who(node, name)
            if name is not None:  # in the same envelope, whether or not it has a copy
                for piece in self._handout.all():
                    self.put(node, piece_request(*piece), "public_piece", name)
                self._ask_early(node, name)
        # A disconnected node may return with its old id, and is then described again.
        for node in self._who.described - nodes:
            self._forget(node, left=node not in self._leaving())
        while arrivals := self._link.receive():
            for arrival in arrivals:
                self._arrived(arrival)
        sent = {
            each.node
            for each in self._questions.values()
            if each.about == "encoder_piece" and not each.left
        }
        for node in sorted(self._wanting - sent)[: max(0, _MOST_SENT - len(sent))]:
            self._send_encoder(node)

    def _ask_who(self, node: int, name: str | None = None) -> None:
        request = vote_pb2.PartyRequest()
        # A party by envelope has the encoder, and prepares before it answers: each would cost a trip.
        request.describe.sends_encoder = self._encoder is not None and name is None
        request.describe.at_once = name is None
        self.put(node, request, "describe", name)

    def send_away(self, party: DescribedParty, agreed: Sequence[str]) -> None:
        """Ask a party to refuse that names other classes than ``agreed``, which most parties name.

        It refuses by its own comparison, and says so on its own screen.
        """
        node = self._who.send_away(party)
        request = vote_pb2.PartyRequest()
        request.describe.agreed.extend(agreed)
        self.put(node, request, "describe", self._courier_to(node))

    def _ask_early(self, node: int, name: str) -> None:
        """Ask a party by envelope for bundles, in its first envelope.

        The sum that is to use them asks the same again, and has the reply then.
        """
        if self._courier is None or self._who.roster is not None:
            return
        if (asked := self._courier.early()) is not None:
            self.put(node, vote_pb2.PartyRequest(ask_bundles=asked), "ask_bundles", name)

    def _send_encoder(self, node: int) -> None:
        for index, pieces, content in [] if self._encoder is None else self._encoder.due(node):
            request = piece_request(index, pieces, content)
            request.public_piece.encoder = True
            self.put(node, request, "encoder_piece", None)

    def put(
        self,
        node: int,
        request: vote_pb2.PartyRequest,
        about: str,
        party: str | None,
        aggregation: Steps | None = None,
    ) -> None:
        """Sign a request and send it.

        Args:
            node: the recipient.
            request: all but its version, nonce and campaign.
            about: describe, public_piece, encoder_piece, finish, or a step of an aggregation.
            party: name of the node's party, if known.
            aggregation: that the step belongs to.
        """
        request.version = wire.VERSION
        request.digest, sent = b"", b""
        if self._courier is None or self._courier.party_at(node) is None:
            if self._known.get(node) == self._digest:
                request.digest = self._digest
                request.campaign = b""
            else:
                sent = self._digest
                request.campaign = self._packed
            request.nonce = wire.new_id()
        else:
            # Bundles are for parties and two numbers, whatever the other terms.
            ahead = about in ("describe", "public_piece", "ask_bundles")
            request.campaign = self._bare if ahead else self._packed
            request.nonce = self._courier.nonce(request.SerializeToString(deterministic=True))
        handle = self._link.send(node, wire.sign_request(request, self._signing_key))
        self._questions[handle] = _Question(
            node, request.nonce, about, party, aggregation, sent, request.digest,
            again=request if about in ("describe", "finish") else None,
            agreed=tuple(request.describe.agreed) if about == "describe" else (),
        )  # fmt: skip

    def _arrived(self, arrival: Arrival) -> None:
        question = self._questions.pop(arrival.handle, None)
        if question is None:
            return  # of an earlier batch or an excluded party
        if arrival.body is None:  # it may be a new process, which knows no campaign
            self._known.pop(question.node, None)
        who = question.party or f"node {question.node}"
        if arrival.body is None:
            if not question.left:
                self._failed(question, who, arrival.failure or "no answer")
            return
        try:
            identity, reply = wire.read_reply(
                arrival.body,
                campaign=bytes.fromhex(self._campaign.campaign),
                nonce=question.nonce,
                digest=question.digest,
            )
            self._learn(question, reply)
            if question.party is None:  # its own claim: the operator must find out whose node it is
                who = f"{reply.party} ({who})"
            self._accept(question, identity, reply)
        except PateError as error:
            self._say(f"{who}: sent an invalid reply: {error}")
            self._put_out(question)

    def _learn(self, question: _Question, reply: vote_pb2.Reply) -> None:
        """Take it that a party knows the campaign that it was sent, if it has compared and stored it."""
        refused = reply.WhichOneof("body") == "refusal"
        stores = question.about not in ("finish", "encoder_piece")
        if question.sent and stores and not (refused or question.left):
            self._known[question.node] = question.sent

    def _accept(self, question: _Question, identity: bytes, reply: vote_pb2.Reply) -> None:
        what = reply.WhichOneof("body")
        if question.left and what != "refusal":
            return
        if question.party is not None:
            party = self._who.known.get(question.party)
            # A party by envelope has a name before it has described itself.
            expected = party is None and question.about == "describe"
            if reply.party != question.party or not (
                expected or (party is not None and identity.hex() == party.identity)
            ):
                raise ProtocolError(f"signed by {reply.party}, not by the party that was asked")
        if what == "refusal":
            kind = every_kind().get(reply.refusal.kind, PateError)
            if issubclass(kind, RefusedError) and question.party is not None:
                self._who.refused.add(question.party)
            self._say(f"{reply.party}: refused ({kind.__name__}): {kind.public}")
            if question.about == "describe":
                self._who.refuses(question.node, reply.party, identity)
            if issubclass(kind, DiskError):
                self._ended(question)
            else:
                self._put_out(question)
        elif what == "unknown":
            self._send_whole(question)
        elif what == "description" and question.about == "describe":
            if question.agreed and tuple(reply.description.classes) != question.agreed:
                raise ProtocolError("names other classes than most parties, and does not refuse")
            self._meet(question.node, identity, reply)
        elif what == "preparing" and question.about == "describe" and question.party is None:
            if self._who.prepares(question.node, reply.party, identity):
                self._asked_who[question.node] = self._clock()
                self._ask_who(question.node)
        elif what == "wanted" and question.about == "describe" and self._encoder is not None:
            if self._who.may_come(question.node, reply.party, identity):
                self._say(f"{reply.party} has no copy of the encoder: it is sent")
                self._encoder.began(question.node)
                self._wanting.add(question.node)
        elif what == "receipt" and question.about == "encoder_piece":
            got = reply.receipt.encoder.hex() == encoder_in(self._campaign.announced.schema)
            if got and question.node in self._wanting:
                self._wanting.discard(question.node)
                self._ask_who(question.node)
        elif what == "receipt" and question.about == "public_piece":
            got = reply.receipt.public_set.hex() == self._campaign.announced.public_set
            if got and question.party:
                self._who.has_public_set.add(question.party)
        elif what == ANSWERS.get(question.about):
            aggregation = self.aggregation
            # Of an earlier step or an abandoned attempt: no longer needed.
            if aggregation is not None and (aggregation, aggregation.step) == (
                question.aggregation,
                question.about,
            ):
                aggregation.take(self._who.known[reply.party], reply)
        elif what == "farewell" and question.about == "finish":
            self.farewells.add(reply.party)
        else:
            raise ProtocolError(f"answered {question.about} with {what}")

    def _send_whole(self, question: _Question) -> None:
        """Have the whole campaign in the next request to a party that does not know it.

        A step is asked again while it lasts; a party that lacks pieces of a file describes itself first.
        """
        self._known.pop(question.node, None)
        if question.again is not None:
            self.put(question.node, question.again, question.about, question.party)
        elif question.aggregation is None:
            self._who.described.discard(question.node)

    def _meet(self, node: int, identity: bytes, reply: vote_pb2.Reply) -> None:
        party = self._who.meet(node, identity, reply)
        if party is None:
            return
        self.met[party.name] = self._clock()
        if reply.description.HasField("sealing"):
            self.sealing[identity] = reply.description.sealing
        # Requests to its last process will not be answered, and must not be waited for.
        for handle, question in list(self._questions.items()):
            if question.party == party.name and (question.node != node or question.left):
                del self._questions[handle]
        self._handout.began(party.name)

    def _failed(self, question: _Question, who: str, failure: str) -> None:
        if failure in (GONE, LOST, EXPIRED):
            if question.about == "finish" and failure == GONE and question.party is not None:
                # A party that knows of the end leaves, and the reply may be lost with its node.
                self.farewells.add(question.party)
            elif failure == GONE:
                self._say(f"{who}: disconnected; it may reconnect")
            self._forget(question.node)
            return
        self._say(f"{who}: failed ({failure})")
        if self._who.failed_for_good(who):
            self._put_out(question)
        elif question.about == "describe":
            self._who.described.discard(question.node)

    def _ended(self, question: _Question) -> None:
        """Treat a party as killed: it has stopped, and restarts once its disk has room."""
        if question.aggregation is not None and not question.aggregation.first:
            self._put_out(question)  # its secrets for this sum are lost
        self._forget(question.node)

    def _put_out(self, question: _Question) -> None:
        """Exclude the party from this batch, until it reconnects."""
        self._wanting.discard(question.node)
        self._who.preparing.pop(question.node, None)
        if question.party is not None:
            self._who.out.add(question.party)

    def _leaving(self) -> set[int]:
        """Return the nodes that disconnect because they were notified of the campaign's end."""
        told = {each.node for each in self._questions.values() if each.about == "finish"}
        return told | {at for name, at in self._who.node_of.items() if name in self.farewells}

    def _forget(self, node: int, *, left: bool = False) -> None:
        self._wanting.discard(node)
        self._known.pop(node, None)
        self._who.forget(node, left=left)
        for question in self._questions.values():
            # The result of a farewell is still pending: see `_failed`.
            if question.node == node and question.about != "finish":
                question.left = True
