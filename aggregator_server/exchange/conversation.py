"""What replies mean: who a party is, what it has, and its part in the sum that is being collected.

Open requests are in :mod:`aggregator_server.exchange.outbox`, presence in
:mod:`aggregator_server.exchange.attendance`; :mod:`aggregator_server.exchange.exchange` decides what to
ask and how long to wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.aggregation import ANSWERS
from aggregator_server.exchange.carrier import EXPIRED, GONE, LOST
from aggregator_server.exchange.store import EARLY
from pate.data.embeddings import encoder_in
from pate.errors import DiskError, PateError, ProtocolError, RefusedError, every_kind
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aggregator_server.exchange.aggregation import Steps
    from aggregator_server.exchange.attendance import Attendance, DescribedParty
    from aggregator_server.exchange.carrier import Distribution
    from aggregator_server.exchange.outbox import Outbox, Request
    from pate.campaign.announced import Announced

#: Least seconds between requests for a description to a node that keeps reconnecting: an earlier
#: request is still pending.
_AGAIN_S: Final = 1.0
#: Most nodes that are sent the encoder at a time, since the pieces wait in memory until they are fetched.
_MOST_SENT: Final = 32


class Conversation:
    """Asks who is there, and takes replies."""

    def __init__(
        self,
        outbox: Outbox,
        campaign: Announced,
        who: Attendance,
        public_set: Distribution,
        encoder: Distribution | None,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._outbox = outbox
        self._campaign = campaign
        self._who = who
        self._public_set = public_set
        self._encoder = encoder
        self._wanting: set[int] = set()  # nodes that lack the encoder
        self._say = say
        self._clock = clock
        self._asked_who: dict[int, float] = {}  # when each node was asked for a description
        self.met: dict[str, float] = {}  # when each party last described itself
        self.steps: Steps | None = None  # the sum that is being collected, if there is one
        #: Asked of parties by envelope together with the description; None: nothing is.
        self.early: vote_pb2.AskBundles | None = None
        self.farewells: set[str] = set()  # names of the parties that know of the campaign's end
        #: The key for bundles that each party gave in its description, by identity.
        self.sealing: dict[bytes, vote_pb2.SealingKey] = {}

    def look(self) -> None:
        """Ask new nodes for a description, forget disconnected ones, and process arrivals."""
        nodes, now, who = self._outbox.carrier.nodes(), self._clock(), self._who
        self._asked_who = {n: t for n, t in self._asked_who.items() if now - t < _AGAIN_S}
        again = who.preparing.keys() & nodes - self._outbox.open("describe")
        for node in sorted((nodes - who.described | again) - self._asked_who.keys()):
            who.described.add(node)
            self._asked_who[node] = now
            self._ask_who(node)
        # A disconnected node may return with its old id, and is then described again.
        leaving = self._outbox.open("finish")
        leaving |= {at for name, at in who.node_of.items() if name in self.farewells}
        for node in who.described - nodes:
            self._forget(node, left=node not in leaving)
        for request, arrival in self._outbox.arrivals():
            if arrival.body is not None:
                self._arrived(request, arrival.body)
            elif not request.left:
                self._failed(request, arrival.failure or "no answer")
        sent = self._outbox.open("encoder_piece")
        for node in sorted(self._wanting - sent)[: max(0, _MOST_SENT - len(sent))]:
            for piece in [] if self._encoder is None else self._encoder.due(node):
                self._outbox.put(node, piece, "encoder_piece")

    # --- who is there --------------------------------------------------------------------

    def _ask_who(self, node: int) -> None:
        """Ask for a description; by envelope with all that it can answer before the roster is known."""
        request, name = vote_pb2.PartyRequest(), self._outbox.lasting(node)
        # A party by envelope has the encoder, and prepares before it answers: each would cost a trip.
        request.describe.sends_encoder = self._encoder is not None and name is None
        request.describe.at_once = name is None
        self._outbox.put(node, request, "describe", name)
        if name is None:
            return
        for piece in self._public_set.all():  # whether or not it has a copy
            self._outbox.put(node, piece, "public_piece", name)
        if self.early is not None and self._who.roster is None:
            # The sum that is to use them asks the same again, and has the reply then.
            keys = vote_pb2.PartyRequest(ask_bundles=self.early)
            self._outbox.put(node, keys, EARLY, name)

    def send_away(self, party: DescribedParty, agreed: Sequence[str]) -> None:
        """Ask a party to refuse that names other classes than most; it says why on its own screen."""
        node = self._who.send_away(party)
        request = vote_pb2.PartyRequest()
        request.describe.agreed.extend(agreed)
        self._outbox.put(node, request, "describe", self._outbox.lasting(node))

    def _meet(self, node: int, identity: bytes, reply: vote_pb2.Reply) -> None:
        party = self._who.meet(node, identity, reply)
        if party is None:
            return
        name = party.name
        self.met[name] = self._clock()
        if reply.description.HasField("sealing"):
            self.sealing[identity] = reply.description.sealing
        # Requests to its last process will not be answered, and must not be waited for.
        self._outbox.drop(lambda each: each.party == name and (each.node != node or each.left))
        self._public_set.began(name)

    def _forget(self, node: int, *, left: bool = False) -> None:
        self._wanting.discard(node)
        self._who.forget(node, left=left)
        self._outbox.leaves(node)

    # --- replies -------------------------------------------------------------------------

    def _arrived(self, request: Request, body: bytes) -> None:
        who = _who(request)
        try:
            identity, reply = self._outbox.read(request, body)
            self._outbox.learns(request, reply)
            if request.party is None:  # its own claim: the operator must find out whose node it is
                who = f"{reply.party} ({who})"
            if request.left and reply.WhichOneof("body") != "refusal":
                return
            if request.party is not None:
                self._require_asked(request.party, request.about, identity, reply)
            self._take(request, identity, reply)
        except PateError as error:
            self._say(f"{who}: sent an invalid reply: {error}")
            self._put_out(request)

    def _require_asked(self, name: str, about: str, identity: bytes, reply: vote_pb2.Reply) -> None:
        """Check that the party replied that was asked."""
        party = self._who.known.get(name)
        # A party by envelope has a name before it has described itself.
        expected = about == "describe" if party is None else identity.hex() == party.identity
        if reply.party != name or not expected:
            raise ProtocolError(f"signed by {reply.party}, not by the party that was asked")

    def _take(self, request: Request, identity: bytes, reply: vote_pb2.Reply) -> None:
        what, node, steps = reply.WhichOneof("body"), request.node, self.steps
        match request.about, what:
            case _, "refusal":
                self._refused(request, identity, reply)
            case _, "unknown":
                self._send_whole(request)
            case "describe", "description":
                agreed = [] if request.again is None else request.again.describe.agreed
                if agreed and reply.description.classes != agreed:
                    raise ProtocolError(
                        "names other classes than most parties, and does not refuse"
                    )
                self._meet(node, identity, reply)
            case "describe", "preparing" if request.party is None:
                if self._who.prepares(node, reply.party, identity):
                    self._asked_who[node] = self._clock()
                    self._ask_who(node)
            case "describe", "wanted" if self._encoder is not None:
                if self._who.may_come(node, reply.party, identity):
                    self._say(f"{reply.party} has no copy of the encoder: it is sent")
                    self._encoder.began(node)
                    self._wanting.add(node)
            case "encoder_piece", "receipt":
                got = reply.receipt.encoder.hex() == encoder_in(self._campaign.schema)
                if got and node in self._wanting:
                    self._wanting.discard(node)
                    self._ask_who(node)
            case "public_piece", "receipt":
                if reply.receipt.public_set.hex() == self._campaign.public_set and request.party:
                    self._who.has_public_set.add(request.party)
            case "finish", "farewell":
                self.farewells.add(reply.party)
            case about, _ if what == ANSWERS.get(about):
                # That of an earlier step or an abandoned attempt is no longer needed.
                if steps is not None and request.is_at(steps):
                    steps.take(self._who.known[reply.party], reply)
            case about, _:
                raise ProtocolError(f"answered {about} with {what}")

    def _refused(self, request: Request, identity: bytes, reply: vote_pb2.Reply) -> None:
        kind = every_kind().get(reply.refusal.kind, PateError)
        if issubclass(kind, RefusedError) and request.party is not None:
            self._who.refused.add(request.party)
        # Before a party has described itself every reason has the same kind: it could tell of a record.
        if kind is RefusedError and request.about in ("describe", "encoder_piece"):
            self._say(f"{reply.party} refused to join: its own screen has the reason")
        else:
            self._say(f"{reply.party}: refused ({kind.__name__}): {kind.public} (see its screen)")
        if request.about == "describe":
            self._who.refuses(request.node, reply.party, identity)
        if not issubclass(kind, DiskError):
            self._put_out(request)
            return
        # Like one that was killed: it has stopped, and restarts once its disk has room.
        if request.steps is not None and not request.steps.first:
            self._put_out(request)  # its secrets for this sum are lost
        self._forget(request.node)

    def _send_whole(self, request: Request) -> None:
        """Have the whole campaign in the next request to a party that does not know it."""
        self._outbox.lacks(request.node)
        if request.again is not None:
            self._outbox.put(request.node, request.again, request.about, request.party)
        elif request.steps is None:
            self._who.described.discard(request.node)

    def _failed(self, request: Request, failure: str) -> None:
        who = _who(request)
        if failure in (GONE, LOST, EXPIRED):
            if request.about == "finish" and failure == GONE and request.party is not None:
                # A party that knows of the end leaves, and the reply may be lost with its node.
                self.farewells.add(request.party)
            elif failure == GONE:
                self._say(f"{who}: disconnected; it may reconnect")
            self._forget(request.node)
            return
        self._say(f"{who}: failed ({failure})")
        if self._who.failed_for_good(who):
            self._put_out(request)
        elif request.about == "describe":
            self._who.described.discard(request.node)

    def _put_out(self, request: Request) -> None:
        """Exclude the party from this batch, until it reconnects."""
        self._wanting.discard(request.node)
        self._who.preparing.pop(request.node, None)
        if request.party is not None:
            self._who.out.add(request.party)


def _who(request: Request) -> str:
    return request.party or f"node {request.node}"
