"""From bytes of the network to checked values, and back.

Everything that arrives is hostile until it has passed through here: sizes are bounded before
anything is allocated from them, shapes and sums are checked, and whatever does not fit raises
:class:`pate.errors.ProtocolError`. Nothing here touches the network.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from google.protobuf.message import DecodeError, Message

from pate.data.values import Column, Images, Inputs, Table, content_hash, is_numeric
from pate.errors import DataError, ProtocolError
from pate.votes import Counts, check_votes
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = 1
ID_BYTES: Final = 16
HASH_BYTES: Final = 32
#: Largest serialised message of either direction.
MAX_MESSAGE: Final = 64 * 2**20
#: Slice of a public set that travels in one message.
PIECE_BYTES: Final = 16 * 2**20
#: Largest public set, serialised.
MAX_PUBLIC_SET: Final = 2**31
MAX_CLASSES: Final = 10_000
MAX_TEACHERS: Final = 100_000
MAX_NAME: Final = 64
MAX_SCHEMA: Final = 65_536
_SIGNED: Final = b"pate/v1/reply\0"


def new_id() -> bytes:
    """Return 16 random bytes: a campaign's id, or the nonce of a request."""
    return secrets.token_bytes(ID_BYTES)


# --- requests: server to party ---------------------------------------------------------------


def read_request(body: bytes) -> vote_pb2.PartyRequest:
    """Return a request whose envelope and campaign are well formed.

    Raises:
        ProtocolError: if it is not.
    """
    request = vote_pb2.PartyRequest()
    _parse(request, body, "request")
    _check(
        request.version == VERSION,
        f"protocol version {request.version}, this side speaks {VERSION}",
    )
    _length(request.nonce, ID_BYTES, "nonce")
    campaign = request.campaign
    _length(campaign.id, ID_BYTES, "campaign id")
    _length(campaign.public_set, HASH_BYTES, "public set hash")
    check_classes(campaign.classes, empty_allowed=True)
    _check(0 < campaign.queries <= 10**9, f"a public set of {campaign.queries} queries")
    _line(campaign.schema, MAX_SCHEMA, "schema")
    _line(campaign.mechanism, MAX_NAME, "mechanism")
    _line(campaign.aggregation, MAX_NAME, "aggregation")
    _check(
        0 < campaign.epsilon < 1e6 and 0 < campaign.delta < 1,
        "the budget is not a pair of positive numbers",
    )
    _check(
        campaign.unit in ("record", "patient", "party"), "the campaign's unit is of no known kind"
    )
    what = request.WhichOneof("body")
    _check(what is not None, "the request asks for nothing")
    if what == "public_piece":
        piece = request.public_piece
        _check(
            0 < piece.pieces <= MAX_PUBLIC_SET // PIECE_BYTES,
            f"{piece.pieces} pieces of a public set",
        )
        _check(piece.index < piece.pieces, f"piece {piece.index} of {piece.pieces}")
        _check(0 < len(piece.content) <= PIECE_BYTES, f"a piece of {len(piece.content)} bytes")
    elif what == "ask":
        ask = request.ask
        _length(ask.batch, HASH_BYTES, "batch hash")
        _check(
            ask.count > 0 and ask.first + ask.count <= campaign.queries,
            "queries outside the public set",
        )
        _check(len(campaign.classes) >= 2, "votes are asked for without a class list")
    elif what == "finish":
        finish = request.finish
        # No more than was announced when the party joined, and no NaN: it is shown as a promise.
        _check(
            0 <= finish.epsilon_cap <= campaign.epsilon * (1 + 1e-9)
            and finish.delta == campaign.delta,
            "the campaign ended at another guarantee than it began with",
        )
    return request


# --- replies: party to server ----------------------------------------------------------------


def sign_reply(reply: vote_pb2.Reply, key: Ed25519PrivateKey) -> bytes:
    """Return a serialised SignedReply."""
    body = reply.SerializeToString(deterministic=True)
    signed = vote_pb2.SignedReply(
        body=body,
        identity=key.public_key().public_bytes_raw(),
        signature=key.sign(_SIGNED + body),
    )
    return signed.SerializeToString()


