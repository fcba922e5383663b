"""Raw images and texts as an encoder sees them: the seam between readers of files and encoders.

A reader has a stream of raw records, which :func:`pate.data.read_raw.embedded` hands to an encoder one at a
time, so memory holds one of them and the embeddings of all. All after that knows only
:class:`~pate.data.embeddings.Embeddings`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pate.data.odd import Odd
    from pate.data.schema import Schema


class NoEncoderError(SchemaError):
    """Records can be read for a campaign by its encoder only, and there is none here."""


#: An image, (height, width, 1 or 3) uint8 of any size, or a text.
Record: TypeAlias = NDArray[np.uint8] | str


@dataclass(frozen=True, eq=False)
class Raw:
    """Records, and what is known of each before it is read."""

    path: Path  # of the file or folder, for messages
    # "images" or "texts", or "images window 0 4095", as of :class:`~pate.data.embeddings.Embeddings`
    source: str
    count: int  # n, usable or not
    # returns n records in order, each read as it is asked for, None for an unusable one, which is noted;
    # without a collector of problems it is an error
    stream: Callable[[], Iterator[Record | None]]
    place: Callable[[int], str]  # returns a record's place, for messages
    names: Sequence[str] | None  # n class names, "" for none; None if nothing names the classes
    # (n,) str, the group (patient) of each, "" for none; None if nothing names one
    groups: NDArray[np.str_] | None
    cells: Mapping[str, Sequence[str]]  # n cells of each column of several labels, or of numbers
    odd: Odd | None  # the collector of problems; None: the first of them is an error


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
