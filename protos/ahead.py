"""The steps of a masked sum whose keys come ahead, in bundles: validation, and conversion.

Only sizes and names are checked here. :mod:`pate.masking.ahead` checks signatures, boxes and lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.masking.ahead.bundle import (
    MOST_PARTIES,
    Bundle,
    BundleRoster,
    Round,
    Sealed,
    takes_consent,
)
from pate.masking.context import Member
from protos.bounds import (
    HASH_BYTES,
    ID_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
    check,
    check_names,
    length,
)
from protos.masked import (
    MAX_BOX,
    boxes_to_wire,
    check_batch,
    check_boxes,
    check_keys,
    check_signatures,
    context_of,
    keys_from_wire,
    keys_to_wire,
)
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.campaign.offer import Offer

#: Most bundles in one request.
MOST_BUNDLES: Final = 64


def check_ahead(request: vote_pb2.PartyRequest, offer: Offer) -> None:
    """Check one of the requests of a masked sum with bundles."""
    what = request.WhichOneof("body")
    if what == "ask_bundles":
        _check_ask_bundles(request.ask_bundles, offer)
        return
    check(offer.settled is not None, "a masked sum before the roster is complete")
    check(not offer.announced.vote_proofs, "proofs of votes are not for sums whose keys come ahead")
    if what is not None:
        length(getattr(request, what).attempt, ID_BYTES, "attempt")
    match what:
        case "ask_masked_ahead":
            asked = request.ask_masked_ahead
            check_batch(asked.batch, offer)
            length(asked.roster, HASH_BYTES, "the digest of a roster")
            check_names([each.party for each in asked.bundles], "a list of bundles")
            check(len(asked.bundles) <= MOST_PARTIES, f"{len(asked.bundles)} bundles in one sum")
            for each in asked.bundles:
                check_keys(each.keys)
                check(len(each.box) <= MAX_BOX, f"a box of {len(each.box)} bytes")
        case "ask_consent_ahead":
            check_signatures(request.ask_consent_ahead.masked)
        case "ask_opening_ahead":
            check_signatures(request.ask_opening_ahead.masked)
            check_signatures(request.ask_opening_ahead.consents)


def check_sealing(sealing: vote_pb2.SealingKey) -> None:
    """Check the sizes of a sealing key and its signature."""
    length(sealing.key, KEY_BYTES, "a sealing key")
    length(sealing.signature, SIGNATURE_BYTES, "the signature of a sealing key")


def check_bundles(said: vote_pb2.Bundles, asked: vote_pb2.AskBundles) -> None:
    """Check the bundles that a party made: those that were asked for, sealed for all others."""
    numbers = [each.number for each in said.bundles]
    check(
        numbers == list(range(asked.first, asked.first + asked.count)),
        f"{len(numbers)} bundles that were not asked for, {asked.count} were",
    )
    for each in said.bundles:
        length(each.roster, HASH_BYTES, "the digest of a roster")
        check_keys(each.keys)
        check_boxes(each.boxes)
        check(
            len(each.boxes) == len(asked.roster) - 1,
            f"a bundle with {len(each.boxes)} boxes, for a roster of {len(asked.roster)}",
        )


def check_masked_ahead(said: vote_pb2.MaskedAhead) -> None:
    """Check the size of the signature; :mod:`pate.masking.ahead` checks that of the votes."""
    length(said.signature, SIGNATURE_BYTES, "the signature of masked votes")


def consent_in(offer: Offer) -> bool:
    """Return whether sums of a campaign with bundles take the step of consent."""
    sums, settled = offer.announced.sums, offer.require_settled()
    return takes_consent(
        len(settled.roster),
        sums.min_parties,
        sums.colluders,
        noisy=settled.shares() is not None,
    )


def round_of(offer: Offer, asked: vote_pb2.AskMaskedAhead, roster: BundleRoster) -> Round:
    """Return the round of a request, the same on both sides."""
    bundles = {
        each.party: Bundle(each.party, each.number, roster.digest, keys_from_wire(each.keys))
        for each in asked.bundles
    }
    check(asked.roster == roster.digest, "a round with bundles for another roster")
    return Round(context_of(offer, asked), roster, bundles, consent_in(offer))


def roster_to_wire(roster: BundleRoster, first: int, count: int) -> vote_pb2.AskBundles:
    """Return the request for the bundles of these numbers."""
    members = [
        vote_pb2.SealingMember(
            party=each.member.name,
            identity=each.member.identity,
            sealing=vote_pb2.SealingKey(key=each.key, signature=each.signature),
        )
        for each in roster.parties
    ]
    return vote_pb2.AskBundles(
        roster=members,
        threshold=roster.threshold,
        colluders=roster.colluders,
        first=first,
        count=count,
    )


def roster_from_wire(asked: vote_pb2.AskBundles) -> BundleRoster:
    """Return the roster of a request for bundles."""
    parties = (
        Sealed(Member(each.party, each.identity), each.sealing.key, each.sealing.signature)
        for each in asked.roster
    )
    return BundleRoster(tuple(parties), asked.threshold, asked.colluders)


def bundle_to_wire(bundle: Bundle, boxes: Mapping[str, bytes]) -> vote_pb2.Bundle:
    """Return a bundle with its boxes for the wire."""
    return vote_pb2.Bundle(
        number=bundle.number,
        roster=bundle.roster,
        keys=keys_to_wire(bundle.keys),
        boxes=boxes_to_wire(boxes),
    )


def _check_ask_bundles(asked: vote_pb2.AskBundles, offer: Offer) -> None:
    sums = offer.announced.sums
    check(not offer.announced.vote_proofs, "proofs of votes are not for sums whose keys come ahead")
    check_names([each.party for each in asked.roster], "the roster of bundles")
    check(0 < len(asked.roster) <= MOST_PARTIES, f"a roster of {len(asked.roster)} for bundles")
    for each in asked.roster:
        length(each.identity, KEY_BYTES, "an identity")
        check_sealing(each.sealing)
    check(
        (asked.threshold, asked.colluders) == (sums.min_parties, sums.colluders),
        "bundles for another threshold or number of colluders than the campaign's",
    )
    if offer.settled is not None:
        check(
            {each.party: each.identity.hex() for each in asked.roster} == offer.settled.identities,
            "bundles for another roster than the campaign's",
        )
    check(0 < asked.count <= MOST_BUNDLES, f"{asked.count} bundles are asked for")
    check(asked.first + asked.count < 2**32, "bundles of numbers that there are not")