def read_reply(body: bytes, *, campaign: bytes, nonce: bytes) -> tuple[bytes, vote_pb2.Reply]:
    """Return the identity key (32 bytes) that signed a reply, and the reply.

    Args:
        body: a serialised SignedReply.
        campaign: the id that the reply must be for.
        nonce: of the request that it must answer; another one is a replay.

    Raises:
        ProtocolError: for anything malformed, badly signed, replayed or meant for another campaign.
    """
    signed = vote_pb2.SignedReply()
    _parse(signed, body, "reply")
    _length(signed.identity, 32, "identity")
    _length(signed.signature, 64, "signature")
    try:
        Ed25519PublicKey.from_public_bytes(signed.identity).verify(
            signed.signature, _SIGNED + signed.body
        )
    except (InvalidSignature, ValueError):
        raise ProtocolError("a reply is not signed by the key that it names") from None
    reply = vote_pb2.Reply()
    _parse(reply, signed.body, "reply")
    _check(
        reply.version == VERSION, f"protocol version {reply.version}, this side speaks {VERSION}"
    )
    _check(
        hmac.compare_digest(reply.nonce, nonce),
        "a reply answers another request: replayed or mixed up",
    )
    _check(hmac.compare_digest(reply.campaign, campaign), "a reply is for another campaign")
    check_name(reply.party)
    _check(reply.WhichOneof("body") is not None, "the reply says nothing")
    return signed.identity, reply


def check_description(said: vote_pb2.Description) -> None:
    """Check what a party says of itself.

    Raises:
        ProtocolError: if a field is out of bounds.
    """
    _check(1 <= said.teachers <= MAX_TEACHERS, f"a party declares {said.teachers} teachers")
    check_classes(said.classes)
    _check(len(said.public_set) in (0, HASH_BYTES), "a public set hash of another length")
    _check(said.unit in ("record", "patient"), f"a party declares the unit {said.unit!r:.40}")


def check_name(name: str) -> None:
    """Check a party's name: what may stand in a file name and on a screen.

    Raises:
        ProtocolError: if it is empty, too long, or holds other characters.
    """
    plain = name.isascii() and all(c.isalnum() or c in "-_." for c in name)
    _check(
        0 < len(name) <= MAX_NAME and plain and name[0].isalnum(),
        f"a party calls itself {name!r:.80}",
    )


def check_classes(classes: Sequence[str], *, empty_allowed: bool = False) -> None:
    """Check a class list.

    Raises:
        ProtocolError: if it has fewer than two names, too many, an empty or a repeated one.
    """
    if empty_allowed and not classes:
        return
    _check(2 <= len(classes) <= MAX_CLASSES, f"a class list of {len(classes)}")
    _check(len(set(classes)) == len(classes), "a class list with a name twice")
    for name in classes:
        _line(name, 256, "class name")


# --- vote matrices ---------------------------------------------------------------------------


def pack_votes(votes: Counts, *, teachers: int, batch: bytes) -> vote_pb2.VoteMatrix:
    """Return a vote matrix for the wire, in the least width that holds ``teachers``.

    Args:
        votes: (queries, classes) int64; every row sums to ``teachers``.
        teachers: k.
        batch: hash of the queries.
    """
    rows, classes = votes.shape
    check_votes(votes, teachers=teachers, classes=classes, queries=rows)
    width = 1 if teachers < 2**8 else 2 if teachers < 2**16 else 4
    return vote_pb2.VoteMatrix(
        batch=batch,
        rows=rows,
        classes=classes,
        teachers=teachers,
        width=width,
        counts=votes.astype(f"<u{width}").tobytes(),
    )


def read_votes(
    matrix: vote_pb2.VoteMatrix, *, teachers: int, classes: int, queries: int, batch: bytes
) -> Counts:
    """Return (queries, classes) int64 counts, checked against what was asked and declared.

    Raises:
        ProtocolError: for another batch, shape, number of teachers or length, or a bad row.
    """
    _check(hmac.compare_digest(matrix.batch, batch), "votes are for other queries than were asked")
    _check(
        matrix.rows == queries and matrix.classes == classes,
        f"votes are {matrix.rows} x {matrix.classes}, asked were {queries} x {classes}",
    )
    _check(
        matrix.teachers == teachers,
        f"votes of {matrix.teachers} teachers, declared were {teachers}",
    )
    _check(matrix.width in (1, 2, 4), f"counts of {matrix.width} bytes")
    size = queries * classes * matrix.width
    _check(len(matrix.counts) == size, f"votes have {len(matrix.counts)} bytes, expected {size}")
    counts = np.frombuffer(matrix.counts, dtype=f"<u{matrix.width}").reshape(queries, classes)
    return check_votes(counts, teachers=teachers, classes=classes, queries=queries)


