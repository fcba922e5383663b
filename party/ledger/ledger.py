"""A party's own ledger: answers are durable before anything leaves.

If an entry cannot be made durable, the error stops the caller from sending anything.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Figure, LedgerView, Totals, cumulative_epsilon
from party.ledger.bounds import BOUND
from party.ledger.campaigns import Entry
from party.ledger.entry_log import EntryLog
from party.ledger.head_file import HeadFile
from party.ledger.records import CampaignRecord, EndingRecord
from party.ledger.sent_votes import Answer, Given, matrix_of, queries_digest, tags_digest
from party.ledger.series import UnitVotes
from party.ledger.synthesis import RESERVED, SPENT, Synthesis, SynthesisRecord
from pate.errors import ProtocolError, RefusedError
from pate.masking.ahead.store import MADE, USED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from party.ledger.bounds import Bound
    from pate.accounting.filters import Delta
    from pate.campaign.offer import Offer
    from pate.masking.ahead.store import ListedBundle
    from pate.storage.hash_chain import Head

#: Name of the file in a party's home.
LEDGER_FILE: Final = "ledger.db"
#: Most reports of the end of one campaign that are recorded: each resume has one, and a server that sends
#: others without end would fill the disk.
MOST_ENDINGS: Final = 64
#: Most campaigns of one key that are joined within a time and have had no votes: each is in the ledger
#: for ever, and a server could describe others without end.
MOST_UNANSWERED: Final = 64
UNANSWERED_FOR: Final = timedelta(days=7)
#: Most envelopes of one campaign that are answered.
MOST_FILES: Final = 4_096
#: Most times that votes on one batch leave, and most queries of all batches of a campaign, as a multiple of
#: the votes that its terms state: an attempt at a sum that is not completed is an entry, too.
MOST_AGAIN: Final = 1_024
MOST_ASKED: Final = 64


def _utc() -> datetime:
    return datetime.now(UTC)


class PartyLedger:
    """The ledger of one party's home.

    Opening reads and verifies the whole chain.

    Args:
        path: the file; created if absent.
        now: the clock that dates entries; informative only.
        read_only: open for reading, also while a party runs.

    Raises:
        LedgerError: if the file is damaged, its chain does not verify, or it is missing or older
            than the noted head.
        StateError: if it is absent and ``read_only``.
        DiskError: if it cannot be made or read.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] = _utc,
        read_only: bool = False,
    ) -> None:
        self._log = EntryLog(path, now, read_only=read_only)
        self._now = now
        self._turn = threading.Lock()

    @classmethod
    def newest(cls, path: Path) -> Self | None:
        """Return the ledger at ``path``, read only and checked as at a start, or None.

        For callers that act on its content. Nothing is written, and a party may run meanwhile.

        Raises:
            LedgerError: if it does not verify, or is missing or older than the noted head.
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
        """Number and digest of the last entry: stored elsewhere, it reveals truncation."""
        return str(self._log.head)

    # --- recording ---------------------------------------------------------------------------

    def join(self, offer: Offer) -> None:
        """Record that this party takes part, or newly known terms of the campaign.

        Raises:
            RefusedError: if the terms contradict earlier ones, or too many campaigns of this key were
                joined lately and asked for no votes.
            DiskError: if it cannot be recorded; then nothing may leave.
        """
        with self._turn:
            state, now = self._log.state(), self._now()
            if state.campaign(offer.campaign) is None:
                lately = state.unanswered(offer.key, now - UNANSWERED_FOR, now)
                if len(lately) >= MOST_UNANSWERED:
                    free = lately[-MOST_UNANSWERED] + UNANSWERED_FOR
                    raise RefusedError(
                        f"{len(lately)} campaigns of this key were described to us within "
                        f"{UNANSWERED_FOR.days} days and have had no votes; another one is joined "
                        f"after {free:%Y-%m-%d %H:%M} UTC"
                    )
            self._learn(offer)

    def check_answer(
        self,
        offer: Offer,
        answer: Answer,
        *,
        allow_other: bool = False,
    ) -> None:
        """Check the rules of :meth:`answer` without recording; the campaign was joined.

        Arguments are the same; without tags the votes are not known yet.

        Raises:
            RefusedError: if votes on the batch may not leave.
        """
        if answer.tags:
            _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            self._check(offer, answer, allow_other=allow_other)

    def _check(self, offer: Offer, answer: Answer, *, allow_other: bool) -> None:
        entry = Entry(
            self._log.head.seq + 1,
            "answer",
            {},
            "",
            answer.hashes,
            answer.tags,
            answer.units or (),
        )
        current, batch = self._log.state(), answer.batch.hex()
        joined = current.campaign(offer.campaign)
        known = offer if joined is None else offer.after(joined.offer)
        matrix = matrix_of(known, batch)
        source, units = answer.source.hex(), _units_of(answer)
        given = Given(known, source, matrix, answer.view, units, answer.round)
        current.check_answer(
            given,
            batch,
            queries_digest(answer.hashes),
            entry,
            self._log.history,
            allow_other=allow_other,
        )

    def voted(self, offer: Offer, units: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of these units that have voted in another campaign of the offer's series.

        Args:
            offer: of the campaign in which they may vote.
            units: hashes; see :mod:`party.ledger.series`.
        """
        with self._turn:
            return self._log.state().voted(offer, units, self._log.history)

    def answered(self, campaign: str, batch: bytes) -> bool:
        """Return whether votes on a batch have left, or were about to leave."""
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
            offer: the terms of the request.
            answer: the votes, with their tags.
            allow_other: whether to answer queries that *another* campaign had other votes on; the
                policy's ``repeat_queries``.

        Raises:
            RefusedError: if the terms contradict earlier ones, the batch had other queries or votes
                before, the campaign had votes of another source, it has ended, or another campaign
                had other votes on one of the queries, or votes of another source; in a series, if
                one of the units has voted in another campaign of it; or the campaign has asked too often.
            ProtocolError: for invalid hashes or tags.
            DiskError: if it cannot be recorded; then no vote may leave.
        """
        digest, votes = queries_digest(answer.hashes), tags_digest(answer.tags)
        _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            self._learn(offer)
            self._require_room(offer, answer)
            again = self._log.state().holds(offer.campaign, answer.batch.hex())
            units = _units_of(answer)
            if units is not None:  # before the table is written, which refuses a unit that is there
                self._check(offer, answer, allow_other=allow_other)
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
                    **({} if units is None else {"series": units.to_dict()}),
                    **({"round": answer.round} if answer.round else {}),
                },
                answer.hashes,
                answer.tags,
                answer.units or (),
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
        """Record that this party's shares are about to unmask the sum of a batch.

        A repeated unmasking is allowed. No query is unmasked twice with different survivors: the
        difference of two sums would be the votes of parties that are in only one of them. With
        noise shares no query of a campaign is unmasked in two batches either, since each has its
        own noise; exact sums over the same survivors are equal, and reveal nothing new.

        Args:
            campaign: id, hex.
            batch: (32,) bytes, the digest of the batch.
            query_hashes: (queries,), 32 bytes each, in order.
            survivors: names of the parties in the sum.
            allow_other: whether to unmask queries that *another* campaign unmasked with other
                survivors; the policy's ``repeat_queries``.

        Raises:
            RefusedError: if an earlier unmasking of one of these queries forbids it.
            DiskError: if it cannot be recorded; then no share may leave.
        """
        with self._turn:
            state = self._log.state()
            if state.opened_as(campaign, batch.hex(), query_hashes, survivors):
                return  # nothing new leaves
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
        cause: str = "",
    ) -> None:
        """Record the server's report of the end of a campaign; a repetition is not recorded.

        Raises:
            RefusedError: for a campaign that was never joined, or has ended too often.
            DiskError: if it cannot be recorded.
        """
        with self._turn:
            ending = EndingRecord(
                queries_asked, labels_released, float(epsilon), float(delta), "", cause
            )
            if self._log.state().ended_as(campaign, ending):
                return
            if self._log.state().endings(campaign) >= MOST_ENDINGS:
                raise RefusedError(f"the server has reported {MOST_ENDINGS} ends of this campaign")
            self._log.append(
                "ending",
                {
                    "campaign": campaign,
                    "queries_asked": queries_asked,
                    "labels_released": labels_released,
                    "epsilon": ending.epsilon,
                    "delta": ending.delta,
                    **({"cause": cause} if cause else {}),
                },
            )

    def send(self, campaign: str, *, number: int, answers: bytes, digest: bytes, size: int) -> None:
        """Record that a file with our answers is about to leave; a repetition is not recorded.

        Args:
            campaign: id, hex.
            number: of the envelope that it answers.
            answers: (32,) bytes, SHA-256 of that file.
            digest: (32,) bytes, SHA-256 of our file.
            size: of our file, in bytes.

        Raises:
            RefusedError: if another file has answered the same one, the campaign was never joined, or
                too many of its envelopes were answered.
            DiskError: if it cannot be recorded; then the file may not leave.
        """
        with self._turn:
            state = self._log.state()
            if state.sent(campaign, answers.hex(), digest.hex()):
                return
            current = state.campaign(campaign)
            if current is not None and len(current.files) >= MOST_FILES:
                raise RefusedError(
                    f"{MOST_FILES:,} envelopes of this campaign were answered: no more"
                )
            self._log.append(
                "file",
                {
                    "campaign": campaign,
                    "number": number,
                    "answers": answers.hex(),
                    "file": digest.hex(),
                    "size": size,
                },
            )

    def list_bundles(self, roster: bytes, first: int, bundles: Sequence[bytes]) -> None:
        """Record that bundles are about to leave; a repetition is not recorded.

        Args:
            roster: (32,) bytes, digest of the parties that they are made for.
            first: number of the first.
            bundles: digests, 32 bytes each, by number.

        Raises:
            RefusedError: if another bundle of one of these numbers left before.
            DiskError: if it cannot be recorded; then none may leave.
        """
        digests = [each.hex() for each in bundles]
        with self._turn:
            new = self._log.state().bundles.new(roster.hex(), first, digests)
            if new:
                made = digests[new.start : new.stop]
                self._log.append(
                    MADE, {"roster": roster.hex(), "first": first + new.start, "made": [*made]}
                )

    def use_bundle(self, bundle: bytes, round_: bytes) -> None:
        """Record that votes are about to be masked with a bundle; a repetition is not recorded.

        Args:
            bundle: (32,) bytes, its digest.
            round_: (32,) bytes, digest of the round.

        Raises:
            RefusedError: if it is not listed, or masked in another round.
            DiskError: if it cannot be recorded; then nothing may be masked.
        """
        with self._turn:
            if not self._log.state().bundles.has_used(bundle.hex(), round_.hex()):
                self._log.append(USED, {"bundle": bundle.hex(), "round": round_.hex()})

    def reserve(self, synthesis: Synthesis) -> None:
        """Record that a release of synthetic rows is about to read the data; it counts from now on.

        Raises:
            RefusedError: if its model was not paid for here, or it was reserved before.
            DiskError: if it cannot be recorded; then no data may be read.
        """
        with self._turn:
            self._log.append(RESERVED, synthesis.to_dict())

    def spend(self, synthesis: str, *, output: str, model: str | None = None) -> None:
        """Record that the rows of a release are in their file.

        Args:
            synthesis: id of the release, hex.
            output: digest of the file, hex.
            model: digest of its model's file, hex, if that was stored.

        Raises:
            RefusedError: if it was never reserved, or was recorded before.
            DiskError: if it cannot be recorded.
        """
        with self._turn:
            self._log.append(SPENT, {"id": synthesis, "model": model, "output": output})

    def bind(self, bound: Bound) -> bool:
        """Record the bound of this home's own accountant; it covers all earlier releases, too.

        It comes only from the site's own policy. Returns whether the bound changed. No entry is
        written if there is no bound and never was one.

        Raises:
            DiskError: if it cannot be recorded; then nothing may leave.
        """
        with self._turn:
            if not self._log.state().bounds.differs(bound):
                return False
            self._log.append(BOUND, bound.to_dict())
            return True

    # --- reading -----------------------------------------------------------------------------

    def view(
        self,
        offer: Offer,
        batch: bytes | None = None,
        query_hashes: Sequence[bytes] | None = None,
    ) -> LedgerView:
        """Return the ledger after ``offer`` is answered, for a policy.

        Without a batch and hashes all of ``offer.queries`` count as new.

        Raises:
            RefusedError: if the terms contradict earlier ones.
            UsageError: if the number of hashes is not ``offer.queries``.
        """
        with self._turn:
            current = None if batch is None else batch.hex()
            return self._log.state().view(offer, current, query_hashes, self._log.history)

    def find(self, campaign: str) -> CampaignRecord | None:
        """Return the record of a campaign, None if it was never joined."""
        with self._turn:
            current = self._log.state().campaign(campaign)
            return None if current is None else current.record()

    def offer_of(self, campaign: str) -> Offer | None:
        """Return the terms of a campaign, None if it was never joined; cheaper than :meth:`find`."""
        with self._turn:
            current = self._log.state().campaign(campaign)
            return None if current is None else current.offer

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return all campaigns, in the order in which they were joined."""
        with self._turn:
            return self._log.state().campaigns()

    def totals(self) -> tuple[Totals, ...]:
        """Return totals of the answers, by campaign."""
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

    def bundles(self) -> tuple[ListedBundle, ...]:
        """Return all bundles that left, in the order in which they were listed."""
        with self._turn:
            return self._log.state().bundles.bundles()

    def bounds(self) -> tuple[Bound, ...]:
        """Return all bounds of this home's own accountant, the first one first."""
        with self._turn:
            return self._log.state().bounds.all

    def cumulative_epsilon(self, delta: Delta, *more: Synthesis) -> Figure:
        """Return the epsilon of all answers and synthetic rows; see :mod:`party.ledger.accountant`.

        Args:
            delta: failure probability of the whole, with its parts.
            more: releases to include that are not in the ledger yet.
        """
        syntheses = (*(each.synthesis for each in self.syntheses()), *more)
        return cumulative_epsilon(self.totals(), delta, syntheses)

    def verify(self) -> str:
        """Read the file again, verify every entry, and return the head of the chain.

        Raises:
            LedgerError: if it does not verify, or differs from what this process wrote.
        """
        with self._turn:
            self._log.verify()
            return self.head

    def require(self, head: Head) -> None:
        """Check that the file has an entry known from elsewhere.

        Raises:
            LedgerError: if it is not.
        """
        if head != self._log.head:  # also of an empty ledger
            self._log.require(head)

    def _require_room(self, offer: Offer, answer: Answer) -> None:
        """Check that an honest server may still need an answer: each is in the ledger for ever."""
        current, name = self._log.state().campaign(offer.campaign), offer.campaign[:8]
        if current is None:
            return
        record = current.batches.get(answer.batch.hex())
        if record is not None and len(record.answered_at) >= MOST_AGAIN:
            raise RefusedError(
                f"votes on batch {answer.batch.hex()[:8]} of campaign {name} have left {MOST_AGAIN:,} "
                "times: no more"
            )
        most = MOST_ASKED * offer.rounds * offer.public_queries
        if record is None and current.asked + len(answer.hashes) > most:
            raise RefusedError(
                f"campaign {name} has asked for votes on {current.asked:,} queries in all its batches, "
                f"{MOST_ASKED} times what its terms state: no more"
            )

    def _learn(self, offer: Offer) -> None:
        if self._log.state().needs(offer):
            self._log.append("offer", {"offer": offer.to_dict()})


def _units_of(answer: Answer) -> UnitVotes | None:
    return None if answer.units is None else UnitVotes.of(answer.known_by, answer.units)


def _require_one_each(tags: Sequence[bytes], hashes: Sequence[bytes]) -> None:
    if len(tags) != len(hashes):
        raise ProtocolError(f"{len(tags)} tags of votes on {len(hashes)} queries")
