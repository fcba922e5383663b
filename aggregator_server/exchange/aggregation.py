"""Aggregation of one batch: plain in one step, or masked in five.

An aggregation gives the next request for each party and takes its answer. It knows nothing about
nodes, time or connections; :class:`~aggregator_server.exchange.exchange.Exchange` does, and decides
how long a step waits.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np

from aggregator_server.exchange.store import EARLY
from pate.codes import code_of
from pate.errors import ProtocolError, QuorumError
from pate.masking.context import Phase
from pate.masking.proofs.transcript import commit_seed
from pate.masking.ring import centred
from pate.masking.server import ServerMasking, SumServer
from pate.noise.share_laws import GaussianShares
from pate.noise.shares import check_row_totals
from pate.votes import Counts, Histogram, LooseSum, NoisySum, check_cast
from protos import masked, wire
from protos.masked import bits_from_names
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pate.campaign.offer import Offer
    from pate.campaign.roster import RosterParty
    from pate.votes import Total

#: The field of the answer to each step.
ANSWERS: Final = {
    "ask": "votes",
    "ask_keys": "keys",
    "ask_shares": "boxes",
    "ask_masked": "masked",
    "ask_proof": "proof",
    "ask_consent": "consent",
    "ask_opening": "opening",
    "ask_bundles": "bundles",
    EARLY: "bundles",
    "ask_masked_ahead": "masked_ahead",
    "ask_consent_ahead": "consent",
    "ask_opening_ahead": "opening",
}
#: Names of the answers to the steps of a masked sum, for screens: one for each phase, in order.
_MASKED: Final = {
    "ask_keys": "keys",
    "ask_shares": "key shares",
    "ask_masked": "masked votes",
    "ask_proof": "proofs of votes",
    "ask_consent": "signatures of the list of survivors",
    "ask_opening": "shares that unmask the sum",
}
_ASKS: Final = dict(zip(Phase, _MASKED, strict=False))
#: Names of the answers to all steps.
STEPS: Final = {
    "ask": "votes",
    "ask_bundles": "keys ahead",
    **_MASKED,
    **{f"{asks}_ahead": answer for asks, answer in _MASKED.items()},
}


@dataclass(frozen=True)
class Batch:
    """Rows of the public set that are voted on together."""

    rows: tuple[int, ...]  # indices into the public set, each once
    digest: bytes  # SHA-256 over the hashes of these queries, in this order, 32 bytes
    round: int = 0  # in which records vote on them, from 1; 0 where they do not vote in rounds
    shown: bytes = b""  # bytes of the model that the round shows


@dataclass(frozen=True)
class Sum:
    """The votes of one batch, summed."""

    total: Total  # the sum, including the parties' noise if they add any
    responders: tuple[str, ...]  # names of the parties in it, in the order of the roster


class Steps(Protocol):
    """Steps that parties are taken through together."""

    #: Name of the current step, of :data:`STEPS`; empty when all are done.
    step: str

    @property
    def first(self) -> bool:
        """Whether this is the first step, which a restarted party can still join."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The parties that must all answer this step; empty if any may be missing."""

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that may answer this step, whether or not they have."""

    @property
    def answered(self) -> frozenset[str]:
        """The parties that have answered this step."""

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return the request to a party in this step."""

    def take(self, party: RosterParty, reply: vote_pb2.Reply) -> None:
        """Take a party's answer to this step; ProtocolError if it is not acceptable changes nothing."""

    def advance(self) -> None:
        """Continue to the next step with the parties that answered, if they are enough."""


class Aggregation(Steps, Protocol):
    """The steps of collecting the votes on one batch."""

    def result(self) -> Sum:
        """Return the sum, once all steps are done, if it can be that of what the parties declared."""


class OneStep:
    """A step in which all parties are asked the same, and any may be missing."""

    first: ClassVar[bool] = True
    needed: ClassVar[tuple[str, ...]] = ()

    def __init__(self, step: str, parties: Collection[str], least: int, sent: str) -> None:
        self.step = step
        self.awaited = frozenset(parties)
        self.answered: frozenset[str] = frozenset()
        self._least = least
        self._sent = sent  # what parties do in it, in words

    def advance(self) -> None:
        """See :class:`Aggregation`."""
        if len(self.answered) < self._least:
            raise QuorumError(
                f"{len(self.answered)} parties {self._sent}, {self._least} are needed"
            )
        self.step = ""


