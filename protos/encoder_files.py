"""The encoder of a campaign's inputs in messages: its description, then its files, sent in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from pate.encoders.description import Description, FileOf
from pate.encoders.encoder import read_description
from pate.errors import DataError, ProtocolError
from protos.bounds import PIECE_BYTES, check

if TYPE_CHECKING:
    from pathlib import Path


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
