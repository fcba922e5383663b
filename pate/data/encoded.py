"""Raw images and texts as an encoder sees them: the seam between readers of files and encoders.

A reader has a stream of raw records, which :func:`embedded` hands to an encoder one at a time, so memory
holds one of them and the embeddings of all. All after that knows only
:class:`~pate.data.embeddings.Embeddings`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.data.embeddings import Embeddings
from pate.data.odd import none_usable
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pate.data.odd import Odd
    from pate.data.schema import Schema
    from pate.data.values import Window


class NoEncoderError(SchemaError):
    """Records can be read for a campaign by its encoder only, and there is none here."""


#: An image, (height, width, 1 or 3) uint8 of any size, or a text.
Record: TypeAlias = NDArray[np.uint8] | str


@dataclass(frozen=True, eq=False)
class Raw:
    """The records of a file, and what it says of each: a class, a group, cells."""

    path: Path  # of the file or folder, for messages
    count: int  # n, usable or not
    # returns n records in order, each read as it is asked for, None for an unusable one, which is noted;
    # without a collector of problems it is an error
    stream: Callable[[], Iterator[Record | None]]
    # n class names, "" for none; None if nothing names the classes
    names: Sequence[str] | None = None
    # (n,) str, the group (patient) of each, "" for none; None if nothing names one
    groups: NDArray[np.str_] | None = None
    # n cells of each column of several labels, or of numbers
    cells: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # returns a record's place, for messages
    place: Callable[[int], str] = lambda row: f"record {row + 1}"


class Embedder(Protocol):
    """An encoder as a reader needs it; :class:`pate.encoders.reading.Reader` is one."""

    @property
    def digest(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def words(self) -> str: ...  # noqa: D102

    def embed(
        self, records: Iterable[Record], total: int, *, odd: Odd | None, place: Callable[[int], str]
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Return (n, d) embeddings, and (n,) which records are usable; ``total`` is about n."""


def require_encoder(schema: Schema, encoder: Embedder | None) -> Embedder | None:
    """Return the encoder that a campaign's inputs need, before a record is read.

    The schema is an empty one if the campaign is not known. Without an encoder, or with another one, the
    campaign is refused.
    """
    if schema.encoder is None:
        unknown = schema.size is None and schema.numeric is None
        return encoder if unknown else None
    if encoder is None:
        raise NoEncoderError(
            f"the campaign's inputs are {schema.source} by the encoder {schema.encoder}: name its "
            "folder with --encoder; the coordinator has it"
        )
    if (encoder.digest, encoder.source, encoder.width) != (
        schema.encoder, schema.source, schema.width
    ):  # fmt: skip
        raise SchemaError(
            f"the campaign's inputs are {schema.source} by the encoder {schema.encoder}, and --encoder "
            f"is {encoder.words}, with the digest {encoder.digest}: get the campaign's folder (a "
            "party without --encoder is sent it)"
        )
    return encoder


def embedded(
    raw: Raw,
    encoder: Embedder,
    window: Window | None,  # by which images of more than 8 bits were read
    odd: Odd | None,
    *,
    none_fits: bool = False,
) -> tuple[Embeddings, NDArray[np.bool_]]:
    """Return the embeddings of n records, and (n,) which of them are usable; others are zero."""
    kept: list[int] = []

    def readable() -> Iterator[Record]:
        for at, record in enumerate(raw.stream()):
            if record is not None:
                kept.append(at)
                yield record

    # An encoder may ask for records ahead of its work: `kept` has at least those that it names.
    rows, made = encoder.embed(
        readable(), raw.count, odd=odd, place=lambda row: raw.place(kept[row])
    )
    if not made.any() and not none_fits:
        raise none_usable(raw.path, odd)
    good = np.zeros(raw.count, dtype=np.bool_)
    good[kept] = made
    values = np.zeros((raw.count, encoder.width), dtype=np.int16)
    values[kept] = rows
    source = encoder.source if window is None else "images window {} {}".format(*window)
    return Embeddings(values, source, encoder.digest), good
