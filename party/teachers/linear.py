"""Linear teachers: ridge regression on fixed image features, or on a shard's table encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers import tensors
from party.teachers.columns import TableEncoding
from party.teachers.image_features import VERSION, WIDTH, image_features
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from party.teachers.ridge import fit_ridge
from party.teachers.schema import ImageSchema
from pate.data.values import Images

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs

#: A table's number counts as at most this many spreads from the shard's median.
_FARTHEST: Final = 8.0


@dataclass(frozen=True, eq=False)
class LinearTeacher:
    """A fitted linear classifier.

    Attributes:
        takes: image size, or the encoding of tables.
        seen: (c,) int64, the classes that the shard holds; no other is ever answered.
        weights: (d, c) float32.
        bias: (c,) float32.
    """

    takes: ImageSchema | TableEncoding
    seen: Labels
    weights: NDArray[np.float32]
    bias: NDArray[np.float32]

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
        scores = _features(self.takes, inputs) @ self.weights + self.bias
        best: Labels = scores.argmax(axis=1)
        return self.seen[best]

    def store(self) -> Stored:
        """Return the weights as safetensors, the schema as JSON."""
        facts: dict[str, object] = (
            {"size": list(self.takes.size)}
            if isinstance(self.takes, ImageSchema)
            else {"table": self.takes.facts()}
        )
        return Stored(
            facts,
            tensors.dump({"seen": self.seen, "weights": self.weights, "bias": self.bias}),
        )


class Linear:
    """Makes linear teachers."""

    name = "linear"
    version = f"1, features {VERSION}"
    suffix = "safetensors"

    def fit(self, shard: Dataset, seed: int) -> LinearTeacher:
        """Return the teacher of a shard; there is no randomness in it."""
        del seed
        inputs = shard.inputs
        takes = (
            ImageSchema(inputs.size) if isinstance(inputs, Images) else TableEncoding.fit(inputs)
        )
        seen, labels = np.unique(shard.labels, return_inverse=True)
        weights, bias = fit_ridge(_features(takes, inputs), labels, len(seen))
        return LinearTeacher(takes, seen, weights, bias)

    def restore(self, stored: Stored) -> LinearTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        held = tensors.load(stored.model, ("seen", "weights", "bias"))
        takes: ImageSchema | TableEncoding
        if "table" in stored.facts:
            takes = TableEncoding.from_facts(stored.facts["table"])
        else:
            takes = tensors.image_size(stored.facts)
        seen, weights, bias = held["seen"], held["weights"], held["bias"]
        if weights.ndim != 2 or seen.shape != bias.shape or weights.shape[1:] != bias.shape:
            raise DamagedTeacherError("the shapes of its weights")
        if isinstance(takes, ImageSchema) and len(weights) != WIDTH:
            raise DamagedTeacherError("the number of its features")
        return LinearTeacher(
            takes, seen.astype(np.int64), weights.astype(np.float32), bias.astype(np.float32)
        )


def _features(takes: ImageSchema | TableEncoding, inputs: Inputs) -> NDArray[np.float32]:
    if isinstance(takes, ImageSchema):
        return image_features(takes.conform(inputs))
    return np.clip(takes.encode(inputs), -_FARTHEST, _FARTHEST)
