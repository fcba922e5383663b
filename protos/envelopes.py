"""The messages of an envelope: checked together, and in words.

The words come from the signed messages, which the party's own program acts on. An envelope holds no
text of its sender, which could say something else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.codes import code_of
from pate.envelopes import MOST_MESSAGES
from pate.errors import ProtocolError, RefusedError
from pate.formats.enrolment import readable
from pate.formats.mechanism_words import mechanism_in_words
from pate.printable import listed, number_of
from protos import wire
from protos.bounds import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pate.campaign.offer import Offer
    from pate.envelopes import Envelope

#: What each request asks, and what leaves in the reply; {n} is the number of its queries.
_ASKS: Final = {
    "describe": (
        "who you are",
        "your name, classes, unit and number of teachers",
    ),
    "public_piece": ("nothing: it brings a piece of the public set", "a receipt"),
    "ask": (
        "votes on {n} queries, in plain",
        "your vote counts, which the server sees as they are",
    ),
    "ask_keys": ("keys for a masked sum of {n} queries", "public keys, made for it"),
    "ask_shares": ("shares of the secrets behind your keys", "shares, sealed to other parties"),
    "ask_masked": ("masked votes", "your vote counts under masks: random numbers to all"),
    "ask_proof": ("a proof that your masked votes are votes", "the proof; it reveals no vote"),
    "ask_consent": ("your signature of who is in the sum", "the signature"),
    "ask_opening": ("shares that unmask the sum of those parties", "the shares, once, ever"),
    "ask_bundles": (
        "keys ahead, for sums of any campaign of the same parties",
        "public keys and shares, sealed to other parties; each is used once",
    ),
    "ask_masked_ahead": (
        "masked votes on {n} queries",
        "your vote counts under masks: random numbers to all",
    ),
    "ask_consent_ahead": ("your signature of who is in the sum", "the signature"),
    "ask_opening_ahead": (
        "shares that unmask the sum of those parties",
        "the shares: for one list of parties, once, ever",
    ),
    "finish": ("nothing: the campaign has ended", "a receipt"),
}
_SEEN: Final = {
    ("plain", "central"): "your votes as they are; nothing is promised towards it",
    ("masked", "central"): "exact sums over parties; nothing is promised towards it",
    ("masked", "distributed"): (
        "sums with the parties' noise; the privacy statement has the epsilon towards it"
    ),
}


@dataclass(frozen=True)
class Asked:
    """What an envelope asks."""

    offer: Offer  # as the last message states it: it has most of the terms
    kinds: tuple[str, ...]  # of its requests, in order; names of fields of ``PartyRequest``
    queries: tuple[int, ...]  # number of queries voted on, in each request


def read_requests(envelope: Envelope) -> Asked:
    """Check all requests of an envelope, before any is answered."""
    manifest = envelope.manifest
    check(manifest.direction == "for", "an envelope from a party, with replies, not requests")
    kinds, queries, last = [], [], None
    for body in envelope.messages():
        offer, request = wire.read_request(body)
        check(offer.key == manifest.key, "a request in an envelope is signed by another key")
        check(
            offer.campaign == manifest.campaign,
            "a request in an envelope is of another campaign than the envelope",
        )
        kind = request.WhichOneof("body") or ""
        asked = getattr(request, kind)
        batched = "batch" in asked.DESCRIPTOR.fields_by_name
        kinds.append(kind)
        queries.append(len(asked.batch.rows) if batched else 0)
        last = offer
    if last is None or len(kinds) > MOST_MESSAGES:
        raise ProtocolError("an envelope without a request")
    return Asked(last, tuple(kinds), tuple(queries))


def require_for(envelope: Envelope, party: str, pinned: bytes | None) -> None:
    """Check that an envelope is for a party, from the server that it knows.

    ``pinned``: the campaign key of its enrolment; None: not enrolled.
    """
    manifest = envelope.manifest
    if manifest.direction != "for":
        raise RefusedError(
            f"this is an answer of {manifest.party}, not an envelope for {party}: give it to the "
            "coordinator"
        )
    if manifest.party != party:
        raise RefusedError(f"this envelope is for {manifest.party}, and this is {party}")
    if pinned is not None and manifest.key != pinned:
        raise RefusedError(
            f"this envelope is signed by the key {readable(manifest.key)}, the server of our "
            f"enrolment has {readable(pinned)}"
        )


def cover_of(envelope: Envelope) -> Iterator[str]:
    """Yield the lines of an envelope's cover; a line that continues one is indented."""
    manifest = envelope.manifest
    ours = manifest.direction == "for"
    yield (
        f"{'for' if ours else 'from'} {manifest.party}: envelope {manifest.number} of campaign "
        f"{manifest.campaign}"
    )
    yield f"file: {envelope.size} bytes, SHA-256 {envelope.digest.hex()}"
    who = "the campaign's key" if ours else f"the identity key of {manifest.party}"
    yield f"signed by {who} {readable(manifest.key)}"
    if not ours:
        yield f"answers the file with SHA-256 {manifest.answers.hex()}"
        yield (
            f"holds {number_of(len(envelope), 'reply')}, sealed: only the server of the "
            "campaign can read them"
        )
        return
    until = f"until {manifest.until}" if manifest.until else "without a last date"
    yield f"may be answered {until}"
    asked = read_requests(envelope)
    yield "asks, in this order:"
    for kind, queries, times in _runs(asked):
        wanted, leaves = _ASKS.get(kind, (kind, "a reply"))
        count = f" ({times} pieces)" if times > 1 else ""
        yield f"  {wanted.format(n=queries)}{count}"
        yield f"    what leaves: {leaves}"
    yield from _campaign_in_words(asked.offer)


def _runs(asked: Asked) -> Iterator[tuple[str, int, int]]:
    """Yield each kind of request once, with its queries and how often it comes."""
    times = Counter(zip(asked.kinds, asked.queries, strict=True))
    for (kind, queries), count in times.items():
        yield kind, queries, count


def _campaign_in_words(offer: Offer) -> Iterator[str]:
    campaign, settled = offer.announced, offer.settled
    how = "records vote" if campaign.records_vote else "teachers vote"
    code = code_of(campaign.code).in_words
    yield (
        f"campaign: {campaign.aggregator}, {how}{code and f', {code}'}, over a public set of "
        f"{campaign.queries} queries"
    )
    yield f"public set: SHA-256 {campaign.public_set}"
    if campaign.classes:
        yield f"classes: {listed(list(campaign.classes))}"
    if campaign.series:
        yield f"series: {campaign.series}"
    if settled is not None:
        yield f"parties: {listed(list(settled.names))}"
        for each in dict.fromkeys(settled.mechanisms):
            yield f"noise: {mechanism_in_words(each.to_dict())}"
    else:
        yield "parties, noise: not fixed yet; a later envelope states them before any vote"
    yield f"costs, all in all: at most {campaign.cost_in_words}"
    yield f"the server sees: {_SEEN[campaign.sums.aggregation, campaign.sums.noise]}"
