"""What this party's votes are, compared with all votes that ever left: before they leave.

A part of :mod:`party.ledger.rules`. The parties' masks hide one sum; two sums that differ in what one
party alone put into them hide nothing of it, and the others open each without that party. So whatever
only this party can know is compared here, with what it *gave*, opened or not; the survivors of a sum,
which all know, are compared when it is opened (:mod:`party.ledger.unmaskings`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from party.ledger.unmaskings import exact_records
from pate.errors import ProtocolError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from party.offer import Offer
    from pate.votes import Counts

TAG_BYTES: Final = 16
HASH_BYTES: Final = 32
#: More queries in one batch are a mistake.
_MOST_QUERIES: Final = 10**7
#: With what the view of images begins.
_IMAGES: Final = "images"


@dataclass(frozen=True, slots=True)
class Answer:
    """Votes on a batch that may leave: on what, and made of what; the votes themselves stay out.

    Attributes:
        batch: (32,) bytes, its digest.
        hashes: (queries,), 32 bytes each, in order, of the queries as our teachers see them.
        source: (32,) bytes, what changes when our votes may: data and settings.
        view: how our data are seen; see :func:`view_of`.
        tags: (queries,), 16 bytes each, of the votes, see :func:`tags_of`; empty until they are known.
    """

    batch: bytes
    hashes: Sequence[bytes]
    source: bytes
    view: str = ""
    tags: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """Votes that this party gave, or is about to.

    Attributes:
        offer: terms of their campaign.
        source: digest of the data and settings that they are made of, hex.
        matrix: of records' votes what decides them, with the records; empty for those of teachers.
        view: how our data are seen, as :func:`view_of` has it; empty if that is not known.
    """

    offer: Offer
    source: str
    matrix: str
    view: str = ""

    @property
    def masked(self) -> bool:
        """Whether the server got them in a sum only."""
        return self.offer.sums.masked

    def alike(self, other: Given) -> bool:
        """Return whether a query that is in both has the same votes, from the same data."""
        # Votes of teachers less votes of records are nobody's votes.
        return self.offer.records_vote == other.offer.records_vote and self.matrix == other.matrix


def matrix_of(offer: Offer, batch: str) -> str:
    """Return what decides the votes of records, besides the records: a digest, hex.

    Where a record votes depends on all queries and on the public set that their space is fitted
    on, how many of a patient's vote and what is cut off on the terms. Of teachers it is empty: their
    votes on a query depend on nothing else.

    Args:
        offer: terms of the campaign.
        batch: digest of its queries, hex.
    """
    if not offer.records_vote:
        return ""
    events = [event for each in offer.mechanisms or () for event in each.worst]
    of_patient = min((event.votes_per_unit for event in events), default=None)
    text = json.dumps(
        [
            batch,
            offer.public_set,
            sorted(offer.classes or ()),
            of_patient if offer.unit == "patient" else None,
            sorted(set(offer.teachers_each or ())),
        ]
    )
    return hashlib.sha256(b"pate vote matrix v1\0" + text.encode()).hexdigest()


def view_of(schema: str) -> str:
    """Return how data are seen that votes are made of, such that votes of other views cannot be compared.

    Of a table it says which columns, by a digest: without one of them a query has another hash here, and
    the same elsewhere. Of images it is the window: another one makes other pictures of ours if they are
    deep, and none of those who have 8 bits. Of another size they are other queries to everybody.

    Args:
        schema: the line of the data, as it was read for a campaign.
    """
    kind, window, ends = schema.partition(" window ")
    if kind.startswith(_IMAGES):
        return _IMAGES + window + ends
    return hashlib.sha256(b"pate view v1\0" + schema.encode()).hexdigest()


def tags_of(
    key: bytes, hashes: Sequence[bytes], classes: Sequence[str], votes: Counts
) -> tuple[bytes, ...]:
    """Return a keyed hash of the votes on each query, by which a ledger knows them again.

    Without the key it says nothing: neither what the votes are, nor on which queries they are alike.
    The order of the classes does not matter, nor do classes without votes.

    Args:
        key: secret of the party.
        hashes: (queries,), 32 bytes each, of the queries as the teachers see them.
        classes: names of the m columns.
        votes: (queries, m) int64.

    Returns:
        (queries,), 16 bytes each.
    """
    order = sorted(range(len(classes)), key=lambda at: classes[at])
    made = []
    for query, row in zip(hashes, votes.tolist(), strict=True):
        text = json.dumps([[classes[at], row[at]] for at in order if row[at]])
        whole = hmac.digest(key, b"pate votes given v1\0" + query + text.encode(), "sha256")
        made.append(whole[:TAG_BYTES])
    return tuple(made)


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


def tags_digest(tags: Sequence[bytes]) -> str:
    """Return the digest by which an entry commits to the tags of its votes, hex.

    Raises:
        ProtocolError: if one is not 16 bytes.
    """
    if any(len(each) != TAG_BYTES for each in tags):
        raise ProtocolError(f"the tag of a vote is {TAG_BYTES} bytes")
    return hashlib.sha256(b"pate party votes v1\0" + b"".join(tags)).hexdigest()


def check_sources(mine: Given, sharing: Iterable[Given]) -> None:
    """Check that campaigns that have a query in common with a new answer had votes of the same data.

    Raises:
        RefusedError: if one had not: two sums with the same others in them would show the change.
    """
    for each in sharing:
        same_kind = each.offer.records_vote == mine.offer.records_vote
        if mine.masked and each.masked and same_kind and each.source != mine.source:
            raise RefusedError(
                f"campaign {each.offer.campaign[:8]} had votes on one of these queries, of other "
                "data or settings of ours than now: the difference of two sums would show what has "
                "changed; repeat_queries = 'allow' would permit it"
            )


def check_views(mine: Given, others: Iterable[Given]) -> None:
    """Check that exact sums that may be about the same queries can be compared by their hashes.

    A query is what the teachers see of it. Since they see other columns, it has another hash, and
    to the other parties it may be the same. And a window is the server's to choose: with one that
    makes all deep images black, the votes of who alone has such images say nothing, and those of the
    others are on queries that differ in a pixel what they were.

    Raises:
        RefusedError: if votes were given, for an exact sum, by teachers that saw other columns, or
            images through another window.
    """
    if not (exact_masked(mine) and mine.view):
        return
    for each in others:
        same_kind = each.offer.records_vote == mine.offer.records_vote
        same_kind = same_kind and each.view.startswith(_IMAGES) == mine.view.startswith(_IMAGES)
        if exact_masked(each) and same_kind and each.view not in ("", mine.view):
            raise RefusedError(
                f"campaign {each.offer.campaign[:8]} had votes of ours for an exact sum, and our data "
                "had other columns, or our images another window: on the same queries the difference of "
                "two sums would show the change; noise by the parties (--noise distributed), or "
                "repeat_queries = 'allow', would permit it"
            )


def exact_masked(given: Given) -> bool:
    """Return whether the server gets votes in a sum without noise of the parties."""
    return given.masked and not given.offer.sums.distributed


def check_matrices(mine: Given, others: Iterable[Given]) -> None:
    """Check that exact sums of records' votes, whatever their queries are, are all of one matrix.

    Each record is in each of them once. Sums of other data show what has changed; and because a
    party's counts are cut off, sums over other queries, or cut elsewhere, show how the counts are
    spread over the parties.

    Raises:
        RefusedError: if one of them is of another matrix, or of other data.
    """
    if not (mine.masked and exact_records(mine.offer)):
        return
    for each in others:
        if each.masked and exact_records(each.offer):
            name = each.offer.campaign[:8]
            if each.source != mine.source:
                raise RefusedError(
                    f"campaign {name} had votes of our records for an exact sum, and they were other "
                    "records: the difference of two sums would show how many of each class have "
                    "changed; noise by the parties (--noise distributed), or repeat_queries = "
                    "'allow', would permit it"
                )
            if each.matrix != mine.matrix:
                raise RefusedError(
                    f"campaign {name} had votes of our records for an exact sum, on other queries, "
                    "another public set or another bound on votes: several such sums show how votes "
                    "are spread over the parties; noise by the parties (--noise distributed), or "
                    "repeat_queries = 'allow', would permit it"
                )


def check_votes(mine: Given, batch: str, clashing: Iterable[Given]) -> None:
    """Check votes against those that were given before on the same queries.

    Args:
        mine: what is about to leave.
        batch: digest of its queries, hex.
        clashing: what was given before, with other votes on one of these queries.

    Raises:
        RefusedError: if the same teachers, or records, should have voted the same.
    """
    for each in clashing:
        same = each.offer.campaign == mine.offer.campaign
        if same or (mine.masked and each.masked and mine.alike(each)):
            raise other_votes(batch, "" if same else each.offer.campaign)


def other_votes(batch: str, campaign: str = "") -> RefusedError:
    """Return the error for votes that are not those that were given before."""
    where = f"to campaign {campaign[:8]} " if campaign else ""
    return RefusedError(
        f"our votes on a query of batch {batch[:8]} are not those that we gave {where}before: the "
        "difference of two sums would show the change. Teachers that were trained again vote "
        "otherwise where PyTorch, the device or the number of threads is another"
        + ("; repeat_queries = 'allow' would permit it" if campaign else "")
    )