class PlainAggregation(OneStep):
    """One step: every party sends its votes in the clear."""

    def __init__(
        self, campaign: Offer, roster: Sequence[RosterParty], batch: Batch, least: int
    ) -> None:
        self._roster = tuple(party.name for party in roster)
        super().__init__("ask", self._roster, least, "answered")
        self._classes = len(campaign.announced.classes or ())
        self._batch = batch
        announced = campaign.announced
        self._code = code_of(announced.code) if announced.one_release else None
        # Only the sum is stored, not a thousand matrices.
        self._total: Counts = np.zeros((len(batch.rows), self._classes), dtype=np.int64)
        self._teachers: dict[str, int] = {}

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return the request for votes."""
        del name  # the same for all
        return vote_pb2.PartyRequest(ask=vote_pb2.Ask(batch=batch_to_wire(self._batch)))

    def take(self, party: RosterParty, reply: vote_pb2.Reply) -> None:
        """Take a party's vote matrix; see :class:`Aggregation`."""
        counts = wire.read_votes(
            reply.votes,
            teachers=party.teachers,
            classes=self._classes,
            queries=len(self._batch.rows),
            batch=self._batch.digest,
            code=self._code,
        )
        if party.name not in self._teachers:
            self._teachers[party.name] = party.teachers
            self._total += counts
            self.answered |= {party.name}

    def result(self) -> Sum:
        """Return the sum; each part was checked on arrival."""
        responders = tuple(name for name in self._roster if name in self._teachers)
        teachers = sum(self._teachers.values())
        if self._code is None:
            return Sum(Histogram(self._total, teachers), responders)
        return Sum(LooseSum(self._total, teachers, self._code), responders)


#: The request that begins a masked sum, and the server's side of it.
Opens = TypeVar("Opens", vote_pb2.AskKeys, vote_pb2.AskMaskedAhead)
Masking = TypeVar("Masking", bound=SumServer)


class MaskedSteps(ABC, Generic[Opens, Masking]):
    """The steps of a masked sum: its keys come first and its state is in memory, or both are durable."""

    #: What the names of requests end with.
    _ending: ClassVar[str] = ""
    #: The phases in which the ledger has the list of survivors.
    _listed: ClassVar[Collection[Phase]] = (Phase.UNMASK, Phase.DONE)

    def __init__(
        self,
        campaign: Offer,
        roster: Sequence[RosterParty],
        opens: Opens,  # the request that fixes the attempt and its batch
        masking: Masking,
        # called with the names of the parties in the sum, in the order of the roster, once they are
        # fixed and before any party can unmask it. If it raises none is asked to
        before_opening: Callable[[tuple[str, ...]], None],
        everybody: tuple[str, ...],  # the parties that must all vote; empty: some may be missing
    ) -> None:
        self._campaign = campaign
        self._teachers = {party.name: party.teachers for party in roster}
        self._opens: Opens = opens
        self._masking = masking
        self._before_opening = before_opening
        self._everybody = everybody
        self.attempt = opens.attempt  # 16 random bytes that bind all messages of these steps
        self.step = _step(masking.phase, self._ending)

    @property
    def needed(self) -> tuple[str, ...]:
        """The parties that must all vote, until their votes are in the sum; later a threshold will do."""
        return () if self._masking.survivors else self._everybody

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that may answer this step."""
        return self._masking.awaited

    @property
    def answered(self) -> frozenset[str]:
        """The parties that answered this step."""
        return self._masking.answered

    @property
    def survivors(self) -> tuple[str, ...]:
        """The parties in the sum, in the order of the roster; empty until they are fixed."""
        return tuple(name for name in self._teachers if name in self._masking.survivors)

    def request(self, name: str) -> vote_pb2.PartyRequest:
        """Return the request to a party, with the other parties' data that this step needs."""
        asked = vote_pb2.PartyRequest()
        body = getattr(asked, self.step)
        if type(body) is type(self._opens):
            body.CopyFrom(self._opens)
        body.attempt = self.attempt
        self._fill(body, name)
        return asked

    @abstractmethod
    def _fill(self, asked: Any, name: str) -> None:
        """Put into a request what its step needs."""

    def take(self, party: RosterParty, reply: vote_pb2.Reply) -> None:
        """Take a party's answer to this step; see :class:`Aggregation`."""
        name, masking = party.name, self._masking
        if name not in self.awaited:
            fixed = ": its list is fixed" if masking.survivors else ""
            raise ProtocolError(f"{name} has no part in this step of a masked sum{fixed}")
        if masking.phase is Phase.CONSISTENCY:
            masking.take_signature(name, reply.consent.signature)
        elif masking.phase is Phase.UNMASK:
            masked.check_unmasking(reply.opening)
            masking.take_unmasking(name, masked.unmasking_from_wire(reply.opening))
        else:
            self._take(name, reply)
        self._commit()

    @abstractmethod
    def _take(self, name: str, reply: vote_pb2.Reply) -> None:
        """Take an answer to a step before the list of survivors."""

    def advance(self) -> None:
        """See :class:`Aggregation`."""
        if missing := sorted(frozenset(self.needed) - self.answered):
            raise QuorumError(
                f"no votes from {', '.join(missing)}, and no other sum may be unmasked"
            )
        masking, listed = self._masking, self._masking.phase in self._listed
        masking.advance()
        self._commit()
        if masking.phase in self._listed and not listed:
            self._before_opening(self.survivors)
        self.step = _step(masking.phase, self._ending)

    def result(self) -> Sum:
        """Return the sum; see :func:`checked_sum`."""
        teachers = {name: self._teachers[name] for name in self.survivors}
        bits, round_ = self._masking.context.matrix.bits, self._opens.batch.round
        return checked_sum(self._campaign, teachers, self._masking.result(), bits, round_)

    def _commit(self) -> None:
        """Have the state outlive this process, if it is to, before anything follows from it."""


