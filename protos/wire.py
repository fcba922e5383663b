"""Parsing and validation of messages from the network, and serialisation.

All input is treated as hostile: sizes are bounded before any allocation, shapes and sums are checked,
and invalid input raises :class:`pate.errors.ProtocolError`. This module does no network access.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pate.campaign.choices import EARLY_ENDS
from pate.errors import ProtocolError
from pate.votes import Counts, check_cast, check_votes
from protos.ahead import check_ahead, check_sealing
from protos.bounds import (
    HASH_BYTES,
    ID_BYTES,
    KEY_BYTES,
    MAX_ENCODER_PIECES,
    MAX_PUBLIC_SET,
    MAX_REQUEST,
    MAX_TEACHERS,
    PIECE_BYTES,
    SIGNATURE_BYTES,
    check,
    check_classes,
    check_name,
    length,
    parse,
)
from protos.masked import check_batch, check_step
from protos.pate.v1 import vote_pb2
from protos.terms import Campaigns

if TYPE_CHECKING:
    from pate.campaign.offer import Offer
    from pate.codes import Code

VERSION: Final = 9
_AHEAD: Final = ("ask_bundles", "ask_masked_ahead", "ask_consent_ahead", "ask_opening_ahead")
_REPLY: Final = b"pate/v1/reply\0"
_REQUEST: Final = b"pate/v1/request\0"


def new_id() -> bytes:
    """Return 16 random bytes: a campaign's id, or the nonce of a request."""
    return secrets.token_bytes(ID_BYTES)


# --- requests: server to party ---------------------------------------------------------------


def sign_request(request: vote_pb2.PartyRequest, key: Ed25519PrivateKey) -> bytes:
    """Return a serialised SignedRequest, signed by the campaign's key."""
    body = request.SerializeToString(deterministic=True)
    signed = vote_pb2.SignedRequest(
        body=body, key=key.public_key().public_bytes_raw(), signature=key.sign(_REQUEST + body)
    )
    return signed.SerializeToString()


def read_request(
    body: bytes, campaigns: Campaigns | None = None
) -> tuple[Offer, vote_pb2.PartyRequest]:
    """Return what a request offers, with the key that signed it, and the request, well formed.

    ``campaigns``: that were accepted before, of which a request may have only the digest. None:
    there are none.
    """
    signed = vote_pb2.SignedRequest()
    parse(signed, body, "request", limit=MAX_REQUEST)
    _verify(signed.key, signed.signature, _REQUEST + signed.body, "request")
    request = vote_pb2.PartyRequest()
    parse(request, signed.body, "request")
    check(
        request.version == VERSION,
        f"protocol version {request.version}, this side speaks {VERSION}",
    )
    length(request.nonce, ID_BYTES, "nonce")
    offer = (Campaigns() if campaigns is None else campaigns).of(signed.key, request)
    _check_body(request, offer)
    return offer, request


def _check_body(request: vote_pb2.PartyRequest, offer: Offer) -> None:
    campaign, what = offer.announced, request.WhichOneof("body")
    check(what is not None, "the request asks for nothing")
    if what == "public_piece":
        piece = request.public_piece
        what = "an encoder" if piece.encoder else "a public set"
        most = MAX_ENCODER_PIECES if piece.encoder else MAX_PUBLIC_SET // PIECE_BYTES
        check(0 < piece.pieces <= most, f"{piece.pieces} pieces of {what}")
        check(piece.index < piece.pieces, f"piece {piece.index} of {piece.pieces}")
        check(0 < len(piece.content) <= PIECE_BYTES, f"a piece of {len(piece.content)} bytes")
    elif what == "describe":
        check_classes(request.describe.agreed, empty_allowed=True)
        check(
            not (request.describe.agreed and campaign.classes),
            "an agreed class list of a campaign that has one of its own",
        )
    elif what == "finish":
        finish = request.finish
        # Not above the announced value, and not NaN: it is displayed as a guarantee.
        check(
            0 <= finish.epsilon_cap <= campaign.epsilon * (1 + 1e-9)
            and finish.delta == campaign.delta,
            "the campaign ended at another guarantee than it began with",
        )
        check(finish.cause in ("", *EARLY_ENDS), f"a campaign ended by {finish.cause[:40]!r}")
        check(
            not finish.cause or not (finish.queries_asked or finish.labels_released),
            "a campaign that asked for nothing ended with queries or labels",
        )
    elif what == "ask":
        check(not campaign.sums.masked, "plain votes are asked for in a masked campaign")
        check_batch(request.ask.batch, offer)
    elif what is not None and what.startswith("ask_"):
        check(campaign.sums.masked, "masked votes are asked for in a plain campaign")
        (check_ahead if what in _AHEAD else check_step)(request, offer)


# --- replies: party to server ----------------------------------------------------------------


