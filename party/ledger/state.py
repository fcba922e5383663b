"""The state of a party's ledger: what its entries have recorded, and what they forbid.

Kinds of entries: :mod:`party.ledger.entries`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from party.ledger.accountant import LedgerView, Totals
from party.ledger.bundles import Listing
from party.ledger.history import History
from party.ledger.sent_votes import Earlier, Given, queries_digest
from pate.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

    from party.ledger.accountant import Bound
    from party.ledger.sent_votes import How
    from party.ledger.series import UnitVotes
    from party.ledger.synthesis import SynthesisRecord
    from pate.campaign.offer import Offer


class ChangedError(RefusedError):
    """Our data or settings are not those of our first votes: nothing more can leave with these."""


class LedgerState:
    """The ledger as of one entry; ``rows`` counts those of other tables that entries commit to."""

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self.joined: dict[str, Campaign] = {}
        self.rows: Counter[str] = Counter()
        #: Releases of synthetic rows by id, in the order in which they were reserved.
        self.syntheses: dict[str, SynthesisRecord] = {}
        #: Bounds of the home's own accountant, so far.
        self.bounds: tuple[Bound, ...] = ()
        #: Bundles of keys ahead that left.
        self.bundles = Listing()

    @property
    def in_series(self) -> bool:
        """Whether units have voted in a series: then it matters whether an entry is lost."""
        return any(each.units is not None for each in self.joined.values())

    def campaigns(self) -> tuple[Campaign, ...]:
        """Return every campaign, in the order in which they were joined."""
        return tuple(each.copy() for each in self.joined.values())

    def totals(self) -> tuple[Totals, ...]:
        """Return totals of the answers, by campaign, in the same order."""
        return tuple(each.totals for each in self.joined.values())

    def unanswered(self, key: bytes, since: datetime, now: datetime) -> list[datetime]:
        """Return when campaigns of a key were joined that had no votes, after ``since``, sorted.

        A clock that was ahead has joined them later than ``now``; they do not count.
        """
        joined = (
            datetime.fromisoformat(each.joined_at)
            for each in self.joined.values()
            if each.offer.key == key and not each.batches
        )
        return sorted(at for at in joined if since < at <= now)

    def campaign(self, campaign: str) -> Campaign:
        """Return a campaign; RefusedError if it was never joined."""
        current = self.joined.get(campaign)
        if current is None:
            raise RefusedError(f"campaign {campaign[:8]} was never joined by this party")
        return current

    def holds(self, campaign: str, batch: str) -> bool:
        """Return whether a batch was answered."""
        current = self.joined.get(campaign)
        return current is not None and batch in current.batches

    def voted(
        self,
        offer: Offer,
        units: Sequence[bytes],
        before: int | None = None,
    ) -> frozenset[bytes]:
        """Return those of these units that have voted in another campaign than the offer's.

        Hashes of units are different in each series.
        """
        current = self.joined.get(offer.campaign)
        own = {} if current is None else current.answers
        history = self.history if before is None else self.history.of(before)
        found = history.voted(units, before)
        return frozenset(unit for unit, entry in found.items() if entry not in own)

    def view(self, offer: Offer, batch: str | None, hashes: Sequence[bytes] | None) -> LedgerView:
        """Return the ledger after ``offer`` is answered."""
        if hashes is not None and len(hashes) != offer.queries:
            raise UsageError(f"{len(hashes)} hashes for {offer.queries} queries")
        current = self.joined.get(offer.campaign)
        totals = [each.totals for name, each in self.joined.items() if name != offer.campaign]
        known = offer if current is None else offer.after(current.offer)
        queries, asked = (0, 0) if current is None else (current.queries, current.asked)
        if current is None or batch is None or batch not in current.batches:
            asked += offer.queries
            if hashes is None:
                queries += offer.queries
            else:
                queries += (
                    len(set(hashes)) if current is None else current.new(hashes, self.history)
                )
        totals.append(Totals(known, queries, asked))
        return LedgerView(
            tuple(totals),
            (offer.campaign, offer.queries),
            current is not None,
            tuple(each.synthesis for each in self.syntheses.values()),
        )

    def needs(self, offer: Offer) -> bool:
        """Return whether ``offer`` has new terms."""
        current = self.joined.get(offer.campaign)
        return current is None or offer.after(current.offer).asking(0) != current.offer

    def among(self, campaigns: Iterable[str]) -> Iterator[Campaign]:
        """Yield the known ones of these campaigns, in a fixed order."""
        return (self.joined[name] for name in sorted(campaigns) if name in self.joined)

    def opened(
        self, batches: Iterable[tuple[str, str]], campaign: str, how: How
    ) -> Iterator[Earlier]:
        """Yield those of these batches whose sums were unmasked, and could be subtracted.

        Skips batches that are not in the ledger (yet), and those of other campaigns that were
        unmasked with the same parties and data: an equal sum reveals nothing new.
        """
        for other, these in groupby(sorted(batches), key=itemgetter(0)):
            current = self.joined.get(other)
            if current is None or (other != campaign and set(current.hows.values()) <= {how}):
                continue
            for _, batch in these:
                if batch in current.hows:
                    yield Earlier(current.offer, batch, current.hows[batch])

    def hows(self) -> Iterator[tuple[Offer, How]]:
        """Yield of each unmasked sum the terms, and whose votes are in it."""
        for current in self.joined.values():
            for how in dict.fromkeys(current.hows.values()):
                yield current.offer, how

    def opened_as(
        self,
        campaign: str,
        batch: str,
        hashes: Sequence[bytes],
        survivors: Sequence[str],
    ) -> bool:
        """Return whether exactly this unmasking is recorded."""
        current = self.joined.get(campaign)
        record = None if current is None else current.batches.get(batch)
        return (
            current is not None
            and record is not None
            and record.survivors == tuple(sorted(survivors))
            and current.digests[batch] == queries_digest(hashes)
        )


@dataclass(frozen=True)
class BatchRecord:
    """A batch that this party answered, and with whom its sum was unmasked; None if it was not."""

    batch: str
    queries: int
    answered_at: tuple[str, ...]
    survivors: tuple[str, ...] | None = None
    opened_at: str | None = None


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """The server's report of the end of a campaign; ``cause`` is why it ended before it asked for votes."""

    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    at: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """An envelope with our answers, just before it appeared; ``answers`` is the digest of what it answers."""

    number: int
    answers: str
    digest: str
    size: int
    at: str