def _step(phase: Phase, ending: str) -> str:
    return "" if phase is Phase.DONE else _ASKS[phase] + ending


class MaskedAggregation(MaskedSteps[vote_pb2.AskKeys, ServerMasking]):
    """Five steps, six with proofs of votes, which reveal only the sum."""

    def __init__(
        self,
        campaign: Offer,
        roster: Sequence[RosterParty],
        batch: Batch,
        *,
        # names of the parties that may be in the sum, in the order of the roster; None: all
        only: tuple[str, ...] | None = None,
        all_needed: bool = True,  # whether all of these must be: parties unmask it only with them
        before_opening: Callable[[tuple[str, ...]], None] = lambda _: None,
    ) -> None:
        attempt = wire.new_id()
        # Drawn for each attempt, and revealed when all masked votes are in.
        seed = secrets.token_bytes(masked.SEED_BYTES) if campaign.announced.vote_proofs else None
        opens = vote_pb2.AskKeys(
            attempt=attempt,
            batch=batch_to_wire(batch),
            seed_hash=b"" if seed is None else commit_seed(seed),
        )
        masking = ServerMasking(masked.context_of(campaign, opens), seed=seed)
        self._only = only
        everybody = (only or ()) if all_needed else ()
        super().__init__(campaign, roster, opens, masking, before_opening, everybody)

    @property
    def first(self) -> bool:
        """Whether keys are being collected: a party that restarts later has lost its secrets."""
        return self._masking.phase is Phase.KEYS

    @property
    def awaited(self) -> frozenset[str]:
        """The parties that answered every earlier step."""
        awaited = super().awaited
        return awaited if self._only is None else awaited & frozenset(self._only)

    def _fill(self, asked: Any, name: str) -> None:
        masking, names = self._masking, self._masking.context.names
        match masking.phase:
            case Phase.SHARES:
                keys, outline = masking.keys_for(name), masking.outline_for(name)
                asked.MergeFrom(masked.keys_request(self.attempt, keys, outline, names))
            case Phase.MASKED:
                asked.boxes.extend(masked.boxes_to_wire(masking.boxes_for(name)))
            case Phase.PROOFS:
                asked.seed = masking.seed
            case Phase.CONSISTENCY:
                asked.survivors = bits_from_names(masking.survivors, names)
            case Phase.UNMASK:
                asked.signatures.extend(masked.signatures_to_wire(masking.signatures))

    def _take(self, name: str, reply: vote_pb2.Reply) -> None:
        masking = self._masking
        match masking.phase:
            case Phase.KEYS:
                masked.check_keys(reply.keys)
                masking.take_keys(name, masked.keys_from_wire(reply.keys))
            case Phase.SHARES:
                masked.check_boxes(reply.boxes.boxes)
                masking.take_boxes(name, masked.boxes_from_wire(reply.boxes.boxes))
            case Phase.MASKED:
                masking.take_masked(name, reply.masked.packed)
            case Phase.PROOFS:
                masking.take_proof(name, reply.proof.content)


def checked_sum(
    campaign: Offer,
    teachers: Mapping[str, int],  # of each party in the sum, by name, in the order of the roster
    residues: Counts,  # (rows, classes) int64 in [0, 2^bits)
    bits: int,
    round_: int,  # in which records voted; 0 where they do not vote in rounds
) -> Sum:
    """Return a masked sum that was unmasked, if its rows can be votes."""
    responders, most = tuple(teachers), sum(teachers.values())
    shares = campaign.require_settled().shares(round_)
    loose, code = campaign.announced.one_release, code_of(campaign.announced.code)
    try:
        if shares is None and not loose:
            return Sum(Histogram(residues, most), responders)
        counts: Counts = residues
        if shares is not None or code.in_directions:
            counts = np.asarray(centred(residues, bits), dtype=np.int64)
        if shares is None:
            return Sum(LooseSum(counts, most, code), responders)
        if loose:
            reach = shares.reach(len(responders), counts.size)
            check_cast(counts, code, most, reach=reach)
        elif isinstance(shares, GaussianShares):
            check_row_totals(counts, most, shares.share, len(responders))
    except ProtocolError as error:
        raise ProtocolError(
            f"the sum of the votes of {', '.join(responders)} does not fit "
            f"{f'at most {most} votes a count' if loose else f'{most} teachers'}: "
            f"{error}. One of them sent invalid votes, and no label is released; the masks "
            "hide which one: ask them. A new campaign without that party needs other "
            "public inputs, or parties that allow repeats: they have unmasked these with it"
        ) from error
    return Sum(NoisySum(counts, most), responders)


def batch_to_wire(batch: Batch) -> vote_pb2.Batch:
    """Return a batch for the wire."""
    return vote_pb2.Batch(
        rows=batch.rows, digest=batch.digest, round=batch.round, shown=batch.shown
    )
