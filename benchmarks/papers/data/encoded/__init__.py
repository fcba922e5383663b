"""Data sets of images and texts that a public encoder embeds before anything else is done with them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers.split import Split
from pate.data.embeddings import Embeddings, embedding_arrays
from pate.data.read import read_inputs
from pate.data.values import Dataset
from pate.encoders.encoder import Encoder
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from pate.data.encoded import Record

#: The order of the records before they are divided, any fixed number.
_SHUFFLE = 20261123


@dataclass(frozen=True)
class Embedder:
    """A public encoder, and where embeddings are stored.

    Attributes:
        encoder: the opened encoder.
        work: folder of the stored embeddings.
    """

    encoder: Encoder
    work: Path

    @classmethod
    def of(cls, name: str, work: Path) -> Embedder:
        """Open the encoder in a folder of PATE_TEST_ENCODERS.

        Raises:
            UsageError: if the variable names no folder.
            DataError: if there is no encoder of that name.
        """
        folder = os.environ.get("PATE_TEST_ENCODERS")
        if not folder:
            raise UsageError(
                "set PATE_TEST_ENCODERS to the folder that holds the encoders' folders, "
                f"here {name} is needed"
            )
        return cls(Encoder.open(Path(folder, name)), work)

    @property
    def in_words(self) -> str:
        """Name of the encoder and beginning of its digest."""
        return self.encoder.description.in_words()

    def embed(self, name: str, records: Callable[[], Iterable[Record]]) -> Embeddings:
        """Return the embeddings of records, stored ones if there are some.

        Args:
            name: of the records, for the file.
            records: returns them.
        """
        file = self.work / f"{name}-{self.encoder.digest[:16]}.npz"
        if file.is_file():
            held = read_inputs(file)
            if not isinstance(held, Embeddings) or held.encoder != self.encoder.digest:
                raise DataError(f"{file} holds other inputs: remove it")
            return held
        values, _ = self.encoder.rows(records())
        made = self.encoder.embeddings(values)
        draft = file.with_suffix(".draft.npz")
        np.savez(draft, allow_pickle=False, **embedding_arrays(made))
        draft.replace(file)
        return made


def divided(whole: Dataset, sizes: tuple[int, int], test: Dataset | None, note: str) -> Split:
    """Return records in a fixed random order: private, public and, where no other is given, test.

    Args:
        whole: the records.
        sizes: of the private and the public part.
        test: the official test set, or None to take the rest.
        note: of the split.

    Raises:
        DataError: if there are fewer records.
    """
    private, public = sizes
    if len(whole) < private + public + (test is None):
        raise DataError(f"{len(whole)} records are too few for {private} private, {public} public")
    order = np.random.default_rng(_SHUFFLE).permutation(len(whole))
    parts = np.split(order, [private, private + public])
    held = whole.take(np.sort(parts[2])) if test is None else test
    return Split(whole.take(np.sort(parts[0])), whole.take(np.sort(parts[1])), held, note)


def labelled(
    inputs: Embeddings, labels: Sequence[int] | NDArray[np.int64], classes: tuple[str, ...]
) -> Dataset:
    """Return embeddings with their classes."""
    return Dataset(inputs, np.asarray(labels, dtype=np.int64), classes)
