"""The state of a campaign with the rules within it, and its batches, envelopes and end.

A part of :mod:`party.ledger.state`. Campaigns are in memory, at most 300 KiB each; hashes of
queries are not: a party answers millions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from party.ledger.accountant import Totals
from party.ledger.sent_votes import Given
from pate.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from party.ledger.history import History
    from party.ledger.sent_votes import How
    from party.ledger.series import UnitVotes
    from pate.campaign.offer import Offer


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
            raise RefusedError(
                f"our data or settings have changed since we first voted in campaign {name}: "
                "other votes on the same queries would reveal the change"
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
