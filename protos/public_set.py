"""What all parties get, in pieces: the public set, unlabelled, and the encoder of its inputs."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from pate.data.embeddings import Embeddings
from pate.data.schema import Schema
from pate.data.values import Column, Images, Inputs, Table, content_hash, is_numeric
from pate.encoders.description import Description, FileOf
from pate.encoders.encoder import read_description
from pate.errors import DataError, ProtocolError, SchemaError, UsageError
from protos.bounds import MAX_PUBLIC_SET, PIECE_BYTES, check, parse
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from google.protobuf.message import Message
    from numpy.typing import NDArray


def pack_public_set(inputs: Inputs) -> bytes:
    """Return a public set for the wire."""
    return b"".join(PackedPublicSet(inputs))


class PackedPublicSet(Sequence[bytes]):
    """The output of :func:`pack_public_set`, in slices of :data:`PIECE_BYTES` made on demand.

    The set is not copied in memory: images are read in place, possibly from a mapped file, and a table is
    written once to an unnamed temporary file.

    ``inputs``: the public set; unchanged as long as this is used; ``piece``: bytes of a slice; the
    last one may be shorter.
    """

    def __init__(self, inputs: Inputs, piece: int = PIECE_BYTES) -> None:
        self._piece = piece
        self._file: BinaryIO | None = None
        self._array: memoryview | None = None
        if isinstance(inputs, Images):
            message = vote_pb2.ImageSet(count=len(inputs))
            message.height, message.width, message.channels = inputs.size
            message.window_low, message.window_high = inputs.window or (0, 0)
            self._in_place("images", message, "pixels", inputs.pixels)
        elif isinstance(inputs, Embeddings):
            told = vote_pb2.EmbeddingSet(count=len(inputs), width=inputs.width)
            told.source, told.encoder = inputs.source, inputs.encoder
            self._in_place("embeddings", told, "values", inputs.values.astype("<i2", copy=False))
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object
            weakref.finalize(self, self._file.close)
            for name, column in zip(inputs.names, inputs.columns, strict=True):
                body = _column(name, column).SerializeToString(deterministic=True)
                tag = _tag(vote_pb2.TableSet, "columns")
                self._file.write(tag + _varint(len(body)) + body)
            length = self._file.tell()
            self._head = _tag(vote_pb2.PublicSet, "table") + _varint(length)
            self._size = len(self._head) + length
        if self._size >= MAX_PUBLIC_SET:
            raise DataError(
                f"a public set of {self._size} bytes is too large to send; use a smaller one"
            )

    def _in_place(
        self, kind: str, message: Message, field: str, values: NDArray[np.uint8 | np.int16]
    ) -> None:
        """Read the last field of a message from an array's own memory."""
        array = np.ascontiguousarray(values)
        # memoryview.cast takes no array without elements.
        self._array = array.reshape(-1).view(np.uint8).data
        inner = message.SerializeToString(deterministic=True)
        inner += _tag(type(message), field) + _varint(array.nbytes)
        length = len(inner) + array.nbytes
        self._head = _tag(vote_pb2.PublicSet, kind) + _varint(length) + inner
        self._size = len(self._head) + array.nbytes

    def __len__(self) -> int:
        return (self._size + self._piece - 1) // self._piece

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        first = range(len(self))[at] * self._piece
        last = min(first + self._piece, self._size)
        start, head = len(self._head), self._head[first:last]
        first, last = max(first - start, 0), last - start
        if last <= 0:
            return head
        if self._array is not None:
            return head + bytes(self._array[first:last])
        if self._file is None:
            return head
        self._file.seek(first)
        return head + self._file.read(last - first)


def _tag(kind: type[Message], field: str) -> bytes:
    """Return the tag and length of a field of bytes, or of a message."""
    return _varint(kind.DESCRIPTOR.fields_by_name[field].number << 3 | 2)