# --- public sets -----------------------------------------------------------------------------


def pack_public_set(inputs: Inputs) -> bytes:
    """Return a public set for the wire.

    Raises:
        DataError: if it is larger than :data:`MAX_PUBLIC_SET`.
    """
    message = vote_pb2.PublicSet()
    if isinstance(inputs, Images):
        height, width, channels = inputs.size
        pixels = inputs.pixels.tobytes()
        # Checked before it is copied into the message, whose own limit is the same.
        if len(pixels) >= MAX_PUBLIC_SET:
            raise DataError(
                f"a public set of {len(pixels)} bytes is too large to send; use a smaller one"
            )
        message.images.count = len(inputs)
        message.images.height, message.images.width, message.images.channels = (
            height,
            width,
            channels,
        )
        message.images.pixels = pixels
    else:
        for name, column in zip(inputs.names, inputs.columns, strict=True):
            packed = message.table.columns.add(name=name)
            if is_numeric(column):
                packed.numbers.values.extend(column.tolist())
            else:
                packed.categories.values.extend(column.tolist())
    return message.SerializeToString(deterministic=True)


def read_public_set(body: bytes, *, public_set: bytes, queries: int) -> Inputs:
    """Return a public set that has the announced hash and size.

    Raises:
        ProtocolError: if it is malformed or has another hash or size.
    """
    message = vote_pb2.PublicSet()
    _parse(message, body, "public set", limit=MAX_PUBLIC_SET)
    try:
        inputs = _inputs(message)
    except DataError as error:
        raise ProtocolError(f"the public set that arrived is malformed: {error}") from error
    _check(len(inputs) == queries, f"a public set of {len(inputs)}, announced were {queries}")
    _check(
        content_hash(inputs) == public_set,
        "the public set that arrived has another hash than announced",
    )
    return inputs


def _inputs(message: vote_pb2.PublicSet) -> Inputs:
    if message.WhichOneof("kind") == "images":
        held = message.images
        shape = (held.count, held.height, held.width, held.channels)
        _check(all(0 < side <= 2**31 for side in shape), f"images of shape {shape}")
        size = held.count * held.height * held.width * held.channels
        _check(len(held.pixels) == size, "images whose bytes are not what their shape says")
        return Images(np.frombuffer(held.pixels, dtype=np.uint8).reshape(shape))
    _check(message.WhichOneof("kind") == "table", "a public set of no known kind")
    columns: list[Column] = []
    for column in message.table.columns:
        if column.WhichOneof("values") == "categories":
            columns.append(_texts(list(column.categories.values)))
        else:
            columns.append(np.array(column.numbers.values, dtype=np.float64))
    return Table(tuple(column.name for column in message.table.columns), tuple(columns))


def _texts(values: list[str]) -> Column:
    # numpy drops trailing NULs, which would let two texts share one value.
    _check(not any("\0" in text for text in values), "a category with a NUL")
    # It also gives each text the room of the longest: one long text must not cost a machine.
    room = 4 * len(values) * max(map(len, values), default=0)
    _check(room <= MAX_PUBLIC_SET, f"a column of categories that would take {room} bytes")
    return np.array(values, dtype=np.str_)


def _parse(message: Message, body: bytes, what: str, *, limit: int = MAX_MESSAGE) -> None:
    _check(len(body) <= limit, f"a {what} of {len(body)} bytes, the limit is {limit}")
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise ProtocolError(f"a {what} that is not a message of this protocol") from error


def _length(field: bytes, wanted: int, what: str) -> None:
    _check(len(field) == wanted, f"{what} has {len(field)} bytes, not {wanted}")


def _line(text: str, longest: int, what: str) -> None:
    """Check that a text can stand on a screen: one line, no control characters."""
    _check(
        0 < len(text) <= longest and text.isprintable(),
        f"a {what} that is empty, too long, or not one line of text",
    )


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(otherwise)