def sign_reply(reply: vote_pb2.Reply, key: Ed25519PrivateKey) -> bytes:
    """Return a serialised SignedReply."""
    body = reply.SerializeToString(deterministic=True)
    signed = vote_pb2.SignedReply(
        body=body,
        identity=key.public_key().public_bytes_raw(),
        signature=key.sign(_REPLY + body),
    )
    return signed.SerializeToString()


def read_reply(
    body: bytes, *, campaign: bytes, nonce: bytes, digest: bytes = b""
) -> tuple[bytes, vote_pb2.Reply]:
    """Return the identity key (32 bytes) that signed a reply, and the reply.

    ``nonce``: of the request that it must answer; another one is a replay; ``digest``: in the
    request, in place of the campaign: then the party may not know it.
    """
    signed = vote_pb2.SignedReply()
    parse(signed, body, "reply")
    _verify(signed.identity, signed.signature, _REPLY + signed.body, "reply")
    reply = vote_pb2.Reply()
    parse(reply, signed.body, "reply")
    check(reply.version == VERSION, f"protocol version {reply.version}, this side speaks {VERSION}")
    check(
        hmac.compare_digest(reply.nonce, nonce),
        "a reply answers another request: replayed or mixed up",
    )
    what = reply.WhichOneof("body")
    check(what is not None, "the reply says nothing")
    check(what != "unknown" or bool(digest), "the whole campaign was sent, and is called unknown")
    asked = digest if what == "unknown" else campaign
    check(hmac.compare_digest(reply.campaign, asked), "a reply is for another campaign")
    check_name(reply.party)
    return signed.identity, reply


def check_description(said: vote_pb2.Description) -> None:
    """Check a party's description of itself."""
    check(1 <= said.teachers <= MAX_TEACHERS, f"a party declares {said.teachers} teachers")
    check_classes(said.classes)
    check(len(said.public_set) in (0, HASH_BYTES), "a public set hash of another length")
    check(said.unit in ("record", "patient"), f"a party declares the unit {said.unit!r:.40}")
    if said.HasField("sealing"):
        check_sealing(said.sealing)


# --- vote matrices ---------------------------------------------------------------------------


def pack_votes(
    votes: Counts, *, teachers: int, batch: bytes, code: Code | None = None
) -> vote_pb2.VoteMatrix:
    """Return a vote matrix for the wire, in the least width that can represent ``teachers``.

    ``votes``: (queries, classes) int64; every row sums to ``teachers``; ``teachers``: k; of
    records' votes, the most on a count; ``code``: of votes whose rows have any sum; None for
    teachers that vote for a class.
    """
    rows, classes = votes.shape
    if code is None:
        check_votes(votes, teachers=teachers, classes=classes, queries=rows)
    else:
        check_cast(votes, code, teachers)
    width = _width(teachers, code)
    return vote_pb2.VoteMatrix(
        batch=batch,
        rows=rows,
        classes=classes,
        teachers=teachers,
        width=width,
        counts=votes.astype(_kind(width, code)).tobytes(),
    )


def read_votes(
    matrix: vote_pb2.VoteMatrix,
    *,
    teachers: int,
    classes: int,
    queries: int,
    batch: bytes,
    code: Code | None = None,
) -> Counts:
    """Return (queries, classes) int64 counts, checked against the request and the party's declaration."""
    check(hmac.compare_digest(matrix.batch, batch), "votes are for other queries than were asked")
    check(
        matrix.rows == queries and matrix.classes == classes,
        f"votes are {matrix.rows} x {matrix.classes}, expected {queries} x {classes}",
    )
    check(
        matrix.teachers == teachers,
        f"votes of {matrix.teachers} teachers, declared were {teachers}",
    )
    check(matrix.width in (1, 2, 4), f"counts of {matrix.width} bytes")
    size = queries * classes * matrix.width
    check(len(matrix.counts) == size, f"votes have {len(matrix.counts)} bytes, expected {size}")
    kind = _kind(matrix.width, code)
    counts = np.frombuffer(matrix.counts, dtype=kind).reshape(queries, classes)
    if code is None:
        return check_votes(counts, teachers=teachers, classes=classes, queries=queries)
    check_cast(votes := counts.astype(np.int64), code, teachers)
    return votes


def _width(teachers: int, code: Code | None) -> int:
    """Return the least number of bytes for every possible count."""
    if code is not None and code.in_directions:
        return 4
    most = teachers if code is None else code.bounds(teachers)[1]
    return 1 if most < 2**8 else 2 if most < 2**16 else 4


def _kind(width: int, code: Code | None) -> str:
    return f"<{'i' if code is not None and code.in_directions else 'u'}{width}"


def _verify(key: bytes, signature: bytes, signed: bytes, what: str) -> None:
    length(key, KEY_BYTES, f"the key of a {what}")
    length(signature, SIGNATURE_BYTES, f"the signature of a {what}")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError):
        raise ProtocolError(f"a {what} is not signed by the key that it names") from None
