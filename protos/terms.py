"""The description of a campaign in messages to parties: construction, validation, derived terms.

Both sides derive the same values from the same message, so none has to be trusted: the width of the integers
of a masked sum, the noise share of a party, and a digest of all terms that every key and mask is bound to.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from google.protobuf.json_format import MessageToDict

from pate.accounting.composition import Gate
from pate.accounting.events import GatedBatch
from pate.answers import RESIDUAL
from pate.campaign.choices import MOST_WANTED
from pate.campaign.offer import Offer
from pate.campaign.sum_terms import SumTerms
from pate.codes import NEAREST, Code, code_of
from pate.errors import AccountingError, ProtocolError, UsageError
from pate.exact import fraction_from_text, parse, read
from pate.masking.ring import ring_bits
from pate.mechanisms import MECHANISMS, DistributedMechanism
from pate.rounds.rule import MOST_ROUNDS
from protos.bounds import (
    HASH_BYTES,
    ID_BYTES,
    KEY_BYTES,
    MAX_NAME,
    MAX_SCHEMA,
    MAX_TEACHERS,
    check,
    check_classes,
    check_names,
    length,
    line,
)
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

    from pate.accounting.composition import Composition
    from pate.campaign.choices import Unit
    from pate.campaign.roster import RosterParty
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import Mechanism
    from pate.noise.share_laws import Shares

_LONGEST_MECHANISM: Final = 2_000
_MOST_ROUNDS: Final = 10_000

_T = TypeVar("_T")


def public_campaign(spec: CampaignSpec, wanted_teachers: int = 0) -> vote_pb2.Campaign:
    """Return the description of a campaign for parties.

    Args:
        spec: of the campaign.
        wanted_teachers: k of a party whose owner states none; 0: none is wanted.
    """
    return vote_pb2.Campaign(
        id=bytes.fromhex(spec.id),
        classes=spec.classes or (),
        public_set=bytes.fromhex(spec.public_set),
        queries=spec.queries,
        schema=spec.schema,
        mechanism=spec.aggregator,
        unit=spec.unit,
        aggregation=spec.sums.aggregation,
        epsilon=spec.epsilon,
        delta=spec.delta,
        rounds=spec.rounds,
        noise=spec.sums.noise,
        threshold=spec.sums.min_parties,
        colluders=spec.sums.colluders,
        proofs=spec.vote_proofs,
        most_votes=None if spec.neighbour is None else spec.neighbour.most_votes,
        code=None if spec.code == NEAREST else spec.code,
        series=spec.series or "",
        wanted_teachers=wanted_teachers,
    )


def public_terms(
    roster: Iterable[RosterParty],
    mechanisms: Sequence[Mechanism],
    composition: Composition,
    cap: Fraction,
) -> vote_pb2.Terms:
    """Return the terms for parties once the roster is complete.

    Args:
        roster: all parties.
        mechanisms: of the first round, and of all later ones if it differs.
        composition: how costs add up.
        cap: largest total cost of all answers, in that composition.
    """
    return vote_pb2.Terms(
        roster=[
            vote_pb2.Member(
                name=each.name, identity=bytes.fromhex(each.identity), teachers=each.teachers
            )
            for each in sorted(roster, key=lambda each: each.name)
        ],
        mechanisms=mechanism_texts(mechanisms),
        composition=composition.name,
        cap=str(cap),
        gate=_text(composition.batch) if isinstance(composition, Gate) else "",
    )


def offer_of(key: bytes, campaign: vote_pb2.Campaign) -> Offer:
    """Return the offer in a campaign that a party received, checked: for the policy and the ledger.

    Args:
        key: that signed it, 32 bytes.
        campaign: as received.

    Raises:
        ProtocolError: if a field is out of bounds, or the fields do not fit together.
    """
    _check_bounds(campaign)
    settled = _settled(campaign) if campaign.HasField("terms") else {}
    return Offer(
        key=key,
        campaign=campaign.id.hex(),
        aggregator=campaign.mechanism,
        sums=sums_of(campaign),
        unit=cast("Unit", campaign.unit),  # the offer checks it
        epsilon=campaign.epsilon,
        delta=campaign.delta,
        code=str(code_in(campaign)),
        public_queries=campaign.queries,
        public_set=campaign.public_set.hex(),
        schema=campaign.schema,
        classes=tuple(campaign.classes) or None,
        rounds=campaign.rounds,
        series=campaign.series or None,
        wanted_teachers=campaign.wanted_teachers or None,
        **settled,
    )


def _check_bounds(campaign: vote_pb2.Campaign) -> None:
    """Check sizes, and what the offer does not contain: proofs, and the most votes on a count."""
    length(campaign.id, ID_BYTES, "campaign id")
    length(campaign.public_set, HASH_BYTES, "public set hash")
    check_classes(campaign.classes, empty_allowed=True)
    check(0 < campaign.queries <= 10**9, f"a public set of {campaign.queries} queries")
    line(campaign.schema, MAX_SCHEMA, "schema")
    line(campaign.mechanism, MAX_NAME, "mechanism")
    if campaign.series:
        line(campaign.series, MAX_NAME, "name of a series")
    check(0 < campaign.epsilon < 1e6, "the budget is not a positive epsilon")
    check(0 < campaign.rounds <= _MOST_ROUNDS, f"a campaign of {campaign.rounds} rounds")
    matrix = campaign.mechanism == "neighbour"
    check(
        not campaign.proofs or (sums_of(campaign).exact and not is_one_release(campaign)),
        "proofs of votes are for masked sums of teachers' votes for a class, without noise shares",
    )
    check(
        (campaign.most_votes > 0) == matrix and campaign.most_votes <= MAX_TEACHERS,
        f"a campaign of {campaign.mechanism} with at most {campaign.most_votes} votes on a count",
    )
    check(
        campaign.wanted_teachers <= (0 if matrix else MOST_WANTED),
        f"a campaign of {campaign.mechanism} that wants {campaign.wanted_teachers} teachers of a party",
    )
    check(not matrix or campaign.unit != "party", "neighbour votes are cast by records or patients")
    check(campaign.code != NEAREST, "a code that is to be left out")
    code = code_in(campaign)
    if in_rounds(campaign):
        check(
            1 < campaign.rounds <= MOST_ROUNDS + 1 and campaign.delta > 0 and not campaign.series,
            f"records that vote in {campaign.rounds} rounds at delta {campaign.delta:g}; in a series they "
            "vote once",
        )
    else:
        one = matrix or code.of_teachers
        check(not one or campaign.rounds == 1, "votes of one release have one round")
    try:
        code.answer.check_columns(tuple(campaign.classes) or None)
    except UsageError as error:
        raise ProtocolError(f"the class list of a campaign: {error}") from error


def _settled(campaign: vote_pb2.Campaign) -> dict[str, Any]:
    """Return the fields of an offer that are known with the roster, after a check of their sizes."""
    terms = campaign.terms
    check(len(campaign.classes) >= 2, "terms without a class list")
    check(
        not in_rounds(campaign) or len(terms.mechanisms) == 2,
        "records that vote in rounds have a mechanism for the first round, and one for the others",
    )
    check_names([member.name for member in terms.roster], "the roster")
    for member in terms.roster:
        length(member.identity, KEY_BYTES, "an identity")
        check(1 <= member.teachers <= MAX_TEACHERS, f"{member.teachers} teachers at a party")
        check(
            campaign.most_votes in (0, member.teachers),
            "a party that may put other votes on a count than the campaign says",
        )
    try:
        sums_of(campaign).check_roster(len(terms.roster))
    except UsageError as error:
        raise ProtocolError(f"the terms of a campaign: {error}") from error
    return {
        "roster": tuple(member.name for member in terms.roster),
        "identities": tuple(member.identity.hex() for member in terms.roster),
        "teachers_each": tuple(member.teachers for member in terms.roster),
        "teachers": sum(member.teachers for member in terms.roster),
        "mechanisms": mechanisms_of(terms),
        "composition": terms.composition,
        "cap": cap_of(terms),
        "gate": gate_of(terms),
    }


def code_in(campaign: vote_pb2.Campaign) -> Code:
    """Return how votes of a campaign are cast: nearest, for a class, where it has no code.

    Raises:
        ProtocolError: if it is no known code.
    """
    try:
        return code_of(campaign.code or NEAREST)
    except UsageError as error:
        raise ProtocolError(f"the code of a campaign: {error}") from error


def in_rounds(campaign: vote_pb2.Campaign) -> bool:
    """Return whether records vote in rounds, each with a matrix of its own."""
    return code_in(campaign).answer.name == RESIDUAL


def is_one_release(campaign: vote_pb2.Campaign) -> bool:
    """Return whether all votes, or those of a round, are one matrix, whose rows have no known sum."""
    return campaign.most_votes > 0 or bool(campaign.code)


def sums_of(campaign: vote_pb2.Campaign) -> SumTerms:
    """Return how the votes of a campaign are summed.

    Raises:
        ProtocolError: for invalid values.
    """
    said = {
        "aggregation": campaign.aggregation,
        "noise": campaign.noise,
        "min_parties": campaign.threshold,
        "colluders": campaign.colluders,
    }
    return read(SumTerms, said, error=ProtocolError, what="the sums of a campaign")


def cap_of(terms: vote_pb2.Terms) -> Fraction:
    """Return the cap of a campaign, in its composition.

    Raises:
        ProtocolError: if it is not a fraction above 0.
    """
    try:
        cap = fraction_from_text(terms.cap)
    except AccountingError as error:
        raise ProtocolError(f"the cap of a campaign: {error}") from error
    check(cap > 0, "a campaign that may cost nothing")
    return cap


def mechanisms_of(terms: vote_pb2.Terms) -> tuple[Mechanism, ...]:
    """Return the mechanisms of a campaign: of the first round, and of all later ones.

    Raises:
        ProtocolError: if there is none, or one is invalid.
    """
    check(1 <= len(terms.mechanisms) <= 2, f"{len(terms.mechanisms)} mechanisms")
    kinds = tuple(MECHANISMS.values())
    return tuple(_read(kinds, text, "a mechanism") for text in terms.mechanisms)


def _read(kinds: tuple[type[_T], ...], text: str, what: str) -> _T:
    fields = parse(text, most=_LONGEST_MECHANISM, error=ProtocolError, what=what)
    return read(kinds, fields, error=ProtocolError, what=what)


def gate_of(terms: vote_pb2.Terms) -> GatedBatch | None:
    """Return the gated batch of a campaign, None if it is not gated.

    Raises:
        ProtocolError: if it is invalid, missing, or in the terms of a campaign that is not gated.
    """
    gated = terms.composition == Gate.name
    check(gated == bool(terms.gate), "a gate is in the terms of a gated campaign, and only there")
    if not gated:
        return None
    return _read((GatedBatch,), terms.gate, "a gate")


def mechanism_texts(mechanisms: Sequence[Mechanism]) -> list[str]:
    """Return mechanisms as :func:`mechanisms_of` reads them."""
    return [_text(each) for each in mechanisms]


def _text(value: Mechanism | GatedBatch) -> str:
    return json.dumps(value.to_dict(), sort_keys=True)


def shares_of(campaign: vote_pb2.Campaign, round_: int = 0) -> Shares | None:
    """Return the law of the noise that a party adds to each count; None: it adds none.

    Args:
        campaign: checked, with its terms.
        round_: of the votes, where records vote in rounds.
    """
    found = mechanisms_of(campaign.terms)
    mechanism = found[-1 if round_ > 1 else 0]
    return mechanism.shares if isinstance(mechanism, DistributedMechanism) else None


def votes_per_unit(campaign: vote_pb2.Campaign) -> int:
    """Return the least number of votes of one unit that any mechanism of a campaign is charged for."""
    return min(each.votes_per_unit for each in mechanisms_of(campaign.terms))


def bits_of(campaign: vote_pb2.Campaign, rows: int, round_: int = 0) -> int:
    """Return the width of the integers of a masked sum over ``rows`` queries: 8, 16 or 32 bits.

    With noise the sum exceeds the bound with probability 2^-60; a sum that wrapped would be wrong, but
    equally private.

    Raises:
        ProtocolError: if no width is sufficient.
    """
    teachers = sum(member.teachers for member in campaign.terms.roster)
    shares = shares_of(campaign, round_)
    try:
        code = code_in(campaign)
        most = code.bounds(teachers)[1]
        if shares is None:
            return ring_bits(most) if code.signed else exact_bits(most)
        parties, cells = len(campaign.terms.roster), rows * len(campaign.classes)
        return ring_bits(most + shares.reach(parties, cells))
    except UsageError as error:
        raise ProtocolError(f"a sum that is too large: {error}") from error


def exact_bits(teachers: int) -> int:
    """Return the width of the integers of a sum without noise: 8, 16 or 32 bits.

    The sum is in [0, M], which takes as many residues as [-M/2, M/2].

    >>> exact_bits(254), exact_bits(1000)
    (8, 16)

    Args:
        teachers: M.

    Raises:
        UsageError: if no width is sufficient.
    """
    return ring_bits((teachers + 1) // 2)


def digest_of(campaign: vote_pb2.Campaign) -> bytes:
    """Return a digest of all terms of a campaign, the roster included, 32 bytes."""
    return _digest_of(campaign.SerializeToString(deterministic=True))


@lru_cache(maxsize=8)
def _digest_of(serialized: bytes) -> bytes:
    # Cached: every step needs it, and with a thousand parties it is the slowest check.
    campaign = vote_pb2.Campaign.FromString(serialized)
    fields = MessageToDict(campaign, preserving_proto_field_name=True)
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(b"pate/v1/terms\0" + text.encode()).digest()