def _varint(value: int) -> bytes:
    """Return a number as a varint of Protocol Buffers: seven bits per byte, the least significant first."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _column(name: str, column: Column) -> vote_pb2.TableColumn:
    packed = vote_pb2.TableColumn(name=name)
    if is_numeric(column):
        packed.numbers.values.extend(column.tolist())
    else:
        packed.categories.values.extend(column.tolist())
    return packed


def read_public_set(body: bytes, *, public_set: bytes, queries: int) -> Inputs:
    """Return a public set that has the announced hash and size."""
    message = vote_pb2.PublicSet()
    parse(message, body, "public set", limit=MAX_PUBLIC_SET)
    try:
        inputs = _inputs(message)
    except (DataError, UsageError) as error:
        raise ProtocolError(f"the public set that arrived is malformed: {error}") from error
    check(len(inputs) == queries, f"a public set of {len(inputs)}, announced were {queries}")
    check(
        content_hash(inputs) == public_set,
        "the public set that arrived has another hash than announced",
    )
    return inputs


def _inputs(message: vote_pb2.PublicSet) -> Inputs:
    if message.WhichOneof("kind") == "images":
        images = message.images
        shape = (images.count, images.height, images.width, images.channels)
        check(all(0 < side <= 2**31 for side in shape), f"images of shape {shape}")
        size = images.count * images.height * images.width * images.channels
        check(len(images.pixels) == size, "images whose size does not match their shape")
        window = images.window_low, images.window_high
        pixels = np.frombuffer(images.pixels, dtype=np.uint8).reshape(shape)
        return Images(pixels, None if window == (0, 0) else window)
    if message.WhichOneof("kind") == "embeddings":
        return _embeddings(message.embeddings)
    check(message.WhichOneof("kind") == "table", "a public set of no known kind")
    columns: list[Column] = []
    for column in message.table.columns:
        if column.WhichOneof("values") == "categories":
            columns.append(_texts(list(column.categories.values)))
        else:
            columns.append(np.array(column.numbers.values, dtype=np.float64))
    return Table(tuple(column.name for column in message.table.columns), tuple(columns))


def _embeddings(message: vote_pb2.EmbeddingSet) -> Embeddings:
    check(0 < message.width < 2**16, f"embeddings of width {message.width}")
    check(
        len(message.values) == 2 * message.count * message.width,
        "embeddings whose size does not match their shape",
    )
    values = np.frombuffer(message.values, dtype="<i2").astype(np.int16)
    made = Embeddings(values.reshape(-1, message.width), message.source, message.encoder)
    try:
        Schema.parse(made.schema())
    except SchemaError as error:
        raise ProtocolError(f"embeddings of no known kind: {error}") from error
    return made


def _texts(values: list[str]) -> Column:
    # numpy drops trailing NULs, which would let two texts share one value.
    check(not any("\0" in text for text in values), "a category with a NUL")
    # It also pads each text to the longest one: a single long text must not exhaust memory.
    room = 4 * len(values) * max(map(len, values), default=0)
    check(room <= MAX_PUBLIC_SET, f"a column of categories that would take {room} bytes")
    return np.array(values, dtype=np.str_)


def pieces_of(description: Description) -> int:
    """Return how many pieces an encoder is sent in: one is the description."""
    size = sum(each.size for each in description.files)
    return 1 + (size + PIECE_BYTES - 1) // PIECE_BYTES


class PackedEncoder(Sequence[bytes]):
    """An encoder's folder in pieces, read from its files on demand.

    The first piece is the description. The others are slices of the files, one file after the other in the
    description's order, of :data:`~protos.bounds.PIECE_BYTES` but for the last one.

    ``folder``: of the encoder, unchanged as long as this is used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._description = read_description(folder)

    @property
    def digest(self) -> str:
        """Of the encoder."""
        return self._description.digest

    def __len__(self) -> int:
        return pieces_of(self._description)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(len(self))[at]]
        at = range(len(self))[at]
        if at == 0:
            return self._description.to_bytes()
        first, last = (at - 1) * PIECE_BYTES, at * PIECE_BYTES
        made = b""
        for entry in self._description.files:
            start, stop = max(first, 0), min(last, entry.size)
            if start < stop:
                made += self._slice(entry.file, start, stop)
            first, last = first - entry.size, last - entry.size
        return made

    def _slice(self, name: str, start: int, stop: int) -> bytes:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_first_piece(content: bytes, pieces: int, digest: str) -> Description:
    """Return the description of an encoder: its digest is the announced one, so the rest has known sizes.

    ``pieces``: how many there are, as the sender says; ``digest``: of the announced encoder, 64
    hexadecimal digits.
    """
    try:
        made = Description.from_bytes(content, "the encoder's description")
    except DataError as error:
        raise ProtocolError(f"the encoder that arrived is malformed: {error}") from error
    check(made.digest == digest, "the encoder that arrived has another digest than announced")
    wanted = pieces_of(made)
    check(pieces == wanted, f"an encoder of {wanted} pieces that is sent in {pieces}")
    return made


def read_encoder(pieces: Sequence[bytes], digest: str) -> tuple[Description, list[bytes]]:
    """Return an encoder's description, and the content of its files."""
    description = read_first_piece(pieces[0], len(pieces), digest)
    body, at, contents = memoryview(b"".join(pieces[1:])), 0, []
    size = sum(each.size for each in description.files)
    check(len(body) == size, f"an encoder's files of {len(body)} bytes, described are {size}")
    for entry in description.files:
        contents.append(bytes(body[at : at + entry.size]))
        at += entry.size
        check(
            FileOf.of(entry.file, contents[-1]) == entry,
            f"the encoder's {entry.file} that arrived is not the described one",
        )
    return description, contents