@dataclass
class Campaign:
    """What the ledger has of a campaign: the terms that its server signed, and what was answered."""

    offer: Offer  # its ``queries`` are meaningless here
    joined_at: str
    last: int  # number of its last entry
    batches: dict[str, BatchRecord] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)  # of all queries of a batch, by batch
    # number of the entry that is the first answer to a batch, and that batch
    answers: dict[int, str] = field(default_factory=dict)
    # digest of the tags of a batch's votes, by batch
    votes: dict[str, str] = field(default_factory=dict)
    # whose votes are in the sum of an unmasked batch, by batch
    hows: dict[str, How] = field(default_factory=dict)
    queries: int = 0  # distinct ones
    rounds: dict[str, int] = field(default_factory=dict)
    source: str = ""  # digest of the data and settings behind its votes; empty before the first
    # digest of what determines records' votes; see :func:`party.ledger.sent_votes.matrix_of`
    matrix: str = ""
    view: str = ""  # of our data; see :func:`party.ledger.sent_votes.view_of`
    # that voted in it; None outside a series, and before its first answer
    units: UnitVotes | None = None
    forgotten: bool = False  # whether entries of this ledger may have been lost since it voted
    ending: EndingRecord | None = None
    endings: int = 0  # how many were recorded; a campaign that is resumed has another one
    # envelopes that left, by the digest of the file that each answers, hex
    files: dict[str, FileRecord] = field(default_factory=dict)

    @property
    def asked(self) -> int:
        """Queries summed over batches."""
        return sum(each.queries for each in self.batches.values())

    @property
    def opened(self) -> tuple[BatchRecord, ...]:
        """The batches whose sum was unmasked."""
        return tuple(each for each in self.batches.values() if each.survivors is not None)

    @property
    def voted(self) -> int:
        """Votes of units of a series; 0 outside of one."""
        return 0 if self.units is None else self.units.number

    def first_answer(self, batch: str) -> int | None:
        """Return the number of the entry with the first answer to a batch, None if there is none."""
        return next((seq for seq, each in self.answers.items() if each == batch), None)

    def new(self, hashes: Iterable[bytes], history: History) -> int:
        """Return how many distinct queries of ``hashes`` it was never asked before."""
        found = set(hashes)
        if self.answers:
            first, last = min(self.answers), max(self.answers)
            found -= history.known(tuple(found), first, last, self.answers)
        return len(found)

    def check_answer(self, given: Given, batch: str, digest: str) -> None:
        """Check that votes may leave, given those of this campaign only."""
        name, again = given.offer.campaign[:8], batch in self.batches
        if self.ending is not None:
            raise RefusedError(f"campaign {name} has ended: no more votes for it")
        if self.source not in ("", given.source):
            raise ChangedError(
                f"our data or settings have changed since we first voted in campaign {name}: "
                "other votes on the same queries would reveal the change. Start again with the file and "
                "the options of the first time"
            )
        if given.offer.announced.in_rounds:
            self._check_round(given, batch)
        elif given.offer.announced.one_release and self.batches and not again:
            who, why = ("records", "each record votes once")
            if not given.offer.announced.records_vote:
                who, why = ("teachers", "its votes are released once")
            raise RefusedError(
                f"campaign {name} had the votes of our {who} on other queries before: {why}"
            )
        if again and self.digests[batch] != digest:
            raise RefusedError(f"batch {batch[:8]} has other queries than when it was first asked")

    def _check_round(self, given: Given, batch: str) -> None:
        """Check that each round has one model ever, and that no earlier round comes after a later one."""
        name, rounds, number = given.offer.campaign[:8], given.offer.announced.rounds, given.round
        if not 1 <= number <= rounds:
            raise RefusedError(f"campaign {name} has no round {number} of {rounds}")
        if batch in self.batches:
            if self.rounds[batch] != number:
                raise RefusedError(f"batch {batch[:8]} was of round {self.rounds[batch]} before")
            return
        last = max(self.rounds.values(), default=0)
        if number <= last:
            raise RefusedError(
                f"our records voted in round {last} of campaign {name} before: round {number} with another "
                "model, or again, would be a vote that is not charged"
            )

    def check_unmasking(self, batch: str, digest: str, survivors: tuple[str, ...]) -> None:
        """Check that the sum of a batch may be unmasked, given those of this campaign only."""
        if batch not in self.batches or self.digests[batch] != digest:
            raise RefusedError(
                f"batch {batch[:8]} is to be unmasked, but we never voted on these queries"
            )
        if not self.offer.announced.sums.masked:
            raise RefusedError("votes that are not masked need no unmasking")
        record = self.batches[batch]
        if self.ending is not None and record.survivors is None:
            raise RefusedError(
                f"campaign {self.offer.campaign[:8]} has ended: none of its sums is unmasked any more"
            )
        if record.survivors is not None and record.survivors != survivors:
            raise RefusedError(
                f"batch {batch[:8]} was unmasked with other parties before: the difference of "
                "two sums would reveal votes"
            )
        opened = [each.survivors or () for each in self.opened]
        if self.offer.announced.in_rounds:
            # Each sum has noise of its own, which is charged; who is lost is lost for all later rounds.
            if all(set(survivors) <= set(each) for each in opened):
                return
            raise RefusedError(
                f"round {self.rounds[batch]} of campaign {self.offer.campaign[:8]} is to be unmasked with a "
                "party that was not in an earlier round"
            )
        if any(each != survivors for each in opened):
            # Other queries count, too: they may be nearly equal, with another hash.
            raise RefusedError(
                f"batches of campaign {self.offer.campaign[:8]} were unmasked with other parties before: "
                "the difference of two sums over similar queries would reveal votes"
            )

    def send(self, file: FileRecord) -> None:
        """Record an envelope that is about to leave."""
        last = max((each.number for each in self.files.values()), default=0)
        if file.answers in self.files or file.number <= last:
            raise RefusedError(
                f"envelope {last} of campaign {self.offer.campaign[:8]} was answered before: "
                f"another answer, to one with number {file.number}, does not leave"
            )
        self.files[file.answers] = file

    @property
    def given(self) -> Given:
        """The value to compare new votes with."""
        return Given(self.offer, self.source, self.matrix, self.view, self.units)

    @property
    def totals(self) -> Totals:
        """The accountant's input."""
        return Totals(self.offer, self.queries, self.asked)

    def copy(self) -> Self:
        """Return it as it is now, for readers: the ledger goes on."""
        made = replace(self)
        vars(made).update({k: dict(v) for k, v in vars(self).items() if isinstance(v, dict)})
        return made
