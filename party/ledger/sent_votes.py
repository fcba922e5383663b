"""Comparison of this party's votes with all votes that ever left, before they leave.

Masks hide the votes in one sum; the difference of two sums in which only one party's votes changed reveals
that change, and the other parties unmask each without noticing. So everything that only this party knows is
compared here with what it *sent*, unmasked or not. The survivors of a sum, which all know, are compared when
it is unmasked (:func:`check_unmasking`): the difference of two sums over the same queries reveals the votes
of parties in only one of them.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.codes import NEAREST, code_of
from pate.errors import ProtocolError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from party.ledger.series import UnitVotes
    from pate.campaign.offer import Offer
    from pate.votes import Counts

TAG_BYTES: Final = 16
HASH_BYTES: Final = 32
#: Largest accepted number of queries in one batch.
_MOST_QUERIES: Final = 10**7
#: Prefix of the view of images.
_IMAGES: Final = "images"


@dataclass(frozen=True, slots=True)
class Answer:
    """Description of votes on a batch that may leave, without the votes themselves."""

    batch: bytes
    hashes: Sequence[bytes]  # 32 bytes each, in order, of the queries as our teachers see them
    source: bytes  # (32,) bytes, digest of the data and settings that determine our votes
    view: str = ""
    # 16 bytes each, of the votes, see :func:`tags_of`; empty until they are known
    tags: Sequence[bytes] = ()
    # hashes of the units that vote, ascending; None outside a series. See
    # :mod:`party.ledger.series`
    units: Sequence[bytes] | None = None
    known_by: str = ""  # digest of what these hashes depend on besides the units, hex
    round: int = 0  # in which records vote, from 1; 0 where they do not vote in rounds


@dataclass(frozen=True, slots=True)
class Given:
    """Votes that this party sent, or is about to send."""

    offer: Offer
    source: str  # digest of the data and settings behind them, hex
    # for records' votes, digest of what determines them besides the records; for teachers' votes in
    # one release, likewise; else empty
    matrix: str
    view: str = ""  # of our data, see :func:`view_of`; empty if unknown
    units: UnitVotes | None = None
    round: int = 0  # in which records vote, from 1; 0 where they do not vote in rounds

    @property
    def masked(self) -> bool:
        """Whether the server got them only in a sum."""
        return self.offer.announced.sums.masked

    def alike(self, other: Given) -> bool:
        """Return whether a common query has the same votes, from the same data."""
        # The difference between votes of teachers and of records reveals no votes.
        return (
            self.offer.announced.records_vote == other.offer.announced.records_vote
            and self.matrix == other.matrix
        )

    def of_other_units(self, other: Given) -> bool:
        """Return whether both are noisy, and no unit's vote is in both: campaigns of one series.

        Then the difference of the sums is no change of our votes. Exact sums are compared all the
        same: they have no noise to hide how few units a sum has.
        """
        return (
            self.offer.continues(other.offer)
            and self.offer.announced.sums.distributed
            and other.offer.announced.sums.distributed
        )


def matrix_of(offer: Offer, batch: str) -> str:
    """Return the digest of what determines records' votes besides the records, hex.

    Where a record votes depends on all queries, on the public set that the space is fitted on and
    on the code; the number of votes per patient and the clipping depend on the terms. For teachers that
    vote for a class it is empty: their votes on a query depend on nothing else. For several labels
    they depend on how many of them count, and in one release for a class on all queries, too.
    """
    announced = offer.announced
    if not announced.one_release:
        return ""
    if not announced.records_vote and not code_of(announced.code).answer.of:
        text = json.dumps(
            [batch, announced.public_set, sorted(announced.classes or ()), announced.code]
        )
        return hashlib.sha256(b"pate teachers at once v1\0" + text.encode()).hexdigest()
    if not announced.records_vote:
        of_labels = json.dumps([code_of(announced.code).answer.most])
        return hashlib.sha256(b"pate teacher labels v1\0" + of_labels.encode()).hexdigest()
    settled = offer.settled
    of_patient = None if settled is None else settled.votes_per_unit
    code = () if announced.code == NEAREST else (announced.code,)
    text = json.dumps(
        [
            batch,
            announced.public_set,
            sorted(announced.classes or ()),
            of_patient if announced.unit == "patient" else None,
            [] if settled is None else sorted({each.teachers for each in settled.roster}),
            *code,
        ]
    )
    return hashlib.sha256(b"pate vote matrix v1\0" + text.encode()).hexdigest()


def view_of(schema: str) -> str:
    """Return the view of the data behind votes; votes of different views cannot be compared.

    For a table it is a digest of the columns: without one of them a query has another hash here,
    and the same elsewhere. For images it is the window: another one changes our images if they are
    deep or in an archive, and not those of parties with files of 8 bits. Images of another size are
    other queries at every party.
    """
    kind, window, ends = schema.partition(" window ")
    if kind.startswith(_IMAGES):
        return _IMAGES + window + ends
    return hashlib.sha256(b"pate view v1\0" + schema.encode()).hexdigest()


def tags_of(
    key: bytes, hashes: Sequence[bytes], classes: Sequence[str], votes: Counts
) -> tuple[bytes, ...]:
    """Return a keyed hash, 16 bytes, of the votes on each query, by which a ledger recognises them.

    Without the key it reveals neither the votes, nor on which queries they are equal. It depends
    neither on the order of the classes nor on classes without votes. Queries of one hash have one tag, of
    all their different votes: rows of an array differ where queries do not.
    """
    order = sorted(range(len(classes)), key=lambda at: classes[at])
    said: dict[bytes, dict[str, None]] = {}
    for query, row in zip(hashes, votes.tolist(), strict=True):
        text = json.dumps([[classes[at], row[at]] for at in order if row[at]])
        said.setdefault(query, {})[text] = None
    tags = {
        query: hmac.digest(
            key, b"pate votes given v1\0" + query + "".join(texts).encode(), "sha256"
        )
        for query, texts in said.items()
    }
    return tuple(tags[query][:TAG_BYTES] for query in hashes)


def queries_digest(hashes: Sequence[bytes]) -> str:
    """Return the digest by which an entry commits to its queries, hex."""
    if not 0 < len(hashes) <= _MOST_QUERIES:
        raise ProtocolError(f"a batch of {len(hashes)} queries")
    if any(len(each) != HASH_BYTES for each in hashes):
        raise ProtocolError("the hash of a query is 32 bytes")
    return hashlib.sha256(b"pate party queries v1\0" + b"".join(hashes)).hexdigest()


def tags_digest(tags: Sequence[bytes]) -> str:
    """Return the digest by which an entry commits to the tags of its votes, hex."""
    if any(len(each) != TAG_BYTES for each in tags):
        raise ProtocolError(f"the tag of a vote is {TAG_BYTES} bytes")
    return hashlib.sha256(b"pate party votes v1\0" + b"".join(tags)).hexdigest()


def check_sources(mine: Given, sharing: Iterable[Given]) -> None:
    """Check that campaigns with a query in common with a new answer had votes of the same data.

    Otherwise the difference of two sums with the same other parties would reveal the change. Exact
    sums of teachers' votes for several labels also had the same number of labels: votes of another
    number have other tags, so a change of them could not be seen.
    """
    for each in sharing:
        same_kind = each.offer.announced.records_vote == mine.offer.announced.records_vote
        if mine.of_other_units(each):
            continue
        if mine.masked and each.masked and same_kind and each.source != mine.source:
            raise RefusedError(
                f"campaign {each.offer.campaign[:8]} had votes on one of these queries, from "
                "other data or settings of ours than now: the difference of two sums would "
                "reveal the change; repeat_queries = 'allow' would permit it"
            )
        of_labels = (
            same_kind and not mine.offer.announced.records_vote and each.matrix != mine.matrix
        )
        if of_labels and mine.offer.announced.sums.exact and each.offer.announced.sums.exact:
            raise RefusedError(
                f"campaign {each.offer.campaign[:8]} had votes on one of these queries for an exact "
                "sum, with another number of labels: such votes cannot be compared, and the "
                "difference of two sums would reveal a change of them; noise by the parties "
                "(--noise distributed), or repeat_queries = 'allow', would permit it"
            )


def check_views(mine: Given, others: Iterable[Given]) -> None:
    """Check that exact sums over possibly equal queries can be compared by query hashes.

    The hash of a query covers what the teachers see. If they see other columns, its hash changes
    here, while at the other parties it may stay the same. And the server chooses the window: one
    that makes all deep images black removes the information of the only party with such images,
    while the others' queries need differ in only a pixel.
    """
    if not (mine.offer.announced.sums.exact and mine.view):
        return
    for each in others:
        same_kind = each.offer.announced.records_vote == mine.offer.announced.records_vote
        same_kind = same_kind and each.view.startswith(_IMAGES) == mine.view.startswith(_IMAGES)
        if each.offer.announced.sums.exact and same_kind and each.view not in ("", mine.view):
            raise RefusedError(
                f"campaign {each.offer.campaign[:8]} had votes of ours for an exact sum, and "
                "our data had other columns, or our images another window: on the same queries "
                "the difference of two sums would reveal the change; noise by the parties "
                "(--noise distributed), or "
                "repeat_queries = 'allow', would permit it"
            )


def check_matrices(mine: Given, others: Iterable[Given]) -> None:
    """Check that exact sums of records' votes, whatever their queries, all have the same matrix.

    Each record is in each of them once. Sums over changed data reveal the change; and because a
    party's counts are clipped, sums over other queries, or with another clipping, reveal how the
    counts are distributed over the parties.
    """
    if not (mine.masked and exact_records(mine.offer)):
        return
    for each in others:
        if each.masked and exact_records(each.offer):
            name = each.offer.campaign[:8]
            if each.source != mine.source:
                raise RefusedError(
                    f"campaign {name} had votes of our records for an exact sum, and they were "
                    "other records: the difference of two sums would reveal how many of each "
                    "class have changed; noise by the parties (--noise distributed), or "
                    "repeat_queries = "
                    "'allow', would permit it"
                )
            if each.matrix != mine.matrix:
                raise RefusedError(
                    f"campaign {name} had votes of our records for an exact sum, on other queries, "
                    "another public set or another bound on votes: several such sums reveal "
                    "how votes are distributed over the parties; noise by the parties (--noise "
                    "distributed), or "
                    "repeat_queries = 'allow', would permit it"
                )


def check_votes(mine: Given, batch: str, clashing: Iterable[Given]) -> None:
    """Check votes against ``clashing`` earlier answers, which have other votes on one of these queries."""
    for each in clashing:
        same = each.offer.campaign == mine.offer.campaign
        if mine.of_other_units(each):
            continue
        if same or (mine.masked and each.masked and mine.alike(each)):
            raise other_votes(batch, "" if same else each.offer.campaign)


def other_votes(batch: str, campaign: str = "") -> RefusedError:
    """Return the error for votes that differ from earlier ones."""
    where = f"to campaign {campaign[:8]} " if campaign else ""
    return RefusedError(
        f"our votes on a query of batch {batch[:8]} differ from those that we sent "
        f"{where}before: the difference of two sums would reveal the change. Retrained teachers "
        "may vote differently with another PyTorch, device or number of threads"
        + ("; repeat_queries = 'allow' would permit it" if campaign else "")
    )


# --- sums that were unmasked, and with whom -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class How:
    """Whose votes are in an unmasked sum: two sums that differ in it reveal votes.

    ``survivors`` covers identity keys, since a name may be another party elsewhere.
    """

    survivors: bytes
    source: str

    @classmethod
    def of(cls, survivors: Sequence[str], offer: Offer, source: str) -> How:
        """Return whose votes are in a sum of a campaign."""
        keys = {} if offer.settled is None else offer.settled.identities
        text = json.dumps([[name, keys.get(name, "")] for name in survivors])
        return cls(hashlib.sha256(text.encode()).digest(), source)


@dataclass(frozen=True)
class Earlier:
    """A sum that was unmasked before."""

    offer: Offer
    batch: str
    how: How


def check_unmasking(
    offer: Offer, batch: str, how: How, earlier: Iterable[Earlier], *, allow_other: bool
) -> None:
    """Check that a batch may be unmasked, given earlier sums with at least one of its queries.

    The difference of its sum and an earlier one may reveal no votes. ``allow_other``: whether
    another campaign may have unmasked them with other parties or data.
    """
    for each in earlier:
        # The difference between votes of teachers and of records reveals no votes.
        if each.offer.announced.records_vote == offer.announced.records_vote:
            if offer.announced.sums.distributed and offer.continues(each.offer):
                continue  # noisy sums of a series, in which no unit votes twice
            same = each.offer.campaign == offer.campaign
            _check_query(offer, batch, how, each, allow=allow_other and not same)


def check_exact(offer: Offer, how: How, others: Iterable[tuple[Offer, How]]) -> None:
    """Check that exact sums of records' votes all have the same parties and data.

    Whatever the queries, each record is in the sum once: the difference of two sums, added up over
    the queries, is the number of records of each class in only one of them.
    """
    if not exact_records(offer):
        return
    for theirs, opened in others:
        if theirs.campaign != offer.campaign and exact_records(theirs) and opened != how:
            raise RefusedError(
                f"exact sums of records' votes were unmasked in campaign {theirs.campaign[:8]} "
                "with other parties or other data of ours: the difference of two sums would "
                "reveal how many records of each class one of them has; noise by the parties "
                "(--noise distributed), or repeat_queries = 'allow', would permit it"
            )


def _check_query(offer: Offer, batch: str, how: How, earlier: Earlier, *, allow: bool) -> None:
    same = earlier.offer.campaign == offer.campaign
    if earlier.how != how and not allow:
        others = "other parties" if earlier.how.survivors != how.survivors else "other data of ours"
        where = "in another batch" if same else f"in campaign {earlier.offer.campaign[:8]}"
        raise RefusedError(
            f"a query of batch {batch[:8]} was unmasked before, {where}, with {others}: the "
            "difference of two sums would reveal votes"
            + ("" if same else "; repeat_queries = 'allow' would permit it")
        )
    if same and earlier.batch != batch and offer.announced.sums.distributed:
        raise RefusedError(
            f"a query of batch {batch[:8]} was unmasked in batch {earlier.batch[:8]} before: "
            "two noisy sums of the same votes are less private than one; if the public set has "
            "duplicate inputs, remove them"
        )


def exact_records(offer: Offer) -> bool:
    """Return whether the sums of a campaign are records' votes without noise."""
    return offer.announced.records_vote and not offer.announced.sums.distributed
