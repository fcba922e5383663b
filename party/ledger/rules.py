"""The rules of a party's ledger and its resulting state, without files or clock.

The same function admits an entry before it is written and checks it when the ledger is read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from party.ledger.accountant import LedgerView, Totals
from party.ledger.bounds import BOUND, Bounds
from party.ledger.campaigns import Campaign, Entry
from party.ledger.records import BatchRecord, CampaignRecord, EndingRecord, FileRecord
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
from party.ledger.series import LOST, UnitVotes, check_series
from party.ledger.synthesis import KINDS as SYNTHESIS_KINDS
from party.ledger.synthesis import Syntheses
from party.ledger.unmaskings import Earlier, How, check_exact, check_unmasking, exact_records
from pate.campaign.choices import EARLY_ENDS
from pate.campaign.offer import Offer
from pate.errors import LedgerError, ProtocolError, RefusedError, UsageError
from pate.masking.ahead.store import MADE, USED, Listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.history import History

#: Largest accepted number of parties in one sum.
_MOST_PARTIES: Final = 10**5


class LedgerState:
    """The ledger as of one entry.

    Methods that need hashes of earlier queries take the history of the file.
    """

    def __init__(self) -> None:
        #: By id, in the order of joining.
        self._campaigns: dict[str, Campaign] = {}
        #: Releases of synthetic rows.
        self.syntheses = Syntheses()
        #: Bounds of the home's own accountant.
        self.bounds = Bounds()
        #: Bundles of keys ahead that left.
        self.bundles = Listing()

    @property
    def in_series(self) -> bool:
        """Whether units have voted in a series: then it matters whether an entry is lost."""
        return any(each.units is not None for each in self._campaigns.values())

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return a record of every campaign, in the order in which they were joined."""
        return tuple(each.record() for each in self._campaigns.values())

    def totals(self) -> tuple[Totals, ...]:
        """Return totals of the answers, by campaign, in the same order."""
        return tuple(each.totals for each in self._campaigns.values())

    def unanswered(self, key: bytes, since: datetime, now: datetime) -> list[datetime]:
        """Return when campaigns of a key were joined that had no votes, after ``since``, sorted.

        A clock that was ahead has joined them later than ``now``; they do not count.
        """
        joined = (
            datetime.fromisoformat(each.joined_at)
            for each in self._campaigns.values()
            if each.offer.key == key and not each.batches
        )
        return sorted(at for at in joined if since < at <= now)

    def campaign(self, campaign: str) -> Campaign | None:
        """Return a campaign, None if it was never joined; do not change it."""
        return self._campaigns.get(campaign)

    def first_answer(self, campaign: str, batch: str) -> int | None:
        """Return the number of the entry with the first answer to a batch, None if there is none."""
        current = self._campaigns.get(campaign)
        answers = {} if current is None else current.answers
        return next((seq for seq, each in answers.items() if each == batch), None)

    def holds(self, campaign: str, batch: str) -> bool:
        """Return whether a batch was answered."""
        current = self._campaigns.get(campaign)
        return current is not None and batch in current.batches

    def voted(
        self,
        offer: Offer,
        units: Sequence[bytes],
        history: History,
        before: int | None = None,
    ) -> frozenset[bytes]:
        """Return those of these units that have voted in another campaign than the offer's.

        Hashes of units are different in each series.

        Args:
            offer: of a campaign of a series.
            units: hashes; see :mod:`party.ledger.series`.
            history: earlier entries.
            before: number of an entry; only earlier answers count. None: all count.
        """
        current = self._campaigns.get(offer.campaign)
        own = {} if current is None else current.answers
        found = history.voted(units, before)
        return frozenset(unit for unit, entry in found.items() if entry not in own)

    def view(
        self, offer: Offer, batch: str | None, hashes: Sequence[bytes] | None, history: History
    ) -> LedgerView:
        """Return the ledger after ``offer`` is answered.

        Raises:
            RefusedError: if it contradicts the earlier terms of the campaign.
            UsageError: if the numbers of hashes and queries differ.
        """
        if hashes is not None and len(hashes) != offer.queries:
            raise UsageError(f"{len(hashes)} hashes for {offer.queries} queries")
        current = self._campaigns.get(offer.campaign)
        totals = [each.totals for name, each in self._campaigns.items() if name != offer.campaign]
        known = offer if current is None else offer.after(current.offer)
        queries, asked = (0, 0) if current is None else (current.queries, current.asked)
        if current is None or batch is None or batch not in current.batches:
            asked += offer.queries
            if hashes is None:
                queries += offer.queries
            else:
                queries += len(set(hashes)) if current is None else current.new(hashes, history)
        totals.append(Totals(known, queries, asked))
        return LedgerView(
            tuple(totals),
            (offer.campaign, offer.queries),
            current is not None,
            self.syntheses.paid(),
        )

    def needs(self, offer: Offer) -> bool:
        """Return whether ``offer`` has new terms.

        Raises:
            RefusedError: if they contradict the earlier terms of the campaign.
        """
        current = self._campaigns.get(offer.campaign)
        return current is None or replace(offer.after(current.offer), queries=0) != current.offer

    # --- entries ---------------------------------------------------------------------------

    def follow(self, entry: Entry, history: History) -> None:
        """Apply one entry; the state is unchanged if it raises.

        Args:
            entry: the next one, with the hashes of its batch if it has one.
            history: earlier entries; may also contain later ones.

        Raises:
            RefusedError: if a rule does not allow it.
            ProtocolError: for impossible values.
            LedgerError: for an entry of unknown kind or form.
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
                case "file":
                    self._file(fields, entry)
                case _ if kind in (MADE, USED):
                    self.bundles.follow(kind, fields, entry.at)
                case _ if kind == LOST:
                    self._lost(fields)
                case _ if kind == BOUND:
                    self.bounds.follow(fields)
                case _ if kind in SYNTHESIS_KINDS:
                    self.syntheses.follow(kind, fields, entry.at)
                case _:
                    raise LedgerError(f"unknown kind of entry: {kind!r}")
        except (KeyError, TypeError) as error:
            raise LedgerError(f"an entry {kind!r} without its fields: {error}") from error

    def _offer(self, offer: Offer, entry: Entry) -> None:
        current = self._campaigns.get(offer.campaign)
        if current is None:
            self._campaigns[offer.campaign] = Campaign(offer, entry.at, entry.seq)
        else:
            current.offer, current.last = offer.after(current.offer), entry.seq

    def _joined(self, campaign: str) -> Campaign:
        current = self._campaigns.get(campaign)
        if current is None:
            raise RefusedError(f"campaign {campaign[:8]} was never joined by this party")
        return current

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
        """Check that votes may leave, given all earlier votes; see :mod:`party.ledger.sent_votes`.

        Args:
            given: the votes.
            batch: digest of their queries, hex.
            digest: of all queries.
            entry: to be written; without tags the votes are not known yet.
            history: earlier entries; may also contain later ones.
            allow_other: whether to answer queries that another campaign had other votes on.

        Raises:
            RefusedError: if they may not.
        """
        name = given.offer.campaign
        current = self._joined(name)
        current.check_answer(given, batch, digest)
        check_series(
            given.offer,
            given.units,
            current.units,
            (
                (each.offer, each.units, each.forgotten)
                for other, each in self._campaigns.items()
                if other != name
            ),
        )
        if entry.units and self.voted(given.offer, entry.units, history, entry.seq):
            raise RefusedError(
                f"units of ours have voted in another campaign of series {given.offer.series!r}: "
                "each votes once"
            )
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
        if current.votes.get(batch, tags_digest(entry.tags)) != tags_digest(entry.tags):
            raise other_votes(batch)
        clashing = {other for other, _ in history.clashing(entry.hashes, entry.tags, entry.seq)}
        if allow_other:
            clashing &= {name}
        check_votes(given, batch, (each.given for each in self._among(clashing)))

    def _among(self, campaigns: Iterable[str]) -> Iterator[Campaign]:
        """Yield the known ones of these campaigns, in a fixed order."""
        return (self._campaigns[name] for name in sorted(campaigns) if name in self._campaigns)

    def _answer(self, fields: dict[str, Any], entry: Entry, history: History) -> None:
        hashes = entry.hashes
        current = self._joined(_popped(fields, "campaign", str))
        batch = _digest(_popped(fields, "batch", str))
        digest = _popped(fields, "queries_digest", str)
        source = _digest(_popped(fields, "source", str))
        again = batch in current.batches
        votes = _digest(_popped(fields, "votes", str))
        view = _popped(fields, "view", str)
        allow_other = _popped(fields, "allow_other", bool)
        round_ = _popped(fields, "round", int) if "round" in fields else 0
        in_series = "series" in fields
        units = UnitVotes.from_dict(_popped(fields, "series", dict)) if in_series else None
        if (
            _popped(fields, "queries", int) != len(hashes)
            or queries_digest(hashes) != digest
            or _popped(fields, "again", bool) != again
            or fields
        ):
            raise LedgerError("an answer that does not match its queries")
        if not again and (len(entry.tags), tags_digest(entry.tags)) != (len(hashes), votes):
            raise LedgerError("an answer that does not match its votes")
        if units is not None and not again and UnitVotes.of(units.known_by, entry.units) != units:
            raise LedgerError("an answer that does not match the units that vote in it")
        matrix = matrix_of(current.offer, batch)
        given = Given(current.offer, source, matrix, view, units, round_)
        self.check_answer(given, batch, digest, entry, history, allow_other=allow_other)
        if current.votes.setdefault(batch, votes) != votes:
            raise other_votes(batch)
        current.source, current.matrix, current.last = source, matrix, entry.seq
        current.view = view
        current.units = units
        if again:
            record = current.batches[batch]
            current.batches[batch] = replace(record, answered_at=(*record.answered_at, entry.at))
            return
        current.queries += current.new(hashes, history)
        current.batches[batch] = BatchRecord(batch, len(hashes), (entry.at,))
        current.digests[batch] = digest
        current.rounds[batch] = round_
        current.answers[entry.seq] = batch

    def _opening(self, fields: dict[str, Any], entry: Entry, history: History) -> None:
        campaign, batch = _popped(fields, "campaign", str), _popped(fields, "batch", str)
        current = self._joined(campaign)
        survivors = _parties(_popped(fields, "survivors", list))
        allow_other = _popped(fields, "allow_other", bool)
        if fields:
            raise LedgerError(f"an unmasking with unknown fields: {', '.join(sorted(fields))}")
        current.check_unmasking(batch, queries_digest(entry.hashes), survivors)
        record = current.batches[batch]
        how = How.of(survivors, current.offer, current.source)
        shared = {*history.sharing(entry.hashes), (campaign, batch)}
        check_unmasking(
            current.offer,
            batch,
            how,
            self._opened(shared, campaign, how),
            allow_other=allow_other,
        )
        if not allow_other:
            check_exact(current.offer, how, self._hows())
        current.batches[batch] = replace(
            record, survivors=survivors, opened_at=record.opened_at or entry.at
        )
        current.hows.setdefault(batch, how)
        current.last = entry.seq

    def _opened(
        self, batches: Iterable[tuple[str, str]], campaign: str, how: How
    ) -> Iterator[Earlier]:
        """Yield those of these batches whose sums were unmasked, and could be subtracted.

        Skips batches that are not in the ledger (yet), and those of other campaigns that were
        unmasked with the same parties and data: an equal sum reveals nothing new.
        """
        for other, these in groupby(sorted(batches), key=itemgetter(0)):
            current = self._campaigns.get(other)
            if current is None or (other != campaign and set(current.hows.values()) <= {how}):
                continue
            for _, batch in these:
                if batch in current.hows:
                    yield Earlier(current.offer, batch, current.hows[batch])

    def _hows(self) -> Iterator[tuple[Offer, How]]:
        for current in self._campaigns.values():
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
        current = self._campaigns.get(campaign)
        record = None if current is None else current.batches.get(batch)
        return (
            current is not None
            and record is not None
            and record.survivors == tuple(sorted(survivors))
            and current.digests[batch] == queries_digest(hashes)
        )

    def _ending(self, fields: dict[str, Any], entry: Entry) -> None:
        current = self._joined(_popped(fields, "campaign", str))
        ending = EndingRecord(
            queries_asked=_popped(fields, "queries_asked", int),
            labels_released=_popped(fields, "labels_released", int),
            epsilon=_popped(fields, "epsilon", float),
            delta=_popped(fields, "delta", float),
            at=entry.at,
            cause=_popped(fields, "cause", str) if "cause" in fields else "",
        )
        if fields:
            raise LedgerError(f"an ending with unknown fields: {', '.join(sorted(fields))}")
        if min(ending.queries_asked, ending.labels_released) < 0 or not ending.epsilon >= 0:
            raise ProtocolError("a campaign cannot end with negative counts")
        if ending.cause not in ("", *EARLY_ENDS):
            raise ProtocolError(f"a campaign cannot end by {ending.cause!r:.40}")
        current.ending, current.last = ending, entry.seq
        current.endings += 1

    def _file(self, fields: dict[str, Any], entry: Entry) -> None:
        current = self._joined(_popped(fields, "campaign", str))
        file = FileRecord(
            _popped(fields, "number", int),
            _digest(_popped(fields, "answers", str)),
            _digest(_popped(fields, "file", str)),
            _popped(fields, "size", int),
            entry.at,
        )
        if fields:
            raise LedgerError(f"a file with unknown fields: {', '.join(sorted(fields))}")
        if min(file.number, file.size) < 1:
            raise ProtocolError("a file that left has a number and a size")
        current.send(file)
        current.last = entry.seq

    def sent(self, campaign: str, answers: str, digest: str) -> bool:
        """Return whether exactly this file is recorded as the answer to that one."""
        current = self._joined(campaign)
        file = current.files.get(answers)
        return file is not None and file.digest == digest

    def _lost(self, fields: dict[str, Any]) -> None:
        if fields:
            raise LedgerError(f"a loss with unknown fields: {', '.join(sorted(fields))}")
        for each in self._campaigns.values():
            each.forgotten = True

    def ended_as(self, campaign: str, ending: EndingRecord) -> bool:
        """Return whether exactly this ending is recorded."""
        current = self._joined(campaign)
        return current.ending is not None and replace(current.ending, at=ending.at) == ending

    def endings(self, campaign: str) -> int:
        """Return how many endings of a campaign are recorded."""
        return self._joined(campaign).endings


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
        raise ProtocolError("a survivor is repeated")
    return tuple(sorted(names))
