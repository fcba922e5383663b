"""The campaigns of a party's ledger in memory: the newest whole, of all others a summary.

A part of :mod:`party.ledger_state`. Books grow for years, and a party that stays connected must not
grow with them. So of a campaign that nobody speaks of any more only a summary is kept; when it is
spoken of again, what its entries say is read from the file once more. That takes as long as all that
was written meanwhile, so campaigns that go on at the same time have to be held whole side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from party.ledger_records import BatchRecord, CampaignRecord, CampaignSummary, EndingRecord
from pate.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from party.offer import Offer
    from party.openings import How
    from pate.runtime.hash_chain import Json

_T = TypeVar("_T")

#: Campaigns that are held whole, at most.
_MOST_WHOLE: Final = 64
#: Batches that they may have together, about a kilobyte each.
_MOST_BATCHES: Final = 8192
#: Campaigns that go on and are held whole, however many batches they have.
_LEAST_WHOLE: Final = 4
#: Different values of terms that are held once for all campaigns that have them.
_MOST_VALUES: Final = 512
#: Terms that are another in every campaign.
_OWN: Final = ("key", "campaign", "public_set", "queries")


@dataclass(frozen=True)
class Entry:
    """One entry of the chain, read back.

    Attributes:
        seq: its number, from 1 on.
        kind: of the entry.
        body: of the entry.
        at: when it was written.
        hashes: of the queries of the batch that it is about; empty if it is about none.
        tags: of the votes on them, where its first answer has some; see :mod:`party.given`.
    """

    seq: int
    kind: str
    body: dict[str, Json]
    at: str
    hashes: Sequence[bytes] = ()
    tags: Sequence[bytes] = ()


class Past(Protocol):
    """What was written before, asked of the file."""

    def entries(self, campaign: str, first: int, last: int) -> Iterable[Entry]:
        """Return the entries about a campaign from ``first`` to ``last``, both included, in order.

        Raises:
            LedgerError: if one is not as it was written.
        """

    def sharing(
        self, hashes: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return campaign and batch of every answer that holds one of these queries, or more.

        Args:
            hashes: of the queries.
            before: number of an entry; answers from it on do not count. None: all count.
        """

    def clashing(
        self, hashes: Sequence[bytes], tags: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return campaign and batch of every answer with other votes on one of these queries.

        Args:
            hashes: of the queries.
            tags: of the votes on them.
            before: as above.
        """

    def known(
        self, hashes: Sequence[bytes], first: int, last: int, answers: Container[int]
    ) -> frozenset[bytes]:
        """Return those of these queries that are in any of ``answers``, from ``first`` to ``last``."""


class Nothing:
    """The past of books that have none."""

    def entries(self, campaign: str, first: int, last: int) -> Iterable[Entry]:
        """Return nothing."""
        del campaign, first, last
        return ()

    def sharing(
        self, hashes: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return nothing."""
        del hashes, before
        return frozenset()

    def clashing(
        self, hashes: Sequence[bytes], tags: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return nothing."""
        del hashes, tags, before
        return frozenset()

    def known(
        self, hashes: Sequence[bytes], first: int, last: int, answers: Container[int]
    ) -> frozenset[bytes]:
        """Return nothing."""
        del hashes, first, last, answers
        return frozenset()


@dataclass
class Campaign:
    """A campaign as the rules look at it.

    Attributes:
        offer: the terms, as far as they were ever known.
        joined_at: UTC.
        first: number of the first entry about it.
        last: of the last one.
        batches: by their digests, in the order of their first answers.
        digests: what the queries of a batch hash to together, by batch.
        answers: number of the entry that is the first answer to a batch, and that batch.
        votes: what the tags of a batch's votes hash to together, by batch; none of an old ledger.
        hows: whose votes are in the sum of a batch that was opened, by batch.
        queries: different queries of which votes left.
        source: digest of the data and settings that its votes are made of; empty before the first.
        matrix: what decides its records' votes; see :func:`party.given.matrix_of`.
        view: how our data were seen; see :func:`party.given.view_of`.
        ending: None while it may go on.
    """

    offer: Offer
    joined_at: str
    first: int
    last: int
    batches: dict[str, BatchRecord] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    votes: dict[str, str] = field(default_factory=dict)
    hows: dict[str, How] = field(default_factory=dict)
    queries: int = 0
    source: str = ""
    matrix: str = ""
    view: str = ""
    ending: EndingRecord | None = None

    @property
    def asked(self) -> int:
        """Queries summed over different batches."""
        return sum(each.queries for each in self.batches.values())

    def new(self, hashes: Iterable[bytes], past: Past) -> int:
        """Return how many different queries among ``hashes`` it was never asked before."""
        found = set(hashes)
        if self.answers:
            first, last = min(self.answers), max(self.answers)
            found -= past.known(tuple(found), first, last, self.answers)
        return len(found)

    def record(self) -> CampaignRecord:
        """Return all of it as a value."""
        return CampaignRecord(
            self.offer, self.joined_at, self.queries, tuple(self.batches.values()), self.ending
        )

    def summary(self) -> CampaignSummary:
        """Return what is left of it when it is put on the shelf."""
        return CampaignSummary(
            self.offer,
            self.queries,
            self.asked,
            len(self.batches),
            self.ending,
            tuple(dict.fromkeys(self.hows.values())),
            self.source,
            self.matrix,
            self.view,
            self.first,
            self.last,
        )


class Shelf:
    """Campaigns by their ids, in the order in which they were joined.

    Args:
        read: makes a campaign anew of its entries and its id; a function of the rules.
    """

    def __init__(self, read: Callable[[str, Iterable[Entry]], Campaign]) -> None:
        self._read = read
        #: None where it has to be made of the campaign, which then is held whole.
        self._held: dict[str, CampaignSummary | None] = {}
        #: The one that was spoken of last is the last, and the only one that may be changed.
        self._whole: dict[str, Campaign] = {}
        self._last = ""
        self._values: dict[Any, Any] = {}

    def __contains__(self, campaign: str) -> bool:
        return campaign in self._held

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._held))

    def add(self, held: Campaign) -> None:
        """Take in a campaign that is new."""
        self._held[held.offer.campaign] = None
        self._keep(held)

    def find(self, campaign: str, past: Past) -> Campaign | None:
        """Return a campaign whole, None if it was never joined.

        Raises:
            LedgerError: if the file does not say any more what it said.
        """
        if (held := self.peek(campaign, past)) is not None:
            self._keep(held)
        return held

    def peek(self, campaign: str, past: Past) -> Campaign | None:
        """Do as :meth:`find`, and do not keep it."""
        if campaign not in self._held:
            return None
        if (whole := self._whole.get(campaign)) is not None:
            return whole
        if (summary := self._held[campaign]) is None:
            raise LedgerError(f"campaign {campaign[:8]} is held neither whole nor as a summary")
        held = self._read(campaign, past.entries(campaign, summary.first, summary.last))
        held.queries = summary.queries  # what one campaign's entries alone do not say
        if held.summary() != summary:
            raise LedgerError(f"the entries of campaign {campaign[:8]} are not what they were")
        return held

    def summary(self, campaign: str) -> CampaignSummary | None:
        """Return what is known of a campaign without a look into the file; None: nothing."""
        if campaign not in self._held:
            return None
        if (told := self._held[campaign]) is None:
            told = self._whole[campaign].summary()
            if campaign != self._last:  # nobody changes it before it is spoken of again
                self._held[campaign] = told
        return told

    def summaries(self) -> Iterator[CampaignSummary]:
        """Yield what is known of every campaign."""
        for campaign in self:
            if (told := self.summary(campaign)) is not None:
                yield told

    def _keep(self, held: Campaign) -> None:
        campaign = held.offer.campaign
        self._whole.pop(campaign, None)
        self._whole[campaign] = held
        self._held[campaign] = None
        self._last = campaign
        batches = sum(len(each.batches) for each in self._whole.values())
        while len(self._whole) > 1:
            # Of one that has ended hardly anything is asked any more.
            over = next(
                (name for name, each in self._whole.items() if each.ending and name != campaign),
                None,
            )
            least = 1 if over is not None else _LEAST_WHOLE
            if len(self._whole) <= _MOST_WHOLE and (
                batches <= _MOST_BATCHES or len(self._whole) <= least
            ):
                return
            name = next(iter(self._whole)) if over is None else over
            put_away = self._whole.pop(name)
            batches -= len(put_away.batches)
            self._held[name] = self._lean(put_away.summary())

    def _lean(self, summary: CampaignSummary) -> CampaignSummary:
        """Return the same summary, with those of its values that others have, too, held once."""
        offer = summary.offer
        shared = {
            each.name: self._same(getattr(offer, each.name))
            for each in fields(offer)
            if each.name not in _OWN
        }
        hows = tuple(map(self._same, summary.hows))
        return replace(
            summary,
            offer=replace(offer, **shared),
            hows=self._same(hows),
            source=self._same(summary.source),
            view=self._same(summary.view),
        )

    def _same(self, value: _T) -> _T:
        if len(self._values) >= _MOST_VALUES:
            self._values.clear()
        # Their types with them: 1 and 1.0 and True are the same key.
        held: _T = self._values.setdefault((type(value), value), value)
        return held
