"""What may stand in a party's ledger, and what follows from it: no files, no clock.

The same function admits an entry before it is written and checks it when the ledger is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from party.offer import Offer
from party.openings import How, Openings
from party.own_figure import LedgerView, Totals
from pate.errors import LedgerError, ProtocolError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from party.offer import Json

HASH_BYTES: Final = 32
#: More queries in one batch, or parties in one sum, are a mistake.
_MOST_QUERIES: Final = 10**7
_MOST_PARTIES: Final = 10**5


@dataclass(frozen=True)
class BatchRecord:
    """A batch that this party answered.

    Attributes:
        batch: its digest, hex.
        queries: how many it has.
        answered_at: when votes left for it, the first time and each one after, UTC.
        survivors: with whom its sum was opened; None if that did not happen.
        opened_at: when, UTC.
    """

    batch: str
    queries: int
    answered_at: tuple[str, ...]
    survivors: tuple[str, ...] | None = None
    opened_at: str | None = None


@dataclass(frozen=True)
class EndingRecord:
    """How the server said that a campaign ended.

    Attributes:
        queries_asked: queries put to the mechanism, each round by itself.
        labels_released: labels that left the server.
        epsilon: what the cap is worth.
        delta: at which it is.
        at: when we were told, UTC.
    """

    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    at: str


@dataclass(frozen=True)
class CampaignRecord:
    """All that a party's ledger has of one campaign.

    Attributes:
        offer: the terms, as far as they were ever known; its ``queries`` mean nothing here.
        joined_at: UTC.
        queries: different queries of which votes left.
        batches: in the order of their first answers.
        ending: None while it may go on.
    """

    offer: Offer
    joined_at: str
    queries: int = 0
    batches: tuple[BatchRecord, ...] = ()
    ending: EndingRecord | None = None

    @property
    def asked(self) -> int:
        """Queries summed over different batches."""
        return sum(each.queries for each in self.batches)

    @property
    def opened(self) -> tuple[BatchRecord, ...]:
        """The batches whose sum was opened."""
        return tuple(each for each in self.batches if each.survivors is not None)

    @property
    def totals(self) -> Totals:
        """What an accountant looks at."""
        return Totals(self.offer, self.queries, self.asked)


@dataclass
class _Campaign:
    offer: Offer
    joined_at: str
    batches: dict[str, BatchRecord] = field(default_factory=dict)
    #: What the queries of a batch hash to together.
    digests: dict[str, str] = field(default_factory=dict)
    queries: set[bytes] = field(default_factory=set)
    #: Digest of the data and settings that its votes are made of; empty before the first.
    source: str = ""
    ending: EndingRecord | None = None

    def record(self) -> CampaignRecord:
        return CampaignRecord(
            self.offer,
            self.joined_at,
            len(self.queries),
            tuple(self.batches.values()),
            self.ending,
        )


def queries_digest(hashes: Sequence[bytes]) -> str:
    """Return the digest by which an entry commits to its queries, hex.

    Raises:
        ProtocolError: if they are not one or more hashes of 32 bytes.
    """
    if not 0 < len(hashes) <= _MOST_QUERIES:
        raise ProtocolError(f"a batch of {len(hashes)} queries")
    if any(len(each) != HASH_BYTES for each in hashes):
        raise ProtocolError("the hash of a query is 32 bytes")
    return hashlib.sha256(b"pate party queries v1\0" + b"".join(hashes)).hexdigest()


class LedgerState:
    """The books as of one entry."""

    def __init__(self) -> None:
        self._campaigns: dict[str, _Campaign] = {}
        self._opened = Openings()

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return a record of every campaign, in the order in which they were joined."""
        return tuple(each.record() for each in self._campaigns.values())

    def find(self, campaign: str) -> CampaignRecord | None:
        """Return the record of a campaign, None if it was never joined."""
        held = self._campaigns.get(campaign)
        return None if held is None else held.record()

    def holds(self, campaign: str, batch: str) -> bool:
        """Return whether a batch was answered."""
        held = self._campaigns.get(campaign)
        return held is not None and batch in held.batches

    def view(self, offer: Offer, batch: str | None, hashes: Sequence[bytes] | None) -> LedgerView:
        """Return the books as they will be once ``offer`` is answered.

        Raises:
            RefusedError: if it contradicts what the campaign was before.
            UsageError: for another number of hashes than it has queries.
        """
        if hashes is not None and len(hashes) != offer.queries:
            raise UsageError(f"{len(hashes)} hashes for {offer.queries} queries")
        held = self._campaigns.get(offer.campaign)
        totals = [
            Totals(each.offer, len(each.queries), record.asked)
            for name, each in self._campaigns.items()
            if name != offer.campaign
            for record in (each.record(),)
        ]
        known = offer if held is None else offer.after(held.offer)
        queries = 0 if held is None else len(held.queries)
        asked = 0 if held is None else held.record().asked
        if held is None or batch is None or batch not in held.batches:
            asked += offer.queries
            if hashes is None:
                queries += offer.queries
            else:
                queries += len(set(hashes) - (held.queries if held else set()))
        totals.append(Totals(known, queries, asked))
        return LedgerView(tuple(totals), (offer.campaign, offer.queries), held is not None)

    def needs(self, offer: Offer) -> bool:
        """Return whether the terms in ``offer`` are news.

        Raises:
            RefusedError: if they contradict what the campaign was before.
        """
        held = self._campaigns.get(offer.campaign)
        return held is None or replace(offer.after(held.offer), queries=0) != held.offer

    # --- entries ---------------------------------------------------------------------------

    def follow(self, kind: str, body: Mapping[str, Json], at: str, hashes: Sequence[bytes]) -> None:
        """Take one entry in; the state is as before if it raises.

        Args:
            kind: of the entry.
            body: of the entry.
            at: when it was written.
            hashes: of the queries of the batch that it is about, if it is about one.

        Raises:
            RefusedError: if a rule does not allow it.
            ProtocolError: for values that cannot be.
            LedgerError: for an entry of no known kind or form.
        """
        fields = dict(body)
        try:
            match kind:
                case "offer":
                    self._offer(Offer.from_dict(_popped(fields, "offer", dict)), at)
                case "answer":
                    self._answer(fields, at, hashes)
                case "opening":
                    self._opening(fields, at, hashes)
                case "ending":
                    self._ending(fields, at)
                case _:
                    raise LedgerError(f"unknown kind of entry: {kind!r}")
        except (KeyError, TypeError) as error:
            raise LedgerError(f"an entry {kind!r} without its fields: {error}") from error

    def _offer(self, offer: Offer, at: str) -> None:
        held = self._campaigns.get(offer.campaign)
        if held is None:
            self._campaigns[offer.campaign] = _Campaign(offer, at)
        else:
            held.offer = offer.after(held.offer)

    def _joined(self, campaign: str) -> _Campaign:
        held = self._campaigns.get(campaign)
        if held is None:
            raise RefusedError(f"campaign {campaign[:8]} was never joined by this party")
        return held

    def _answer(self, fields: dict[str, Any], at: str, hashes: Sequence[bytes]) -> None:
        held = self._joined(_popped(fields, "campaign", str))
        batch = _digest(_popped(fields, "batch", str))
        digest = _popped(fields, "queries_digest", str)
        source = _digest(_popped(fields, "source", str))
        again = batch in held.batches
        if (
            _popped(fields, "queries", int) != len(hashes)
            or queries_digest(hashes) != digest
            or _popped(fields, "again", bool) != again
            or fields
        ):
            raise LedgerError("an answer that is not about its queries")
        if held.ending is not None:
            raise RefusedError(
                f"campaign {held.offer.campaign[:8]} has ended: no more votes for it"
            )
        if held.source not in ("", source):
            raise RefusedError(
                f"our data or settings have changed since we first voted in campaign "
                f"{held.offer.campaign[:8]}: other votes on the same queries would show the change"
            )
        if held.offer.records_vote and held.batches and not again:
            raise RefusedError(
                f"campaign {held.offer.campaign[:8]} had the votes of our records on other queries "
                "before: each record votes once"
            )
        held.source = source
        if not again:
            held.batches[batch] = BatchRecord(batch, len(hashes), (at,))
            held.digests[batch] = digest
            held.queries |= set(hashes)
            return
        if held.digests[batch] != digest:
            raise RefusedError(f"batch {batch[:8]} has other queries than when it was first asked")
        record = held.batches[batch]
        held.batches[batch] = replace(record, answered_at=(*record.answered_at, at))

    def _opening(self, fields: dict[str, Any], at: str, hashes: Sequence[bytes]) -> None:
        campaign, batch = _popped(fields, "campaign", str), _popped(fields, "batch", str)
        held = self._joined(campaign)
        survivors = _parties(_popped(fields, "survivors", list))
        allow_other = _popped(fields, "allow_other", bool)
        if fields:
            raise LedgerError(f"an opening with unknown fields: {', '.join(sorted(fields))}")
        if batch not in held.batches or held.digests[batch] != queries_digest(hashes):
            raise RefusedError(
                f"batch {batch[:8]} is to be opened, but we never gave votes on these queries"
            )
        if held.offer.aggregation != "masked":
            raise RefusedError("votes that are not masked need no opening")
        record = held.batches[batch]
        if held.ending is not None and record.survivors is None:
            raise RefusedError(
                f"campaign {campaign[:8]} has ended: nothing of it is opened any more"
            )
        if record.survivors is not None and record.survivors != survivors:
            raise RefusedError(
                f"batch {batch[:8]} was opened with other parties before: the difference of two "
                "sums would show votes"
            )
        if any(each.survivors not in (None, survivors) for each in held.batches.values()):
            # Also of other queries: they may be all but the same, with another hash.
            raise RefusedError(
                f"batches of campaign {campaign[:8]} were opened with other parties before: the "
                "difference of two sums over similar queries would show votes"
            )
        keys = dict(zip(held.offer.roster or (), held.offer.identities or (), strict=False))
        how = How(tuple((name, keys.get(name, "")) for name in survivors), held.source)
        self._opened.check(held.offer, batch, how, hashes, allow_other=allow_other)
        held.batches[batch] = replace(record, survivors=survivors, opened_at=record.opened_at or at)
        self._opened.add(held.offer, batch, how, hashes)

    def opened_as(
        self, campaign: str, batch: str, hashes: Sequence[bytes], survivors: Sequence[str]
    ) -> bool:
        """Return whether just this opening is recorded."""
        held = self._campaigns.get(campaign)
        record = None if held is None else held.batches.get(batch)
        return (
            held is not None
            and record is not None
            and record.survivors == tuple(sorted(survivors))
            and held.digests[batch] == queries_digest(hashes)
        )

    def _ending(self, fields: dict[str, Any], at: str) -> None:
        held = self._joined(_popped(fields, "campaign", str))
        ending = EndingRecord(
            queries_asked=_popped(fields, "queries_asked", int),
            labels_released=_popped(fields, "labels_released", int),
            epsilon=_popped(fields, "epsilon", float),
            delta=_popped(fields, "delta", float),
            at=at,
        )
        if fields:
            raise LedgerError(f"an ending with unknown fields: {', '.join(sorted(fields))}")
        if min(ending.queries_asked, ending.labels_released) < 0 or not ending.epsilon >= 0:
            raise ProtocolError("a campaign cannot end with less than nothing")
        held.ending = ending

    def ended_as(self, campaign: str, ending: EndingRecord) -> bool:
        """Return whether a campaign is known to have ended just so."""
        held = self._joined(campaign).ending
        return held is not None and replace(held, at=ending.at) == ending


def _popped(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.pop(name)
    if type(value) is not kind:
        raise LedgerError(f"{name} of an entry is {value!r:.40}")
    return value


def _digest(text: str) -> str:
    try:
        whole = len(bytes.fromhex(text)) == HASH_BYTES
    except ValueError:
        whole = False
    if not whole:
        raise ProtocolError("the digest of a batch is 32 bytes")
    return text


def _parties(names: list[Any]) -> tuple[str, ...]:
    if not 0 < len(names) <= _MOST_PARTIES or not all(isinstance(each, str) for each in names):
        raise ProtocolError("survivors are a list of names")
    if len(set(names)) != len(names):
        raise ProtocolError("a party is twice among the survivors")
    return tuple(sorted(names))
