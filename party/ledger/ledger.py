"""A party's own ledger: what it answered, durable before anything leaves.

An entry that cannot be made durable is an error, and its caller then sends nothing.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Figure, LedgerView, Totals, cumulative_epsilon
from party.ledger.bounds import BOUND
from party.ledger.campaigns import Entry
from party.ledger.entry_log import EntryLog
from party.ledger.head_file import HeadFile
from party.ledger.records import CampaignRecord, EndingRecord
from party.ledger.sent_votes import Answer, Given, matrix_of, queries_digest, tags_digest
from party.ledger.synthesis import RESERVED, SPENT, Synthesis, SynthesisRecord
from pate.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from party.ledger.bounds import Bound
    from party.offer import Offer
    from pate.accounting.filters import Delta
    from pate.storage.hash_chain import Head

#: Name of the file in a party's home.
LEDGER_FILE: Final = "ledger.db"


def _utc() -> datetime:
    return datetime.now(UTC)


class PartyLedger:
    """The ledger of one party's home.

    Opening reads the whole chain and checks it.

    Args:
        path: the file; it is made if it is absent.
        now: the clock that dates entries; told, not relied upon.
        read_only: only look, also while a party runs.
        shared: other processes write here, too, in turn: what they wrote is read first. For
            simulations; a party has one process, and takes another's entries for a mistake.

    Raises:
        LedgerError: if the file is damaged, its chain does not hold, or it is gone or older than
            this party left it.
        StateError: if there is none and only looking was asked for.
        DiskError: if it cannot be made or read.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] = _utc,
        read_only: bool = False,
        shared: bool = False,
    ) -> None:
        self._log = EntryLog(path, now, read_only=read_only, shared=shared)
        self._turn = threading.Lock()

    @classmethod
    def newest(cls, path: Path) -> Self | None:
        """Return the ledger at ``path``, read only, if a start would take it; None: there never was one.

        For whoever acts on what it says. Nothing is written, and a party may run meanwhile.

        Raises:
            LedgerError: if it does not hold, or is gone or older than this party left it.
            StateError, DiskError: if it cannot be read.
        """
        head_file = HeadFile(path)
        head_file.require_ledger()
        if not path.exists():
            return None
        noted = head_file.read()  # before the ledger, which may be written to meanwhile
        ledger = cls(path, read_only=True)
        head_file.require_noted(noted, ledger.require)
        return ledger

    @property
    def path(self) -> Path:
        """The file."""
        return self._log.path

    @property
    def head(self) -> str:
        """Number and digest of the last entry: kept elsewhere, it shows if any were cut off."""
        return str(self._log.head)

    # --- what leaves -------------------------------------------------------------------------

    def join(self, offer: Offer) -> None:
        """Record that this party takes part, or what has become known of the campaign's terms.

        Raises:
            RefusedError: if the terms contradict what they were before.
            DiskError: if it cannot be recorded; then nothing may leave.
        """
        with self._turn:
            self._learn(offer)

    def check_answer(
        self,
        offer: Offer,
        answer: Answer,
        *,
        allow_other: bool = False,
    ) -> None:
        """Check what :meth:`answer` will, and record nothing; the campaign was joined.

        Arguments are as there; without tags the votes are not known yet.

        Raises:
            RefusedError: if votes on the batch may not leave.
        """
        digest = queries_digest(answer.hashes)
        if answer.tags:
            _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            entry = Entry(self._log.head.seq + 1, "answer", {}, "", answer.hashes, answer.tags)
            held, batch = self._log.state(), answer.batch.hex()
            joined = held.campaign(offer.campaign)
            known = offer if joined is None else offer.after(joined.offer)
            given = Given(known, answer.source.hex(), matrix_of(known, batch), answer.view)
            held.check_answer(
                given, batch, digest, entry, self._log.history, allow_other=allow_other
            )

    def answered(self, campaign: str, batch: bytes) -> bool:
        """Return whether votes on a batch have left, or were about to."""
        with self._turn:
            return self._log.state().holds(campaign, batch.hex())

    def answer(
        self,
        offer: Offer,
        answer: Answer,
        *,
        allow_other: bool = False,
    ) -> None:
        """Record that votes on a batch are about to leave.

        Args:
            offer: the terms as the request has them.
            answer: the votes, with their tags.
            allow_other: whether queries that *another* campaign had other votes on may be answered;
                the policy's ``repeat_queries``.

        Raises:
            RefusedError: if the terms contradict earlier ones, the batch had other queries or votes
                before, the campaign had votes of another source, it has ended, or another
                campaign had other votes on one of the queries, or votes of another source.
            ProtocolError: for hashes or tags that are none.
            DiskError: if it cannot be recorded; then no vote may leave.
        """
        digest, votes = queries_digest(answer.hashes), tags_digest(answer.tags)
        _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            self._learn(offer)
            again = self._log.state().holds(offer.campaign, answer.batch.hex())
            self._log.append(
                "answer",
                {
                    "campaign": offer.campaign,
                    "batch": answer.batch.hex(),
                    "queries": len(answer.hashes),
                    "queries_digest": digest,
                    "source": answer.source.hex(),
                    "votes": votes,
                    "view": answer.view,
                    "allow_other": allow_other,
                    "again": again,
                },
                answer.hashes,
                answer.tags,
                store=not again,
            )

    def open_batch(
        self,
        campaign: str,
        batch: bytes,
        query_hashes: Sequence[bytes],
        survivors: Sequence[str],
        *,
        allow_other: bool = False,
    ) -> None:
        """Record that the sum of a batch is about to be opened by this party's shares.

        The same opening may come again. No query is opened twice with different survivors: the
        difference of two sums is the votes of whoever is in one of them. With noise shares no query
        of a campaign is opened in two batches either, since each has noise of its own; exact sums
        over the same survivors are the same sum, and show nothing new.

        Args:
            campaign: id, hex.
            batch: (32,) bytes, the digest of the batch.
            query_hashes: (queries,), 32 bytes each, in order.
            survivors: names of the parties in the sum.
            allow_other: whether queries that *another* campaign opened with other survivors may be
                opened; the policy's ``repeat_queries``.

        Raises:
            RefusedError: if any of these queries was opened so that this may not be.
            DiskError: if it cannot be recorded; then no share may leave.
        """
        with self._turn:
            state = self._log.state()
            if state.opened_as(campaign, batch.hex(), query_hashes, survivors):
                return  # nothing that was not known leaves
            self._log.append(
                "opening",
                {
                    "campaign": campaign,
                    "batch": batch.hex(),
                    "survivors": list(survivors),
                    "allow_other": allow_other,
                },
                query_hashes,
            )

    def end(
        self,
        campaign: str,
        *,
        queries_asked: int,
        labels_released: int,
        epsilon: float,
        delta: float,
    ) -> None:
        """Record how the server says that a campaign has ended; said twice, it is recorded once.

        Raises:
            RefusedError: for a campaign that was never joined.
            DiskError: if it cannot be recorded.
        """
        with self._turn:
            ending = EndingRecord(queries_asked, labels_released, float(epsilon), float(delta), "")
            if self._log.state().ended_as(campaign, ending):
                return
            self._log.append(
                "ending",
                {
                    "campaign": campaign,
                    "queries_asked": queries_asked,
                    "labels_released": labels_released,
                    "epsilon": ending.epsilon,
                    "delta": ending.delta,
                },
            )

    def reserve(self, synthesis: Synthesis) -> None:
        """Record that a release of synthetic rows is about to look at the data; it counts from now on.

        Raises:
            RefusedError: if its model is none that was paid for here, or it was reserved before.
            DiskError: if it cannot be recorded; then no data may be looked at.
        """
        with self._turn:
            self._log.append(RESERVED, synthesis.to_dict())

    def spend(self, synthesis: str, *, output: str, model: str | None = None) -> None:
        """Record that the rows of a release are in their file.

        Args:
            synthesis: id of the release, hex.
            output: digest of the file, hex.
            model: digest of its model's file, hex, if that was kept.

        Raises:
            RefusedError: if it was never reserved, or was recorded before.
            DiskError: if it cannot be recorded.
        """
        with self._turn:
            self._log.append(SPENT, {"id": synthesis, "model": model, "output": output})

    def bind(self, bound: Bound) -> bool:
        """Record what this home's own accountant keeps from now on; it counts all that left before.

        Only the site's own policy says it. Return whether that is another bound than before. A
        home that never had one, and is to have none, has no entry.

        Raises:
            DiskError: if it cannot be recorded; then nothing may leave.
        """
        with self._turn:
            if not self._log.state().bounds.differs(bound):
                return False
            self._log.append(BOUND, bound.to_dict())
            return True

    # --- what is in it -----------------------------------------------------------------------

    def view(
        self,
        offer: Offer,
        batch: bytes | None = None,
        query_hashes: Sequence[bytes] | None = None,
    ) -> LedgerView:
        """Return the ledger as it will be once ``offer`` is answered; for a policy to look at.

        Without a batch and hashes all of ``offer.queries`` count as never asked before.

        Raises:
            RefusedError: if the terms contradict what they were before.
            UsageError: for another number of hashes than ``offer.queries``.
        """
        with self._turn:
            held = None if batch is None else batch.hex()
            return self._log.state().view(offer, held, query_hashes, self._log.history)

    def find(self, campaign: str) -> CampaignRecord | None:
        """Return what is known of a campaign, None if it was never joined."""
        with self._turn:
            held = self._log.state().campaign(campaign)
            return None if held is None else held.record()

    def offer_of(self, campaign: str) -> Offer | None:
        """Return the terms of a campaign, None if it was never joined; cheaper than :meth:`find`."""
        with self._turn:
            held = self._log.state().campaign(campaign)
            return None if held is None else held.offer

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return all campaigns, in the order in which they were joined."""
        with self._turn:
            return self._log.state().campaigns()

    def totals(self) -> tuple[Totals, ...]:
        """Return what was answered, by campaign."""
        with self._turn:
            return self._log.state().totals()

    def syntheses(self) -> tuple[SynthesisRecord, ...]:
        """Return all releases of synthetic rows, in the order in which they were reserved."""
        with self._turn:
            return self._log.state().syntheses.records()

    def paid_model(self, model: str) -> SynthesisRecord | None:
        """Return the release that paid for a model, by the digest of its file, hex; else None."""
        with self._turn:
            return self._log.state().syntheses.of_model(model)

    def bounds(self) -> tuple[Bound, ...]:
        """Return what this home's own accountant was to keep, the first bound first."""
        with self._turn:
            return self._log.state().bounds.all

    def cumulative_epsilon(self, delta: Delta, *more: Synthesis) -> Figure:
        """Return what all answers and synthetic rows are worth; see :mod:`party.ledger.accountant`.

        Args:
            delta: failure probability of the whole, with its parts.
            more: releases that are not in the ledger yet, to be counted in.
        """
        syntheses = (*(each.synthesis for each in self.syntheses()), *more)
        return cumulative_epsilon(self.totals(), delta, syntheses)

    def verify(self) -> str:
        """Read the file again, check every entry, and return the head of the chain.

        Raises:
            LedgerError: if it does not hold, or is not what this process wrote.
        """
        with self._turn:
            self._log.verify()
            return self.head

    def require(self, head: Head) -> None:
        """Check that an entry that is known from elsewhere is in the file.

        Raises:
            LedgerError: if it is not.
        """
        if head != self._log.head:  # of one without entries, too
            self._log.require(head)

    def _learn(self, offer: Offer) -> None:
        if self._log.state().needs(offer):
            self._log.append("offer", {"offer": offer.to_dict()})


def _require_one_each(tags: Sequence[bytes], hashes: Sequence[bytes]) -> None:
    if len(tags) != len(hashes):
        raise ProtocolError(f"{len(tags)} tags of votes on {len(hashes)} queries")
