"""A party's own ledger: answers are durable before anything leaves.

If an entry cannot be made durable, the error stops the caller from sending anything.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Figure, LedgerView, Totals, cumulative_epsilon
from party.ledger.bundles import BundlesMade, BundleUsed
from party.ledger.entries import RULES, Answered, Described, Ended, Lost, Sent, Unmasked
from party.ledger.file import HeadFile, LedgerFile
from party.ledger.synthesis import Spent
from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.storage.ledger import Log

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Self

    from party.ledger.accountant import Bound
    from party.ledger.bundles import ListedBundle
    from party.ledger.sent_votes import Answer
    from party.ledger.state import Campaign, LedgerState
    from party.ledger.synthesis import Synthesis, SynthesisRecord
    from pate.accounting.filters import Delta
    from pate.campaign.offer import Offer
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


class PartyLedger:
    """The ledger of one party's home; opening reads and verifies the whole chain.

    A method that records raises a RefusedError or a ProtocolError if the rules do not admit the
    entry, and a DiskError if it cannot be made durable: then nothing may leave. ``allow_other`` is
    the policy's ``repeat_queries``: whether to answer queries that *another* campaign had other
    votes on, or unmasked with other survivors. A ledger that is damaged, missing or older than the
    noted head is a LedgerError. ``now``, which dates entries, is only informative. ``read_only``
    opens it also while a party runs.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        read_only: bool = False,
    ) -> None:
        self._file = file = LedgerFile(path, read_only=read_only)
        self._log: Log[LedgerState] = Log(
            file,
            RULES,
            file.found,
            now=lambda: now().astimezone(UTC).isoformat(timespec="seconds"),
            written="party-entry-written",
            again=file.read,
        )
        self._now = now
        self._turn = threading.Lock()
        if file.head_file is not None and file.head_file.loss_noted:
            if self._log.state.in_series:
                self._log.append(Lost())
            file.head_file.loss_recorded()

    @classmethod
    def newest(cls, path: Path) -> Self | None:
        """Return the ledger at ``path``, read only and checked as at a start, or None.

        For callers that act on its content. Nothing is written, and a party may run meanwhile.
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
        return self._file.path

    @property
    def head(self) -> str:
        """Number and digest of the last entry: stored elsewhere, it reveals truncation."""
        return str(self._log.head)

    # --- recording ---------------------------------------------------------------------------

    def join(self, offer: Offer) -> None:
        """Record that this party takes part, or newly known terms of the campaign."""
        with self._turn:
            state, now = self._log.state, self._now()
            if offer.campaign not in state.joined:
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
        """Check the rules of :meth:`answer` without recording; without tags votes are not known yet."""
        if answer.tags:
            _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            state = self._log.state
            current = state.joined.get(offer.campaign)
            known = offer if current is None else offer.after(current.offer)
            step = self._answered(offer, answer, allow_other=allow_other)
            seq = self._log.head.seq + 1
            step.check(state, step.given(known), seq, allow_other=allow_other)
            self._require_room(offer, answer)

    def voted(self, offer: Offer, units: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of these units that have voted in another campaign of the offer's series."""
        with self._turn:
            return self._log.state.voted(offer, units)

    def answered(self, campaign: str, batch: bytes) -> bool:
        """Return whether votes on a batch have left, or were about to leave."""
        with self._turn:
            return self._log.state.holds(campaign, batch.hex())

    def answer(
        self,
        offer: Offer,
        answer: Answer,
        *,
        allow_other: bool = False,
    ) -> None:
        """Record that votes on a batch are about to leave."""
        _require_one_each(answer.tags, answer.hashes)
        with self._turn:
            step = self._answered(offer, answer, allow_other=allow_other)
            self._learn(offer)
            self._require_room(offer, answer)
            self._log.append(step)

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
        """
        with self._turn:
            state = self._log.state
            if state.opened_as(campaign, batch.hex(), query_hashes, survivors):
                return  # nothing new leaves
            names, hashes = tuple(survivors), tuple(query_hashes)
            self._log.append(Unmasked(campaign, batch.hex(), names, allow_other, hashes))

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
        """Record the server's report of the end of a campaign; a repetition is not recorded."""
        with self._turn:
            step = Ended(
                campaign, queries_asked, labels_released, float(epsilon), float(delta), cause
            )
            current = self._log.state.campaign(campaign)
            if current.ending is not None and current.ending == step.record(current.ending.at):
                return
            if current.endings >= MOST_ENDINGS:
                raise RefusedError(f"the server has reported {MOST_ENDINGS} ends of this campaign")
            self._log.append(step)

    def send(self, campaign: str, *, number: int, answers: bytes, digest: bytes, size: int) -> None:
        """Record that a file with our answers is about to leave; a repetition is not recorded."""
        with self._turn:
            files = self._log.state.campaign(campaign).files
            sent = files.get(answers.hex())
            if sent is not None and sent.digest == digest.hex():
                return
            if len(files) >= MOST_FILES:
                raise RefusedError(
                    f"{MOST_FILES:,} envelopes of this campaign were answered: no more"
                )
            self._log.append(Sent(campaign, number, answers.hex(), digest.hex(), size))

    def list_bundles(self, roster: bytes, first: int, bundles: Sequence[bytes]) -> None:
        """Record that bundles are about to leave; a repetition is not recorded."""
        with self._turn:
            new = self._log.state.bundles.new(roster, first, bundles)
            if new:
                made = tuple(bundles[new.start : new.stop])
                self._log.append(BundlesMade(roster, first + new.start, made))

    def use_bundle(self, bundle: bytes, round_: bytes) -> None:
        """Record that votes are about to be masked with a bundle; a repetition is not recorded."""
        with self._turn:
            if not self._log.state.bundles.has_used(bundle, round_):
                self._log.append(BundleUsed(bundle, round_))

    def reserve(self, synthesis: Synthesis) -> None:
        """Record that a release of synthetic rows is about to read the data; it counts from now on."""
        with self._turn:
            self._log.append(synthesis)

    def spend(self, synthesis: str, *, output: str, model: str | None = None) -> None:
        """Record that the rows of a release are in their file."""
        with self._turn:
            self._log.append(Spent(synthesis, model, output))

    def bind(self, bound: Bound) -> bool:
        """Record the bound of this home's own accountant; it covers all earlier releases, too.

        It comes only from the site's own policy. Returns whether the bound changed. No entry is
        written if there is no bound and never was one.
        """
        with self._turn:
            if not bound.changes(self._log.state.bounds):
                return False
            self._log.append(bound)
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
        """
        with self._turn:
            current = None if batch is None else batch.hex()
            return self._log.state.view(offer, current, query_hashes)

    def find(self, campaign: str) -> Campaign | None:
        """Return what is recorded of a campaign, None if it was never joined."""
        with self._turn:
            current = self._log.state.joined.get(campaign)
            return None if current is None else current.copy()

    def offer_of(self, campaign: str) -> Offer | None:
        """Return the terms of a campaign, None if it was never joined; cheaper than :meth:`find`."""
        with self._turn:
            current = self._log.state.joined.get(campaign)
            return None if current is None else current.offer

    def campaigns(self) -> tuple[Campaign, ...]:
        """Return all campaigns, in the order in which they were joined."""
        with self._turn:
            return self._log.state.campaigns()

    def totals(self) -> tuple[Totals, ...]:
        """Return totals of the answers, by campaign."""
        with self._turn:
            return self._log.state.totals()

    def syntheses(self) -> tuple[SynthesisRecord, ...]:
        """Return all releases of synthetic rows, in the order in which they were reserved."""
        with self._turn:
            return tuple(self._log.state.syntheses.values())

    def paid_model(self, model: str) -> SynthesisRecord | None:
        """Return the release that paid for a model, by the digest of its file, hex; else None."""
        paid = (
            each
            for each in self.syntheses()
            if each.model == model and each.synthesis.parent is None
        )
        return next(paid, None)

    def bundles(self) -> tuple[ListedBundle, ...]:
        """Return all bundles that left, in the order in which they were listed."""
        with self._turn:
            return self._log.state.bundles.bundles()

    def bounds(self) -> tuple[Bound, ...]:
        """Return all bounds of this home's own accountant, the first one first."""
        with self._turn:
            return self._log.state.bounds

    def cumulative_epsilon(self, delta: Delta, *more: Synthesis) -> Figure:
        """Return the epsilon of all answers and synthetic rows; see :mod:`party.ledger.accountant`."""
        syntheses = (*(each.synthesis for each in self.syntheses()), *more)
        return cumulative_epsilon(self.totals(), delta, syntheses)

    def verify(self) -> str:
        """Read the file again, verify every entry, and return the head of the chain."""
        with self._turn:
            self._log.state  # noqa: B018 — reads what another process wrote
            if self._file.read()[1] != self._log.head:
                raise LedgerError(f"{self.path} has other entries than this process wrote")
            return self.head

    def require(self, head: Head) -> None:
        """Check that the file has an entry known from elsewhere."""
        if head != self._log.head:  # also of an empty ledger
            self._file.require(head)

    def _require_room(self, offer: Offer, answer: Answer) -> None:
        """Check that an honest server may still need an answer: each is in the ledger for ever."""
        current, name = self._log.state.joined.get(offer.campaign), offer.campaign[:8]
        record = None if current is None else current.batches.get(answer.batch.hex())
        asked = 0 if current is None else current.asked
        if record is not None and len(record.answered_at) >= MOST_AGAIN:
            raise RefusedError(
                f"votes on batch {answer.batch.hex()[:8]} of campaign {name} have left {MOST_AGAIN:,} "
                "times: no more"
            )
        most = MOST_ASKED * offer.announced.rounds * offer.announced.queries
        if record is None and asked + len(answer.hashes) > most:
            raise RefusedError(
                f"campaign {name} has asked for votes on {asked:,} queries in all its batches, "
                f"{MOST_ASKED} times what its terms state: no more"
            )

    def _learn(self, offer: Offer) -> None:
        if self._log.state.needs(offer):
            self._log.append(Described(offer))

    def _answered(self, offer: Offer, answer: Answer, *, allow_other: bool) -> Answered:
        again = self._log.state.holds(offer.campaign, answer.batch.hex())
        return Answered.of(offer.campaign, answer, allow_other=allow_other, again=again)


def _require_one_each(tags: Sequence[bytes], hashes: Sequence[bytes]) -> None:
    if len(tags) != len(hashes):
        raise ProtocolError(f"{len(tags)} tags of votes on {len(hashes)} queries")
