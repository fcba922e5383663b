"""The server's conversation with its parties, over any :class:`aggregator_server.wire.Wire`.

A party is known by its name and its signing key. The node id under which Flower shows it is
only an address: it changes when the party restarts, and nothing is remembered by it.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from aggregator_server.parties import Party, check_classes_agree, listed
from aggregator_server.wire import EXPIRED, GONE, LOST
from pate.errors import PateError, ProtocolError, QuorumError, every_kind
from pate.votes import Histogram
from protos import wire
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from aggregator_server.wire import Arrival, Wire

_POLL_S: Final = 0.2
_REMIND_S: Final = 10.0
#: A party whose code raised is asked again this many times before the batch does without it.
_RETRIES: Final = 2
#: How long a party that is here may take to hear that the campaign has ended.
_FAREWELL_S: Final = 15.0
#: How long one that voted and is away is waited for, to tell it the same: parties try again every
#: half minute or so, and then need a moment to connect.
_RETURN_S: Final = 75.0
#: With more parties than this, the server's screen counts them instead of naming each that joins.
_GREETED: Final = 16


@dataclass
class _Question:
    """One request that waits for its reply."""

    node: int
    nonce: bytes
    about: str  # describe, public_piece, ask or finish
    party: str | None


@dataclass
class _Batch:
    """Where the votes of one batch stand."""

    first: int
    count: int
    digest: bytes
    votes: dict[str, Histogram] = field(default_factory=dict)
    #: Parties that said no, or failed too often: not waited for unless they come back.
    out: set[str] = field(default_factory=set)


class Exchange:
    """Finds the parties, learns who they are, and collects their votes.

    Args:
        link: carries bytes to and from nodes.
        campaign: what parties are told; its class list may be set once it is known.
        pieces: yields the slices of the serialised public set, for parties without a copy.
        say: one line for the server's screen.
        clock: seconds, monotonic.
        pause: waits that many seconds.
    """

    def __init__(
        self,
        link: Wire,
        campaign: vote_pb2.Campaign,
        *,
        pieces: Callable[[], Iterator[bytes]],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._link = link
        self.campaign = campaign
        self._pieces = pieces
        self._say = say
        self._clock = clock
        self._pause = pause
        self._questions: dict[str, _Question] = {}
        self._described: set[int] = set()
        self._known: dict[str, Party] = {}
        self._node_of: dict[str, int] = {}
        self._has_public_set: set[str] = set()
        self._failures: Counter[str] = Counter()
        self._roster: dict[str, Party] | None = None
        self._awaited = 0
        self._batch: _Batch | None = None
        self._farewells: set[str] = set()

    # --- the roster ----------------------------------------------------------------------

    @property
    def here(self) -> list[str]:
        """Names of the parties that are connected and described, sorted."""
        return sorted(self._node_of)

    def gather(self, wanted: int | Sequence[str]) -> list[Party]:
        """Wait until the roster is complete and return it, sorted by name.

        Args:
            wanted: how many parties, or which.

        Raises:
            SchemaError: if two parties have different class lists and the campaign has none.
        """
        names = None if isinstance(wanted, int) else set(wanted)
        size = self._awaited = wanted if isinstance(wanted, int) else len(wanted)
        remind = self._clock()
        while True:
            self._step()
            present = [self._known[n] for n in self.here if names is None or n in names]
            if not self.campaign.classes:
                check_classes_agree(present)
            if len(present) >= size:
                return present[:size]
            if self._clock() >= remind:
                remind = self._clock() + _REMIND_S
                self._say(self._waiting_line(present, size, names))
            self._pause(_POLL_S)

    def fix_roster(self, roster: Sequence[Party], classes: Sequence[str]) -> None:
        """From now on talk to these parties alone, about these classes."""
        self._roster = {party.name: party for party in roster}
        self._awaited = len(self._roster)
        del self.campaign.classes[:]
        self.campaign.classes.extend(classes)
        for name in [name for name in self._node_of if name not in self._roster]:
            self._say(f"{name} is not on the roster of this campaign; it is not asked")
            del self._node_of[name]

    def _waiting_line(self, present: list[Party], size: int, names: set[str] | None) -> str:
        here = listed([party.name for party in present]) or "nobody yet"
        missing = ""
        if names is not None:
            absent = sorted(names - {party.name for party in present})
            missing = f"; missing: {listed(absent)}"
        return f"waiting for parties: {len(present)} of {size} here ({here}){missing}"

    # --- votes ---------------------------------------------------------------------------

    def collect(
        self,
        *,
        first: int,
        count: int,
        batch: bytes,
        least: int,
        patience: float,
        progress: Callable[[int, int], None],
    ) -> dict[str, Histogram]:
        """Return the vote matrices of the parties that answered, by name.

        Every party of the roster is waited for until ``least`` have answered and ``patience``
        seconds have passed since; one that refuses or keeps failing is not.

        Args:
            first: of the queries in the public set.
            count: how many.
            batch: their hash.
            least: how many parties the campaign needs.
            patience: seconds.
            progress: called with (parties that answered, parties of the roster).

        Raises:
            QuorumError: if so many refused or failed that ``least`` cannot be reached.
        """
        if self._roster is None:
            raise QuorumError("votes were asked for before the roster was known")
        held = self._batch = _Batch(first, count, batch)
        remind = self._clock() + _REMIND_S
        enough_since: float | None = None
        try:
            while True:
                self._step()
                self._ask_everyone(held)
                answered = len(held.votes)
                progress(answered, len(self._roster))
                able = set(self._roster) - held.out
                if held.votes.keys() >= able and answered >= least:
                    return held.votes
                if len(able | held.votes.keys()) < least:
                    raise QuorumError(
                        f"only {len(able | held.votes.keys())} of {len(self._roster)} parties can "
                        f"still answer, the campaign needs {least}: nothing was released; "
                        "mend the parties named above, then `pate-server resume`"
                    )
                now = self._clock()
                if answered >= least:
                    enough_since = now if enough_since is None else enough_since
                    if now - enough_since > patience:
                        late = listed(sorted(able - held.votes.keys()))
                        self._say(f"going on without {late}: no answer in {patience:g} s")
                        return held.votes
                if now >= remind:
                    remind = now + _REMIND_S
                    self._say(self._voting_line(held, able))
                self._pause(_POLL_S)
        finally:
            self._batch = None

    def _voting_line(self, held: _Batch, able: set[str]) -> str:
        missing = sorted(able - held.votes.keys())
        notes = [n if n in self._node_of else f"{n} (not connected)" for n in missing]
        done = f"{len(held.votes)} of {len(self._roster or ())}"
        return f"votes from {done} parties; waiting for {listed(notes)}"

    @cached_property
    def _slices(self) -> list[bytes]:
        """The public set in pieces, serialised once and only if a party lacks it."""
        return list(self._pieces())

    def _ask_everyone(self, held: _Batch) -> None:
        busy = {question.party for question in self._questions.values()}
        for name, node in self._node_of.items():
            if name in held.votes or name in held.out or name in busy:
                continue
            if name not in self._has_public_set:
                for index, piece in enumerate(self._slices):
                    request = vote_pb2.PartyRequest()
                    request.public_piece.index = index
                    request.public_piece.pieces = len(self._slices)
                    request.public_piece.content = piece
                    self._put(node, request, "public_piece", name)
                continue
            request = vote_pb2.PartyRequest()
            request.ask.first, request.ask.count = held.first, held.count
            request.ask.batch = held.digest
            self._put(node, request, "ask", name)

    # --- the end -------------------------------------------------------------------------

    def finish(self, finish: vote_pb2.Finish, voted: Collection[str]) -> None:
        """Tell the parties that the campaign has ended, and wait for them to hear it.

        A party that does not hear it would wait for a server that never comes back.

        Args:
            finish: what they are told.
            voted: names of those who have reason to be there or to come back soon.
        """
        told: dict[tuple[str, int], float] = {}
        began = self._clock()
        remind = began + _REMIND_S
        self._farewells.clear()
        while True:
            self._step()
            now = self._clock()
            for name, node in list(self._node_of.items()):
                if name not in self._farewells and (name, node) not in told:
                    told[name, node] = now
                    request = vote_pb2.PartyRequest()
                    request.finish.CopyFrom(finish)
                    self._put(node, request, "finish", name)
            waits = any(
                name not in self._farewells and now < told[name, node] + _FAREWELL_S
                for name, node in self._node_of.items()
            )
            away = set(voted) - set(self._node_of) - self._farewells
            if not waits and (not away or now >= began + _RETURN_S):
                return
            if away and now >= remind:
                remind = began + _RETURN_S
                self._say(
                    f"waiting {_RETURN_S - (now - began):.0f} s at most for {listed(sorted(away))}, "
                    "to say that the campaign has ended"
                )
            self._pause(_POLL_S)

    # --- one step ------------------------------------------------------------------------

    def _step(self) -> None:
        nodes = self._link.nodes()
        for node in sorted(nodes - self._described):
            self._described.add(node)
            request = vote_pb2.PartyRequest()
            request.describe.SetInParent()
            self._put(node, request, "describe", None)
        # A node that has gone may come back under its old id, and is then described anew.
        for node in self._described - nodes:
            self._forget(node)
        for arrival in self._link.receive():
            self._arrived(arrival)

    def _put(
        self, node: int, request: vote_pb2.PartyRequest, about: str, party: str | None
    ) -> None:
        request.version = wire.VERSION
        request.nonce = wire.new_id()
        request.campaign.CopyFrom(self.campaign)
        handle = self._link.send(node, request.SerializeToString())
        self._questions[handle] = _Question(node, request.nonce, about, party)

    def _arrived(self, arrival: Arrival) -> None:
        question = self._questions.pop(arrival.handle, None)
        if question is None:
            return  # of an earlier batch, or a party that was given up
        who = question.party or f"node {question.node}"
        if arrival.body is None:
            self._failed(question, who, arrival.failure or "no answer")
            return
        try:
            identity, reply = wire.read_reply(
                arrival.body, campaign=self.campaign.id, nonce=question.nonce
            )
            self._accept(question, identity, reply)
        except PateError as error:
            self._say(f"{who}: sent something that was not accepted: {error}")
            self._put_out(question)

    def _accept(self, question: _Question, identity: bytes, reply: vote_pb2.Reply) -> None:
        what = reply.WhichOneof("body")
        if question.party is not None:
            party = self._known[question.party]
            if reply.party != party.name or identity != party.identity:
                raise ProtocolError(f"signed by {reply.party}, not by the party that was asked")
        if what == "refusal":
            kind = every_kind().get(reply.refusal.kind, PateError)
            self._say(f"{reply.party}: refused ({kind.__name__}): {kind.public}")
            self._put_out(question)
        elif what == "description" and question.about == "describe":
            self._meet(question.node, identity, reply)
        elif what == "receipt" and question.about == "public_piece":
            if reply.receipt.public_set == self.campaign.public_set and question.party:
                self._has_public_set.add(question.party)
        elif what == "votes" and question.about == "ask":
            self._count(question, reply.votes)
        elif what == "farewell" and question.about == "finish":
            self._farewells.add(reply.party)
        else:
            raise ProtocolError(f"answered {question.about} with {what}")

    def _meet(self, node: int, identity: bytes, reply: vote_pb2.Reply) -> None:
        said = reply.description
        wire.check_description(said)
        party = Party(reply.party, identity, said.teachers, said.unit, tuple(said.classes))
        expected = (self._roster or self._known).get(party.name)
        if self._roster is not None and expected is None:
            self._say(f"{party.name} is not on the roster of this campaign; it is not asked")
            return
        if expected is not None and expected.identity != party.identity:
            raise ProtocolError(f"a stranger calls itself {party.name}: its key is another one")
        if self._roster is not None and expected is not None and not expected.votes_like(party):
            raise ProtocolError(
                f"{party.name} came back with {party.teachers} teachers per {party.unit}, "
                f"on the roster it has {expected.teachers} per {expected.unit}; "
                "a roster does not change within a campaign"
            )
        back = party.name in self._known
        # What its last process was asked will not be answered, and must not be waited for.
        for handle, question in list(self._questions.items()):
            if question.party == party.name and question.node != node:
                del self._questions[handle]
        self._known[party.name] = party
        self._node_of[party.name] = node
        self._has_public_set.discard(party.name)
        if said.public_set == self.campaign.public_set:
            self._has_public_set.add(party.name)
        self._failures[party.name] = 0
        if self._batch is not None:
            self._batch.out.discard(party.name)
        if back or self._awaited <= _GREETED:
            self._say(f"{party.name} {'is back' if back else 'joined'}: {party.teachers} teachers")

    def _count(self, question: _Question, matrix: vote_pb2.VoteMatrix) -> None:
        held, name = self._batch, question.party
        if held is None or name is None or name in held.votes:
            return
        party = self._known[name]
        counts = wire.read_votes(
            matrix,
            teachers=party.teachers,
            classes=len(self.campaign.classes),
            queries=held.count,
            batch=held.digest,
        )
        held.votes[name] = Histogram(counts, party.teachers)

    def _failed(self, question: _Question, who: str, failure: str) -> None:
        if failure in (GONE, LOST, EXPIRED):
            if question.about == "finish" and failure == GONE and question.party is not None:
                # A party that has heard of the end leaves, and its node may take the reply along.
                self._farewells.add(question.party)
            elif failure == GONE:
                self._say(f"{who}: not reachable any more; it may come back")
            self._forget(question.node)
            return
        self._failures[who] += 1
        self._say(f"{who}: failed ({failure})")
        if self._failures[who] > _RETRIES:
            self._put_out(question)
        elif question.about == "describe":
            self._described.discard(question.node)

    def _put_out(self, question: _Question) -> None:
        """Do without the party for this batch, until it connects anew."""
        if self._batch is not None and question.party is not None:
            self._batch.out.add(question.party)

    def _forget(self, node: int) -> None:
        self._described.discard(node)
        for name in [name for name, at in self._node_of.items() if at == node]:
            del self._node_of[name]
        for handle, question in list(self._questions.items()):
            # What becomes of a farewell is still to be heard: see `_failed`.
            if question.node == node and question.about != "finish":
                del self._questions[handle]
