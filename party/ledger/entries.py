"""The kinds of entries of a party's ledger about campaigns, each with its rule; and all its rules.

None contains a vote. Other kinds: :mod:`party.ledger.accountant`, :mod:`party.ledger.bundles` and
:mod:`party.ledger.synthesis`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Bound
from party.ledger.bundles import BundlesMade, BundleUsed
from party.ledger.sent_votes import (
    Given,
    How,
    check_exact,
    check_matrices,
    check_sources,
    check_unmasking,
    check_views,
    check_votes,
    exact_records,
    matrix_of,
    other_votes,
    queries_digest,
    tags_digest,
)
from party.ledger.series import UnitVotes, check_series
from party.ledger.state import BatchRecord, Campaign, EndingRecord, FileRecord
from party.ledger.synthesis import Spent, Synthesis
from pate.campaign.choices import EARLY_ENDS
from pate.campaign.offer import Offer  # noqa: TC001 — its reader looks it up
from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.exact import in_text
from pate.storage.hash_chain import Chain
from pate.storage.ledger import Rules, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.sent_votes import Answer
    from party.ledger.state import LedgerState
    from pate.storage.hash_chain import Entry
    from pate.storage.ledger import Row, Transaction

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: Largest accepted number of parties in one sum.
_MOST_PARTIES: Final = 10**5


@dataclass(frozen=True)
class Described(Step["LedgerState"]):
    """The terms of a campaign, as far as known: it is joined, or its terms are completed."""

    kind = "offer"
    offer: Offer

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Join the campaign, or add to its terms, which never change."""
        current = state.joined.get(self.offer.campaign)
        if current is None:
            state.joined[self.offer.campaign] = Campaign(self.offer, at.written_at, at.seq)
        else:
            current.offer, current.last = self.offer.after(current.offer), at.seq
        return state


