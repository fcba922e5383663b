"""How the votes of one batch are had: in one step, or masked, in five.

A ballot says what to ask a party next and takes its answer. It knows nothing of nodes, time or who
is connected; :class:`aggregator_server.exchange.Exchange` does, and decides when a step has waited
long enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import numpy as np

from pate.errors import ProtocolError, QuorumError
from pate.masking.ring import centred
from pate.masking.server import ServerMasking
from pate.noise_shares import check_row_totals
from pate.votes import Counts, Histogram, NoisySum
from protos import masked, wire
from protos.pate.v1 import vote_pb2
from protos.terms import share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator_server.parties import Party

#: By step, the body of the answer to it.
ANSWERS: Final = {
    "ask": "votes",
    "ask_keys": "keys",
    "ask_shares": "boxes",
    "ask_masked": "masked",
    "ask_consent": "consent",
    "ask_opening": "opening",
}
#: The same for a screen.
STEPS: Final = {
    "ask": "votes",
    "ask_keys": "keys",
    "ask_shares": "key shares",
    "ask_masked": "masked votes",
    "ask_consent": "signatures of the list of survivors",
    "ask_opening": "shares that open the sum",
}


@dataclass(frozen=True)
class Batch:
    """Some rows of the public set, to be voted on together.

    Attributes:
        rows: indices into the public set, each once.
        digest: SHA-256 over the hashes of these queries, in this order, 32 bytes.
    """

    rows: tuple[int, ...]
    digest: bytes


@dataclass(frozen=True)
class Sum:
    """The votes of one batch, summed.

    Attributes:
        total: the sum; with the parties' noise in it, if they add any.
        responders: names of the parties in it, in the order of the roster.
    """

    total: Histogram | NoisySum
    responders: tuple[str, ...]


class Ballot(Protocol):
    """What is asked of the parties for one batch, step by step."""

    #: Name of the step that is under way, of :data:`STEPS`; empty when all are done.
    step: str

    @property
    def first(self) -> bool:
        """Whether this is the first step: a party that starts anew can still take part."""

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that may answer this step, and have or have not."""

    @property
    def answered(self) -> frozenset[str]:
        """The parties that have answered it."""

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return what to ask a party in this step."""

    def take(self, party: Party, reply: vote_pb2.Reply) -> None:
        """Take a party's answer to this step.

        Raises:
            ProtocolError: if it is not acceptable; the ballot is then as it was before.
        """

    def advance(self) -> None:
        """Go on to the next step with those who answered.

        Raises:
            QuorumError: if they are too few.
            ProtocolError: if what they sent cannot be opened.
        """

    def result(self) -> Sum:
        """Return the sum, once all steps are done.

        Raises:
            ProtocolError: if it cannot be the sum of what the parties declared.
        """


class PlainBallot:
    """One step: every party sends its votes as they are."""

    def __init__(
        self, campaign: vote_pb2.Campaign, roster: Sequence[Party], batch: Batch, least: int
    ) -> None:
        self._classes = len(campaign.classes)
        self._roster = tuple(party.name for party in roster)
        self._batch = batch
        self._least = least
        self._votes: dict[str, Histogram] = {}
        self.step = "ask"

    first: ClassVar[bool] = True

    @property
    def awaited(self) -> frozenset[str]:
        """All parties of the roster."""
        return frozenset(self._roster)

    @property
    def answered(self) -> frozenset[str]:
        """The parties whose votes are here."""
        return frozenset(self._votes)

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Ask for the votes."""
        del name  # all are asked the same
        return vote_pb2.PartyRequest(ask=vote_pb2.Ask(batch=_to_wire(self._batch)))

    def take(self, party: Party, reply: vote_pb2.Reply) -> None:
        """Take a party's vote matrix; see :class:`Ballot`."""
        counts = wire.read_votes(
            reply.votes,
            teachers=party.teachers,
            classes=self._classes,
            queries=len(self._batch.rows),
            batch=self._batch.digest,
        )
        self._votes.setdefault(party.name, Histogram(counts, party.teachers))

    def advance(self) -> None:
        """See :class:`Ballot`."""
        if len(self._votes) < self._least:
            raise QuorumError(f"{len(self._votes)} parties answered, {self._least} are needed")
        self.step = ""

    def result(self) -> Sum:
        """Return the sum; each part of it was checked when it came."""
        responders = tuple(name for name in self._roster if name in self._votes)
        return Sum(Histogram.total(self._votes[name] for name in responders), responders)


