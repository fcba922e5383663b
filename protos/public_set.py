"""The public set on the wire: unlabelled inputs, cut into pieces by whoever sends them."""

from __future__ import annotations

import numpy as np

from pate.data.values import Column, Images, Inputs, Table, content_hash, is_numeric
from pate.errors import DataError, ProtocolError
from protos.bounds import MAX_PUBLIC_SET, check, parse
from protos.pate.v1 import vote_pb2


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
    parse(message, body, "public set", limit=MAX_PUBLIC_SET)
    try:
        inputs = _inputs(message)
    except DataError as error:
        raise ProtocolError(f"the public set that arrived is malformed: {error}") from error
    check(len(inputs) == queries, f"a public set of {len(inputs)}, announced were {queries}")
    check(
        content_hash(inputs) == public_set,
        "the public set that arrived has another hash than announced",
    )
    return inputs


def _inputs(message: vote_pb2.PublicSet) -> Inputs:
    if message.WhichOneof("kind") == "images":
        held = message.images
        shape = (held.count, held.height, held.width, held.channels)
        check(all(0 < side <= 2**31 for side in shape), f"images of shape {shape}")
        size = held.count * held.height * held.width * held.channels
        check(len(held.pixels) == size, "images whose bytes are not what their shape says")
        return Images(np.frombuffer(held.pixels, dtype=np.uint8).reshape(shape))
    check(message.WhichOneof("kind") == "table", "a public set of no known kind")
    columns: list[Column] = []
    for column in message.table.columns:
        if column.WhichOneof("values") == "categories":
            columns.append(_texts(list(column.categories.values)))
        else:
            columns.append(np.array(column.numbers.values, dtype=np.float64))
    return Table(tuple(column.name for column in message.table.columns), tuple(columns))


def _texts(values: list[str]) -> Column:
    # numpy drops trailing NULs, which would let two texts share one value.
    check(not any("\0" in text for text in values), "a category with a NUL")
    # It also gives each text the room of the longest: one long text must not cost a machine.
    room = 4 * len(values) * max(map(len, values), default=0)
    check(room <= MAX_PUBLIC_SET, f"a column of categories that would take {room} bytes")
    return np.array(values, dtype=np.str_)
