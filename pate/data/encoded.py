"""Raw images and texts as an encoder sees them: the seam between readers of files and encoders.

A reader has a stream of raw records (:mod:`pate.data.raw`), which :func:`pate.data.read_raw.embedded` hands
to an encoder. All after that knows only :class:`~pate.data.embeddings.Embeddings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pate.data.odd import Odd
    from pate.data.schema import Schema


class NoEncoderError(SchemaError):
    """Records can be read for a campaign by its encoder only, and there is none here."""


#: An image, (height, width, 1 or 3) uint8 of any size, or a text.
Record: TypeAlias = NDArray[np.uint8] | str


class Embedder(Protocol):
    """An encoder as a reader needs it; :class:`pate.encoders.reading.Reader` is one.

    Attributes:
        digest: of the encoder.
        source: ``images`` or ``texts``.
        width: coordinates of an embedding.
        words: its name and the beginning of its digest.
    """

    @property
    def digest(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def words(self) -> str: ...  # noqa: D102

    def embed(
        self,
        records: Iterable[Record],
        total: int,
        *,
        odd: Odd | None,
        place: Callable[[int], str],
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Return (n, d) embeddings, and (n,) which records are usable; ``total`` is about n."""


def require_encoder(schema: Schema, encoder: Embedder | None) -> Embedder | None:
    """Return the encoder that a campaign's inputs need, before a record is read.

    Args:
        schema: of the campaign, or an empty one if it is not known.
        encoder: ours.

    Raises:
        NoEncoderError: if we have none.
        SchemaError: if the campaign's is another one.
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