@dataclass(frozen=True)
class Answered(Step["LedgerState"]):
    """Votes on a batch that are about to leave."""

    kind, aside = "answer", ("hashes", "tags", "units")
    campaign: str
    batch: str
    queries: int
    queries_digest: str
    source: str  # digest of the data and settings that determine our votes, hex
    votes: str  # digest of the tags of the votes, hex
    view: str  # of our data; see :func:`party.ledger.sent_votes.view_of`
    allow_other: bool  # whether queries are answered that another campaign had other votes on
    again: bool
    series: UnitVotes | None = field(default=None, metadata=in_text(omitted=True))
    # in which records vote, from 1; 0 where they do not vote in rounds
    round: int = field(default=0, metadata=in_text(omitted=True))
    hashes: tuple[bytes, ...] = field(default=(), metadata=in_text(absent=True))
    # of the votes on them; empty in an entry that is read and is not the first answer
    tags: tuple[bytes, ...] = field(default=(), metadata=in_text(absent=True))
    # hashes of the units that vote, ascending; likewise
    units: tuple[bytes, ...] = field(default=(), metadata=in_text(absent=True))

    def __post_init__(self) -> None:
        _check_digests(self.batch, self.source, self.votes)

    @classmethod
    def of(cls, campaign: str, answer: Answer, *, allow_other: bool, again: bool) -> Answered:
        """Return the step of an answer; ProtocolError for hashes, tags or units that cannot be."""
        units = None if answer.units is None else UnitVotes.of(answer.known_by, answer.units)
        return cls(
            campaign=campaign,
            batch=answer.batch.hex(),
            queries=len(answer.hashes),
            queries_digest=queries_digest(answer.hashes),
            source=answer.source.hex(),
            votes=tags_digest(answer.tags),
            view=answer.view,
            allow_other=allow_other,
            again=again,
            series=units,
            round=answer.round,
            hashes=tuple(answer.hashes),
            tags=tuple(answer.tags),
            units=tuple(answer.units or ()),
        )

    def other_rows(self) -> Iterator[Row]:
        """Return the rows of a first answer."""
        if self.again:
            return
        yield from (("queries", {"position": n, "query": q}) for n, q in enumerate(self.hashes))
        yield from (("tags", {"position": n, "tag": tag}) for n, tag in enumerate(self.tags))
        # They ascend, so that they say nothing of the order in the file.
        yield from (("units", {"unit": unit}) for unit in self.units)

    def loaded(self, db: Transaction, state: LedgerState, seq: int) -> Answered:
        """Return the step with the rows of the batch's first answer."""
        if self.again:
            return replace(self, hashes=_queries(state, self.campaign, self.batch))
        tags = db.execute("SELECT tag FROM tags WHERE entry = ? ORDER BY position", (seq,))
        units = db.execute("SELECT unit FROM units WHERE entry = ? ORDER BY unit", (seq,))
        return replace(
            self,
            hashes=state.history.queries(seq),
            tags=tuple(tag for (tag,) in tags),
            units=() if self.series is None else tuple(unit for (unit,) in units),
        )

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Let votes leave that are those of its rows, and that no earlier ones forbid."""
        current, batch = state.campaign(self.campaign), self.batch
        if (self.queries, self.queries_digest, self.again) != (
            len(self.hashes),
            queries_digest(self.hashes),
            batch in current.batches,
        ):
            raise LedgerError("an answer that does not match its queries")
        if not self.again:
            if (len(self.tags), tags_digest(self.tags)) != (len(self.hashes), self.votes):
                raise LedgerError("an answer that does not match its votes")
            voting = self.series and UnitVotes.of(self.series.known_by, self.units)
            if self.series != voting:
                raise LedgerError("an answer that does not match the units that vote in it")
        given = self.given(current.offer)
        self.check(state, given, at.seq, allow_other=self.allow_other)
        if current.votes.setdefault(batch, self.votes) != self.votes:
            raise other_votes(batch)
        current.source, current.matrix, current.last = given.source, given.matrix, at.seq
        current.view, current.units = given.view, given.units
        if self.again:
            record = current.batches[batch]
            times = *record.answered_at, at.written_at
            current.batches[batch] = replace(record, answered_at=times)
            return state
        current.queries += current.new(self.hashes, state.history.of(at.seq))
        current.batches[batch] = BatchRecord(batch, self.queries, (at.written_at,))
        current.digests[batch] = self.queries_digest
        current.rounds[batch] = self.round
        current.answers[at.seq] = batch
        state.rows.update(queries=len(self.hashes), tags=len(self.tags), units=len(self.units))
        return state

    def given(self, offer: Offer) -> Given:
        """Return the votes, in a campaign of these terms."""
        matrix = matrix_of(offer, self.batch)
        return Given(offer, self.source, matrix, self.view, self.series, self.round)

    def check(self, state: LedgerState, given: Given, seq: int, *, allow_other: bool) -> None:
        """Check that votes may leave, given all earlier votes; without tags they are not known yet."""
        name, batch = given.offer.campaign, self.batch
        current = state.campaign(name)
        history = state.history.of(current.first_answer(batch) or seq)
        current.check_answer(given, batch, self.queries_digest)
        others = [each for other, each in state.joined.items() if other != name]
        check_series(
            given.offer,
            given.units,
            current.units,
            ((each.offer, each.units, each.forgotten) for each in others),
        )
        if self.units and state.voted(given.offer, self.units, seq):
            raise RefusedError(
                f"units of ours have voted in another campaign of series {given.offer.announced.series!r}: "
                "each votes once"
            )
        if not allow_other:
            sharing = {other for other, _ in history.sharing(self.hashes, seq)} - {name}
            check_sources(given, (each.given for each in state.among(sharing) if each.source))
            if given.view or exact_records(given.offer):
                earlier = [each.given for each in others if each.source]
                check_views(given, earlier)
                check_matrices(given, earlier)
        if not self.tags:
            return
        if current.votes.get(batch, self.votes) != self.votes:
            raise other_votes(batch)
        clashing = {other for other, _ in history.clashing(self.hashes, self.tags, seq)}
        if allow_other:
            clashing &= {name}
        check_votes(given, batch, (each.given for each in state.among(clashing)))


@dataclass(frozen=True)
class Unmasked(Step["LedgerState"]):
    """Shares that are about to unmask the sum of a batch, and with whom."""

    kind, aside = "opening", ("hashes",)
    campaign: str
    batch: str
    survivors: tuple[str, ...]
    allow_other: bool
    hashes: tuple[bytes, ...] = field(default=(), metadata=in_text(absent=True))

    def loaded(self, db: Transaction, state: LedgerState, seq: int) -> Unmasked:
        """Return the step with the queries of the batch's first answer."""
        del db, seq
        return replace(self, hashes=_queries(state, self.campaign, self.batch))

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Unmask a sum whose difference to no earlier one reveals votes."""
        current, batch = state.campaign(self.campaign), self.batch
        if not 0 < len(set(self.survivors)) == len(self.survivors) <= _MOST_PARTIES:
            raise ProtocolError("survivors are a list of distinct names")
        survivors = tuple(sorted(self.survivors))
        current.check_unmasking(batch, queries_digest(self.hashes), survivors)
        how = How.of(survivors, current.offer, current.source)
        history = state.history.of(current.first_answer(batch) or 0)
        sharing = {*history.sharing(self.hashes), (self.campaign, batch)}
        check_unmasking(
            current.offer,
            batch,
            how,
            state.opened(sharing, self.campaign, how),
            allow_other=self.allow_other,
        )
        if not self.allow_other:
            check_exact(current.offer, how, state.hows())
        record = current.batches[batch]
        current.batches[batch] = replace(
            record, survivors=survivors, opened_at=record.opened_at or at.written_at
        )
        current.hows.setdefault(batch, how)
        current.last = at.seq
        return state


@dataclass(frozen=True)
class Ended(Step["LedgerState"]):
    """The server's report of the end of a campaign; see :class:`EndingRecord`."""

    kind = "ending"
    campaign: str
    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    cause: str = field(default="", metadata=in_text(omitted=True))

    def record(self, at: str) -> EndingRecord:
        """Return the report as recorded at a time."""
        return EndingRecord(
            self.queries_asked, self.labels_released, self.epsilon, self.delta, at, self.cause
        )

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Take any report that is possible: no vote leaves after it."""
        current = state.campaign(self.campaign)
        if min(self.queries_asked, self.labels_released) < 0 or not self.epsilon >= 0:
            raise ProtocolError("a campaign cannot end with negative counts")
        if self.cause not in ("", *EARLY_ENDS):
            raise ProtocolError(f"a campaign cannot end by {self.cause!r:.40}")
        current.ending, current.last = self.record(at.written_at), at.seq
        current.endings += 1
        return state


@dataclass(frozen=True)
class Sent(Step["LedgerState"]):
    """A file with our answers that is about to leave; see :class:`FileRecord`."""

    kind = "file"
    campaign: str
    number: int
    answers: str
    file: str
    size: int

    def __post_init__(self) -> None:
        _check_digests(self.answers, self.file)
        if min(self.number, self.size) < 1:
            raise ProtocolError("a file that left has a number and a size")

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Let one file leave for each envelope, in their order."""
        current = state.campaign(self.campaign)
        current.send(FileRecord(self.number, self.answers, self.file, self.size, at.written_at))
        current.last = at.seq
        return state


@dataclass(frozen=True)
class Lost(Step["LedgerState"]):
    """Entries before it may have been lost."""

    kind = "lost"

    def follow(self, state: LedgerState, at: Entry) -> LedgerState:
        """Forget who has voted: no known series goes on."""
        del at
        for each in state.joined.values():
            each.forgotten = True
        return state


def _queries(state: LedgerState, campaign: str, batch: str) -> tuple[bytes, ...]:
    """Return the queries of a batch that was answered; none if it was not."""
    current = state.joined.get(campaign)
    first = None if current is None else current.first_answer(batch)
    return () if first is None else state.history.queries(first)


def _check_digests(*digests: str) -> None:
    if not all(isinstance(each, str) and _DIGEST.fullmatch(each) for each in digests):
        raise ProtocolError("a digest is 32 bytes")


CHAIN: Final = Chain(b"pate party ledger entry v2\0", b"pate party ledger v2")
RULES: Final[Rules[LedgerState]] = Rules(
    CHAIN,
    Described, Answered, Unmasked, Ended, Sent, Lost, Bound, BundlesMade, BundleUsed, Synthesis, Spent,
)  # fmt: skip
