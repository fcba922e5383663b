"""What may stand in a party's ledger, and what follows from it: no files, no clock.

The same function admits an entry before it is written and checks it when the ledger is read.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from party.ledger.accountant import LedgerView, Totals
from party.ledger.bounds import BOUND, Bounds
from party.ledger.campaigns import Campaign, Entry
from party.ledger.records import BatchRecord, CampaignRecord, EndingRecord
from party.ledger.sent_votes import (
    HASH_BYTES,
    Given,
    check_matrices,
    check_sources,
    check_views,
    check_votes,
    matrix_of,
    other_votes,
    queries_digest,
    tags_digest,
)
from party.ledger.synthesis import KINDS as SYNTHESIS_KINDS
from party.ledger.synthesis import Syntheses
from party.ledger.unmaskings import Earlier, How, check_exact, check_unmasking, exact_records
from party.offer import Offer
from pate.errors import LedgerError, ProtocolError, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.history import History

#: More parties in one sum are a mistake.
_MOST_PARTIES: Final = 10**5


class LedgerState:
    """The ledger as of one entry.

    What looks at hashes of queries is asked with the past that they were written from: the file.
    """

    def __init__(self) -> None:
        #: By their ids, in the order in which they were joined.
        self._campaigns: dict[str, Campaign] = {}
        #: Releases of synthetic rows.
        self.syntheses = Syntheses()
        #: What the home's own accountant keeps.
        self.bounds = Bounds()

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return a record of every campaign, in the order in which they were joined."""
        return tuple(each.record() for each in self._campaigns.values())

    def totals(self) -> tuple[Totals, ...]:
        """Return what was answered, by campaign, in the same order."""
        return tuple(each.totals for each in self._campaigns.values())

    def campaign(self, campaign: str) -> Campaign | None:
        """Return a campaign, None if it was never joined; it is not to be changed."""
        return self._campaigns.get(campaign)

    def first_answer(self, campaign: str, batch: str) -> int | None:
        """Return the number of the entry that is the first answer to a batch; None: there is none."""
        held = self._campaigns.get(campaign)
        answers = {} if held is None else held.answers
        return next((seq for seq, each in answers.items() if each == batch), None)

    def holds(self, campaign: str, batch: str) -> bool:
        """Return whether a batch was answered."""
        held = self._campaigns.get(campaign)
        return held is not None and batch in held.batches

    def view(
        self, offer: Offer, batch: str | None, hashes: Sequence[bytes] | None, history: History
    ) -> LedgerView:
        """Return the ledger as it will be once ``offer`` is answered.

        Raises:
            RefusedError: if it contradicts what the campaign was before.
            UsageError: for another number of hashes than it has queries.
        """
        if hashes is not None and len(hashes) != offer.queries:
            raise UsageError(f"{len(hashes)} hashes for {offer.queries} queries")
        held = self._campaigns.get(offer.campaign)
        totals = [each.totals for name, each in self._campaigns.items() if name != offer.campaign]
        known = offer if held is None else offer.after(held.offer)
        queries, asked = (0, 0) if held is None else (held.queries, held.asked)
        if held is None or batch is None or batch not in held.batches:
            asked += offer.queries
            if hashes is None:
                queries += offer.queries
            else:
                queries += len(set(hashes)) if held is None else held.new(hashes, history)
        totals.append(Totals(known, queries, asked))
        return LedgerView(
            tuple(totals),
            (offer.campaign, offer.queries),
            held is not None,
            self.syntheses.paid(),
        )

    def needs(self, offer: Offer) -> bool:
        """Return whether the terms in ``offer`` are news.

        Raises:
            RefusedError: if they contradict what the campaign was before.
        """
        held = self._campaigns.get(offer.campaign)
        return held is None or replace(offer.after(held.offer), queries=0) != held.offer

    # --- entries ---------------------------------------------------------------------------

    def follow(self, entry: Entry, history: History) -> None:
        """Take one entry in; the state is as before if it raises.

        Args:
            entry: the next one; its hashes are those of the batch that it is about, if it is about
                one.
            history: what was written before it; what is written after it may be in there, too.

        Raises:
            RefusedError: if a rule does not allow it.
            ProtocolError: for values that cannot be.
            LedgerError: for an entry of no known kind or form.
        """
        kind, fields = entry.kind, dict(entry.body)
        try:
            match kind:
                case "offer":
                    self._offer(Offer.from_dict(_popped(fields, "offer", dict)), entry)
                case "answer":
                    self._answer(fields, entry, history)
                case "opening":
                    self._opening(fields, entry, history)
                case "ending":
                    self._ending(fields, entry)
                case _ if kind == BOUND:
                    self.bounds.follow(fields)
                case _ if kind in SYNTHESIS_KINDS:
                    self.syntheses.follow(kind, fields, entry.at)
                case _:
                    raise LedgerError(f"unknown kind of entry: {kind!r}")
        except (KeyError, TypeError) as error:
            raise LedgerError(f"an entry {kind!r} without its fields: {error}") from error

    def _offer(self, offer: Offer, entry: Entry) -> None:
        held = self._campaigns.get(offer.campaign)
        if held is None:
            self._campaigns[offer.campaign] = Campaign(offer, entry.at, entry.seq)
        else:
            held.offer, held.last = offer.after(held.offer), entry.seq

    def _joined(self, campaign: str) -> Campaign:
        held = self._campaigns.get(campaign)
        if held is None:
            raise RefusedError(f"campaign {campaign[:8]} was never joined by this party")
        return held

    def check_answer(
        self,
        given: Given,
        batch: str,
        digest: str,
        entry: Entry,
        history: History,
        *,
        allow_other: bool,
    ) -> None:
        """Check that votes may leave, beside all that ever left; see :mod:`party.ledger.sent_votes`.

        Args:
            given: the votes.
            batch: digest of their queries, hex.
            digest: what the queries hash to together.
            entry: that will say so; without tags the votes are not known yet.
            history: what was written before it; what is written after it may be in there, too.
            allow_other: whether queries that another campaign had other votes on may be answered.

        Raises:
            RefusedError: if they may not.
        """
        name = given.offer.campaign
        held = self._joined(name)
        self._check_within(held, given, batch, digest)
        if not allow_other:
            sharing = {other for other, _ in history.sharing(entry.hashes, entry.seq)} - {name}
            check_sources(given, (each.given for each in self._among(sharing) if each.source))
            if given.view or exact_records(given.offer):
                known = (each for other, each in self._campaigns.items() if other != name)
                others = [each.given for each in known if each.source]
                check_views(given, others)
                check_matrices(given, others)
        if not entry.tags:
            return
        if held.votes.get(batch, tags_digest(entry.tags)) != tags_digest(entry.tags):
            raise other_votes(batch)
        clashing = {other for other, _ in history.clashing(entry.hashes, entry.tags, entry.seq)}
        if allow_other:
            clashing &= {name}
        check_votes(given, batch, (each.given for each in self._among(clashing)))

    def _among(self, campaigns: Iterable[str]) -> Iterator[Campaign]:
        """Yield those of these campaigns that are known (yet), in one order."""
        return (self._campaigns[name] for name in sorted(campaigns) if name in self._campaigns)

    def _check_within(self, held: Campaign, given: Given, batch: str, digest: str) -> None:
        """Check that votes may leave, beside those of their own campaign."""
        name, again = given.offer.campaign[:8], batch in held.batches
        if held.ending is not None:
            raise RefusedError(f"campaign {name} has ended: no more votes for it")
        if held.source not in ("", given.source):
            raise RefusedError(
                f"our data or settings have changed since we first voted in campaign {name}: other "
                "votes on the same queries would show the change"
            )
        if given.offer.records_vote and held.batches and not again:
            raise RefusedError(
                f"campaign {name} had the votes of our records on other queries "
                "before: each record votes once"
            )
        if again and held.digests[batch] != digest:
            raise RefusedError(f"batch {batch[:8]} has other queries than when it was first asked")

    def _answer(self, fields: dict[str, Any], entry: Entry, history: History) -> None:
        hashes = entry.hashes
        held = self._joined(_popped(fields, "campaign", str))
        batch = _digest(_popped(fields, "batch", str))
        digest = _popped(fields, "queries_digest", str)
        source = _digest(_popped(fields, "source", str))
        again = batch in held.batches
        # Entries of earlier versions say nothing of the votes, and were not compared with others.
        tagged = "votes" in fields
        votes = _digest(_popped(fields, "votes", str)) if tagged else ""
        view = _popped(fields, "view", str) if tagged else ""
        allow_other = _popped(fields, "allow_other", bool) if tagged else True
        if (
            _popped(fields, "queries", int) != len(hashes)
            or queries_digest(hashes) != digest
            or _popped(fields, "again", bool) != again
            or fields
        ):
            raise LedgerError("an answer that is not about its queries")
        if (
            tagged
            and not again
            and (len(entry.tags), tags_digest(entry.tags)) != (len(hashes), votes)
        ):
            raise LedgerError("an answer that is not about its votes")
        matrix = matrix_of(held.offer, batch)
        given = Given(held.offer, source, matrix, view)
        if tagged:
            self.check_answer(given, batch, digest, entry, history, allow_other=allow_other)
        else:
            self._check_within(held, given, batch, digest)
        if tagged and held.votes.setdefault(batch, votes) != votes:
            raise other_votes(batch)
        held.source, held.matrix, held.last = source, matrix, entry.seq
        held.view = view or held.view
        if again:
            record = held.batches[batch]
            held.batches[batch] = replace(record, answered_at=(*record.answered_at, entry.at))
            return
        held.queries += held.new(hashes, history)
        held.batches[batch] = BatchRecord(batch, len(hashes), (entry.at,))
        held.digests[batch] = digest
        held.answers[entry.seq] = batch

    def _opening(self, fields: dict[str, Any], entry: Entry, history: History) -> None:
        campaign, batch = _popped(fields, "campaign", str), _popped(fields, "batch", str)
        held = self._joined(campaign)
        survivors = _parties(_popped(fields, "survivors", list))
        allow_other = _popped(fields, "allow_other", bool)
        if fields:
            raise LedgerError(f"an opening with unknown fields: {', '.join(sorted(fields))}")
        if batch not in held.batches or held.digests[batch] != queries_digest(entry.hashes):
            raise RefusedError(
                f"batch {batch[:8]} is to be opened, but we never gave votes on these queries"
            )
        if not held.offer.sums.masked:
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
        how = How.of(survivors, held.offer, held.source)
        shared = {*history.sharing(entry.hashes), (campaign, batch)}
        check_unmasking(
            held.offer,
            batch,
            how,
            self._opened(shared, campaign, how),
            allow_other=allow_other,
        )
        if not allow_other:
            check_exact(held.offer, how, self._hows())
        held.batches[batch] = replace(
            record, survivors=survivors, opened_at=record.opened_at or entry.at
        )
        held.hows.setdefault(batch, how)
        held.last = entry.seq

    def _opened(
        self, batches: Iterable[tuple[str, str]], campaign: str, how: How
    ) -> Iterator[Earlier]:
        """Yield those of these batches whose sums were opened, and could be subtracted.

        Batches that are not in the ledger (yet) are passed over, and so are those of other campaigns
        in which all was opened as this one is to be: the same sum shows nothing new.
        """
        for other, these in groupby(sorted(batches), key=itemgetter(0)):
            held = self._campaigns.get(other)
            if held is None or (other != campaign and set(held.hows.values()) <= {how}):
                continue
            for _, batch in these:
                if batch in held.hows:
                    yield Earlier(held.offer, batch, held.hows[batch])

    def _hows(self) -> Iterator[tuple[Offer, How]]:
        for held in self._campaigns.values():
            for how in dict.fromkeys(held.hows.values()):
                yield held.offer, how

    def opened_as(
        self,
        campaign: str,
        batch: str,
        hashes: Sequence[bytes],
        survivors: Sequence[str],
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

    def _ending(self, fields: dict[str, Any], entry: Entry) -> None:
        held = self._joined(_popped(fields, "campaign", str))
        ending = EndingRecord(
            queries_asked=_popped(fields, "queries_asked", int),
            labels_released=_popped(fields, "labels_released", int),
            epsilon=_popped(fields, "epsilon", float),
            delta=_popped(fields, "delta", float),
            at=entry.at,
        )
        if fields:
            raise LedgerError(f"an ending with unknown fields: {', '.join(sorted(fields))}")
        if min(ending.queries_asked, ending.labels_released) < 0 or not ending.epsilon >= 0:
            raise ProtocolError("a campaign cannot end with less than nothing")
        held.ending, held.last = ending, entry.seq

    def ended_as(self, campaign: str, ending: EndingRecord) -> bool:
        """Return whether a campaign is known to have ended just so."""
        held = self._joined(campaign)
        return held.ending is not None and replace(held.ending, at=ending.at) == ending


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
