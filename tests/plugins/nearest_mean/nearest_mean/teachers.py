"""Teachers: each knows the mean of its shard's records of every class."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from pate.data.values import Dataset, Images, Inputs
from pate.errors import SchemaError


def flat(inputs: Inputs) -> NDArray[np.float64]:
    """Return images as rows of numbers."""
    if not isinstance(inputs, Images):
        raise SchemaError("nearest-mean takes images")
    return inputs.pixels.reshape(len(inputs), -1) / 255.0


def nearest(rows: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distance of each row to each mean, one mean after the other."""
    return np.stack([((rows - mean) ** 2).sum(axis=1) for mean in means], axis=1)


@dataclass(frozen=True, eq=False)
class Means:
    """The means of the classes that a shard had."""

    classes: tuple[int, ...]
    means: NDArray[np.float64]

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of the nearest mean."""
        chosen = nearest(flat(inputs), self.means).argmin(axis=1)
        votes: Labels = np.array(self.classes, dtype=np.int64)[chosen]
        return votes

    def store(self) -> Stored:
        """Return it as JSON."""
        return Stored({"classes": list(self.classes)}, json.dumps(self.means.tolist()).encode())


class NearestMean:
    """The kind of teachers; called with a device, which it does not need."""

    name = "nearest-mean"
    version = "1"
    suffix = "means"

    def __init__(self, device: str) -> None:
        del device

    def fit(self, shard: Dataset, seed: int) -> Means:
        """Return the means of a shard; nothing about it is random."""
        del seed
        rows, held = flat(shard.inputs), np.unique(shard.labels)
        means = np.stack([rows[shard.labels == label].mean(axis=0) for label in held])
        return Means(tuple(held.tolist()), means)

    def restore(self, stored: Stored) -> Means:
        """Return the stored means."""
        try:
            classes = tuple(int(label) for label in stored.facts["classes"])  # type: ignore[attr-defined]
            return Means(classes, np.array(json.loads(stored.model), dtype=np.float64))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedTeacherError from error
