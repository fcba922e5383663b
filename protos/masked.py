"""The steps of a masked sum on the wire: validation on arrival, and conversion for the masking.

Only sizes and names are checked here. :mod:`pate.masking` checks signatures, boxes and lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import code_of
from pate.masking.announced import Outline
from pate.masking.context import VERSION, Context, Matrix, Member, Roster
from pate.masking.keys import Keys
from pate.masking.proofs.transcript import Proofs
from pate.masking.shamir import UnmaskingShares
from pate.mechanisms.matrix import MAX_MATRIX, MAX_MATRIX_QUERIES
from pate.rounds.model import RoundModel
from protos.bounds import (
    HASH_BYTES,
    ID_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
    check,
    check_names,
    length,
)
from protos.pate.v1 import vote_pb2
from protos.terms import bits_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pate.campaign.offer import Offer

#: Bytes of the seed of proofs, and of its hash.
SEED_BYTES: Final = 32
#: A box contains two shares of 66 bytes and its seal.
MAX_BOX: Final = 512
MAX_SHARE: Final = 128


def check_batch(batch: vote_pb2.Batch, offer: Offer) -> None:
    """Check the queries that votes are requested for.

    Raises: ProtocolError: for none, for a repeated one, for one that is not in the public set, or
            for too many of neighbour votes, or others than the number that is charged; where records vote
            in rounds, for a round that there is not, or without the model that it shows.
    """
    length(batch.digest, HASH_BYTES, "batch hash")
    check(offer.settled is not None, "votes are asked for before the roster is complete")
    campaign, count = offer.announced, len(batch.rows)
    check(0 < count <= campaign.queries, f"a batch of {count} queries")
    classes, code = len(campaign.classes or ()), code_of(campaign.code)
    check(
        not code.of_teachers or count == code.places,
        f"{count} queries, but {code.places} are charged for",
    )
    check(
        not campaign.one_release or (count <= MAX_MATRIX_QUERIES and count * classes <= MAX_MATRIX),
        f"a matrix of {count} queries and {classes} classes is larger than any may be",
    )
    rows = np.fromiter(batch.rows, dtype=np.uint64, count=count)
    check(int(rows.max()) < campaign.queries, "queries outside the public set")
    check(len(np.unique(rows)) == count, "a batch with a query twice")
    if not campaign.in_rounds:
        check(not batch.round and not batch.shown, "a round of a campaign that has none")
        return
    check(1 <= batch.round <= campaign.rounds, f"round {batch.round} of {campaign.rounds}")
    check(count == code.places, f"{count} queries, but records vote in {code.places} directions")
    check(
        (batch.round > 1) == bool(batch.shown),
        "the first round counts classes, and each later one shows a model",
    )
    shown_in(batch, classes)


def shown_in(batch: vote_pb2.Batch, classes: int) -> RoundModel | None:
    """Return the model that a round shows; None in the first one."""
    if not batch.shown:
        return None
    model = RoundModel.from_bytes(batch.shown)
    model.check_shape(len(batch.rows), classes)
    return model


def check_step(request: vote_pb2.PartyRequest, offer: Offer) -> None:
    """Check one of the five requests of a masked sum."""
    check(offer.settled is not None, "a masked sum before the roster is complete")
    names, proofs = offer.require_settled().names, offer.announced.vote_proofs
    what = request.WhichOneof("body")
    if what is not None:
        length(getattr(request, what).attempt, ID_BYTES, "attempt")
    match what:
        case "ask_keys":
            check_batch(request.ask_keys.batch, offer)
            wanted = SEED_BYTES if proofs else 0
            length(request.ask_keys.seed_hash, wanted, "the hash of a seed")
        case "ask_shares":
            asked = request.ask_shares
            check_names([each.party for each in asked.keys], "a list of keys")
            for each in asked.keys:
                check_keys(each.keys)
            announced = names_from_bits(asked.announced, names, "a list of keys")
            check(len(asked.hashes) <= len(announced), "more hashes of keys than keys")
            for one in asked.hashes:
                length(one, HASH_BYTES, "a hash of keys")
        case "ask_masked":
            check_boxes(request.ask_masked.boxes)
        case "ask_proof":
            length(request.ask_proof.seed, SEED_BYTES, "a seed")
            check(proofs, "a proof is asked for in a campaign without proofs")
        case "ask_consent":
            survivors = request.ask_consent.survivors
            names_from_bits(survivors, names, "a list of survivors")
        case "ask_opening":
            check_signatures(request.ask_opening.signatures)


# Some parties of a roster as a bit set: one bit for each, in the order of the roster. Party i, from 0,
# is bit i % 8 of byte i // 8, the least significant bit first. The bits beyond the roster are 0, so every
# set has one form.


def bits_from_names(names: Collection[str], roster: Sequence[str]) -> bytes:
    """Return the bit set of parties, each of which is on the roster."""
    some = frozenset(names)
    bits = sum(1 << place for place, name in enumerate(roster) if name in some)
    return bits.to_bytes((len(roster) + 7) // 8, "little")


def names_from_bits(bits: bytes, roster: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the parties of a bit set, in the order of the roster."""
    length(bits, (len(roster) + 7) // 8, what)
    number = int.from_bytes(bits, "little")
    check(number < 1 << len(roster), f"{what} has more parties than the roster")
    return tuple(name for place, name in enumerate(roster) if number >> place & 1)


def keys_request(
    attempt: bytes, keys: Mapping[str, Keys], outline: Outline, roster: Sequence[str]
) -> vote_pb2.AskShares:
    """Return the request for shares: keys of some, and who else announced keys.

    ``attempt``: 16 bytes; ``keys``: of the recipient and all that it masks with, by name.
    """
    return vote_pb2.AskShares(
        attempt=attempt,
        keys=[
            vote_pb2.PeerKeys(party=peer, keys=keys_to_wire(keys[peer])) for peer in sorted(keys)
        ],
        announced=bits_from_names(outline.names, roster),
        hashes=outline.hashes,
    )


def outline_from_wire(asked: vote_pb2.AskShares, roster: Sequence[str]) -> Outline:
    """Read back what :func:`keys_request` made; sizes are checked before."""
    names = names_from_bits(asked.announced, roster, "a list of keys")
    return Outline(names, tuple(asked.hashes))


def check_keys(keys: vote_pb2.MaskingKeys) -> None:
    """Check the sizes of one party's keys for an attempt."""
    for key in (keys.mask_key, keys.share_key):
        length(key, KEY_BYTES, "a key")
    length(keys.seed_commitment, HASH_BYTES, "a commitment")
    length(keys.signature, SIGNATURE_BYTES, "a signature")


def check_boxes(boxes: Sequence[vote_pb2.Box]) -> None:
    """Check names and sizes of sealed boxes."""
    check_names([box.party for box in boxes], "a list of boxes")
    for box in boxes:
        check(0 < len(box.content) <= MAX_BOX, f"a box of {len(box.content)} bytes")


def check_signatures(signatures: Sequence[vote_pb2.PeerSignature]) -> None:
    """Check names and sizes of signatures."""
    check_names([each.party for each in signatures], "a list of signatures")
    for each in signatures:
        length(each.signature, SIGNATURE_BYTES, "a signature")


def check_unmasking(opening: vote_pb2.Opening) -> None:
    """Check names and sizes of the shares that a party reveals."""
    for shares in (opening.seeds, opening.keys):
        check_names([share.party for share in shares], "a list of shares")
        for share in shares:
            check(0 < len(share.value) <= MAX_SHARE, f"a share of {len(share.value)} bytes")


def context_of(offer: Offer, asked: vote_pb2.AskKeys | vote_pb2.AskMaskedAhead) -> Context:
    """Return the common context of both sides of a masked sum.

    ``asked``: the request that starts the attempt.
    """
    campaign, settled, batch = offer.announced, offer.require_settled(), asked.batch
    proofs = None
    if campaign.vote_proofs and isinstance(asked, vote_pb2.AskKeys):
        teachers = tuple(each.teachers for each in settled.roster)
        proofs = Proofs(teachers, asked.seed_hash)
    return Context(
        version=VERSION,
        campaign=bytes.fromhex(campaign.id),
        attempt=asked.attempt,
        roster=Roster(
            tuple(Member(each.name, bytes.fromhex(each.identity)) for each in settled.roster),
            campaign.sums.min_parties,
            campaign.sums.colluders,
        ),
        matrix=Matrix(
            batch.digest,
            len(batch.rows),
            len(campaign.classes or ()),
            bits_of(offer, len(batch.rows), batch.round),
        ),
        terms=offer.digest,
        proofs=proofs,
    )


def keys_to_wire(keys: Keys) -> vote_pb2.MaskingKeys:
    """Return one party's keys for the wire."""
    return vote_pb2.MaskingKeys(
        mask_key=keys.mask_key,
        share_key=keys.share_key,
        seed_commitment=keys.seed_commitment,
        signature=keys.signature,
    )


def keys_from_wire(keys: vote_pb2.MaskingKeys) -> Keys:
    """Read back what :func:`keys_to_wire` made; sizes are checked before."""
    return Keys(keys.mask_key, keys.share_key, keys.seed_commitment, keys.signature)


def boxes_to_wire(boxes: Mapping[str, bytes]) -> Iterable[vote_pb2.Box]:
    """Return boxes for the wire, sorted by party."""
    return [vote_pb2.Box(party=name, content=boxes[name]) for name in sorted(boxes)]


def boxes_from_wire(boxes: Iterable[vote_pb2.Box]) -> dict[str, bytes]:
    """Read back what :func:`boxes_to_wire` made; checked before."""
    return {box.party: box.content for box in boxes}


def signatures_to_wire(by_party: Mapping[str, bytes]) -> list[vote_pb2.PeerSignature]:
    """Return signatures for the wire, sorted by party."""
    return [
        vote_pb2.PeerSignature(party=name, signature=by_party[name]) for name in sorted(by_party)
    ]


def signatures_from_wire(signatures: Iterable[vote_pb2.PeerSignature]) -> dict[str, bytes]:
    """Read back what :func:`signatures_to_wire` made; checked before."""
    return {each.party: each.signature for each in signatures}


def unmasking_to_wire(opening: UnmaskingShares) -> vote_pb2.Opening:
    """Return the shares that a party reveals for the wire."""
    return vote_pb2.Opening(seeds=_shares(opening.seed_shares), keys=_shares(opening.key_shares))


def unmasking_from_wire(opening: vote_pb2.Opening) -> UnmaskingShares:
    """Read back what :func:`unmasking_to_wire` made; checked before."""
    return UnmaskingShares(
        {share.party: share.value for share in opening.seeds},
        {share.party: share.value for share in opening.keys},
    )


def _shares(shares: Mapping[str, bytes]) -> list[vote_pb2.Share]:
    return [vote_pb2.Share(party=name, value=shares[name]) for name in sorted(shares)]
