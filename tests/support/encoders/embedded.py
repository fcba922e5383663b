"""Made-up embeddings of a public encoder that tells classes apart, more or less."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pate.data.embeddings import UNIT, Embeddings
from pate.data.values import Dataset

DIGEST = "ab" * 32


def embedded(rows: int, *, width: int = 12, seed: int = 0, source: str = "texts") -> Embeddings:
    """Return embeddings without classes."""
    return _embeddings(np.random.default_rng(seed).normal(size=(rows, width)), source)


def embedded_records(
    rows: int, *, classes: int = 3, width: int = 12, seed: int = 0, apart: float = 2.0
) -> Dataset:
    """Return records about one middle a class; the middles are the same for every seed."""
    middles = apart * np.random.default_rng(99).normal(size=(classes, width))
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, rows)
    points = middles[labels] + generator.normal(size=(rows, width)) + 1.0
    names = tuple(f"class {at}" for at in range(classes))
    return Dataset(_embeddings(points, "texts"), labels.astype(np.int64), names)


def _embeddings(
    points: np.ndarray[tuple[int, int], np.dtype[np.float64]], source: str
) -> Embeddings:
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    return Embeddings(np.rint(unit * UNIT).astype(np.int16), source, DIGEST)


def embedding_arrays(inputs: Embeddings) -> dict[str, NDArray[np.int16] | NDArray[np.str_]]:
    """Return the arrays of an ``.npz`` file from which they are read again."""
    return {
        "embeddings": inputs.values,
        "encoder": np.array(inputs.encoder, dtype=np.str_),
        "source": np.array(inputs.source, dtype=np.str_),
    }