class MaskedBallot:
    """Five steps, after which the sum is known and no part of it.

    Attributes:
        attempt: 16 random bytes, which everything in these steps is bound to.
    """

    def __init__(self, campaign: vote_pb2.Campaign, roster: Sequence[Party], batch: Batch) -> None:
        self._campaign = campaign
        self._teachers = {party.name: party.teachers for party in roster}
        self._batch = batch
        self.attempt = wire.new_id()
        self._context = masked.context_of(campaign, self.attempt, _to_wire(batch))
        self._masking = ServerMasking(self._context)
        self._steps = [step for step in STEPS if step != "ask"]
        self.step = self._steps[0]

    @property
    def first(self) -> bool:
        """Whether keys are being asked for: who starts anew later has lost its secrets."""
        return self.step == self._steps[0]

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that did every step before this one."""
        return self._masking.awaited

    @property
    def answered(self) -> frozenset[str]:
        """The parties that did this step."""
        return self._masking.answered

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return what this step needs of the others, for one party."""
        asked, masking = vote_pb2.PartyRequest(), self._masking
        getattr(asked, self.step).attempt = self.attempt
        if self.step == "ask_keys":
            asked.ask_keys.batch.CopyFrom(_to_wire(self._batch))
        elif self.step == "ask_shares":
            held = masking.keys_for(name)
            asked.ask_shares.keys.extend(
                vote_pb2.PeerKeys(party=peer, keys=masked.keys_to_wire(held[peer]))
                for peer in sorted(held)
            )
        elif self.step == "ask_masked":
            asked.ask_masked.boxes.extend(masked.boxes_to_wire(masking.boxes_for(name)))
        elif self.step == "ask_consent":
            asked.ask_consent.survivors.extend(masking.survivors)
        elif self.step == "ask_opening":
            asked.ask_opening.signatures.extend(
                vote_pb2.PeerSignature(party=peer, signature=masking.signatures[peer])
                for peer in sorted(masking.signatures)
            )
        return asked

    def take(self, party: Party, reply: vote_pb2.Reply) -> None:
        """Take a party's answer to this step; see :class:`Ballot`."""
        name, masking = party.name, self._masking
        if self.step == "ask_keys":
            masked.check_keys(reply.keys)
            masking.take_keys(name, masked.keys_from_wire(reply.keys))
        elif self.step == "ask_shares":
            masked.check_boxes(reply.boxes.boxes)
            masking.take_boxes(name, masked.boxes_from_wire(reply.boxes.boxes))
        elif self.step == "ask_masked":
            masking.take_masked(name, reply.masked.packed)
        elif self.step == "ask_consent":
            masking.take_signature(name, reply.consent.signature)
        elif self.step == "ask_opening":
            masked.check_opening(reply.opening)
            masking.take_opening(name, masked.opening_from_wire(reply.opening))

    def advance(self) -> None:
        """See :class:`Ballot`."""
        self._masking.advance()
        at = self._steps.index(self.step) + 1
        self.step = self._steps[at] if at < len(self._steps) else ""

    def result(self) -> Sum:
        """Return the sum.

        Raises:
            ProtocolError: if its rows cannot be votes of the survivors' teachers. Somebody sent
                what are no votes, and the masks hide who.
        """
        residues = self._masking.result()
        survivors = set(self._masking.survivors)
        responders = tuple(name for name in self._teachers if name in survivors)
        teachers = sum(self._teachers[name] for name in responders)
        share = share_of(self._campaign)
        try:
            if share is None:
                return Sum(Histogram(residues, teachers), responders)
            counts: Counts = np.asarray(centred(residues, self._context.bits), dtype=np.int64)
            check_row_totals(counts, teachers, share, len(responders))
        except ProtocolError as error:
            raise ProtocolError(
                f"the sum of the votes of {', '.join(responders)} is not one of {teachers} "
                f"teachers: {error}. One of them sent what are no votes, and no label leaves; the "
                "masks hide who it was: ask them, and start a campaign without that party"
            ) from error
        return Sum(NoisySum(counts, teachers), responders)


def _to_wire(batch: Batch) -> vote_pb2.Batch:
    return vote_pb2.Batch(rows=batch.rows, digest=batch.digest)
