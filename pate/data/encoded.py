"""Raw images and texts as an encoder sees them: the seam between readers of files and encoders.

A reader has a stream of raw records, and hands it to :func:`embedded`. All after that knows only
:class:`~pate.data.embeddings.Embeddings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.data.embeddings import Embeddings
from pate.data.files import images
from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pate.data.odd import Odd
    from pate.data.schema import Schema
    from pate.data.values import Window

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
        SchemaError: if the campaign's is another one, or we have none.
    """
    if schema.encoder is None:
        unknown = schema.size is None and schema.numeric is None
        return encoder if unknown else None
    if encoder is None:
        raise SchemaError(
            f"the campaign's inputs are {schema.source} by the encoder {schema.encoder}: name its "
            "folder with --encoder; the coordinator has it"
        )
    if (encoder.digest, encoder.source, encoder.width) != (
        schema.encoder, schema.source, schema.width
    ):  # fmt: skip
        raise SchemaError(
            f"the campaign's inputs are {schema.source} by the encoder {schema.encoder}, and --encoder "
            f"is {encoder.words}, with the digest {encoder.digest}: get the campaign's folder"
        )
    return encoder


def embedded(
    records: Iterable[Record],
    total: int,
    encoder: Embedder,
    *,
    window: Window | None = None,
    odd: Odd | None = None,
    place: Callable[[int], str] = lambda row: f"record {row + 1}",
) -> tuple[Embeddings, NDArray[np.bool_]]:
    """Return raw records as embeddings, and (n,) which are usable.

    Args:
        records: n images of any sizes, or texts; a stream is read once, a few records ahead.
        total: n, as far as it is known before; for the progress bar.
        encoder: to use.
        window: by which images of more than 8 bits a channel were read.
        odd: collects unusable records; None: the first of them is an error.
        place: returns a record's place in the file.

    Raises:
        DataError: if a record is unusable and problems are errors, or the encoder fails.
    """
    values, good = encoder.embed(records, total, odd=odd, place=place)
    source = encoder.source if window is None else "{} window {} {}".format(encoder.source, *window)
    return Embeddings(values, source, encoder.digest), good


def embedded_files(
    paths: Sequence[Path], encoder: Embedder, window: Window | None, odd: Odd | None
) -> tuple[Embeddings, NDArray[np.bool_]]:
    """Return the images of files of any sizes as embeddings, one by one, and (n,) which are usable.

    Raises:
        DataError: as :func:`embedded`, and for a file that cannot be read.
    """
    if not paths:
        raise DataError("there are no image files")
    read: list[int] = []

    def place(at: int) -> str:
        return f"{paths[at].parent.name}/{paths[at].name}"

    def pictures() -> Iterator[Record]:
        for at, path in enumerate(paths):
            try:
                picture = images.read_one(path, window)
            except DataError as error:
                if odd is None:
                    raise
                odd.record(images.why_not(error, path), place(at))
                continue
            if odd is not None:
                images.note_oddity(path, odd)
            read.append(at)
            yield picture

    some, fine = embedded(
        pictures(), len(paths), encoder, window=window, odd=odd,
        place=lambda row: place(read[row]),
    )  # fmt: skip
    good = np.zeros(len(paths), dtype=np.bool_)
    good[read] = fine
    values = np.zeros((len(paths), encoder.width), dtype=np.int16)
    values[read] = some.values
    return Embeddings(values, some.source, some.encoder), good
