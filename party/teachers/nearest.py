"""Teachers that answer by their nearest record, and abstain if none is near.

For shards with few records of many classes: a teacher that knows a third of the classes and must
always answer is mostly wrong, in the same way as all others that lack the class. Here it answers
only if one of its records is nearer to the query than records of two classes usually are to each
other. Only that distance is fitted on the shard.

Distances are in a deformation-invariant space, see :mod:`pate.features.fitted`, fitted on
synthetic strokes, the same for all data.

An abstaining teacher still has one vote: it goes to a class drawn once for it, whatever the query,
like that of a teacher of an empty shard. Such votes spread evenly over the classes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.protocol import NO_OPINION, DamagedTeacherError, Labels, Stored, dump, load
from party.teachers.schema import ImageSchema
from pate.data.values import Images
from pate.errors import UsageError
from pate.features.distortions import STROKES_VERSION, strokes
from pate.features.distortions import VERSION as DISTORTIONS_VERSION
from pate.features.fitted import AXES, InvariantSpace
from pate.features.gradients import VERSION as GRADIENTS_VERSION
from pate.features.gradients import VERSION as UPRIGHT_VERSION
from pate.features.space import ImageSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.teachers.protocol import Teacher
    from pate.data.values import Dataset, Inputs

    Floats = NDArray[np.float32]

#: Defines "near": this share of the shard's records has a nearer record of another class.
_TAKEN_FOR_ANOTHER: Final = 0.1
#: Number of synthetic images for fitting the space.
_DRAWINGS: Final = 5_000


@dataclass(frozen=True, eq=False)
class NearestTeacher:
    """Unit vectors of a shard's records; near is one with a product of at least ``least``."""

    takes: ImageSchema
    records: Floats
    labels: Labels
    least: float

    def predict(self, inputs: Inputs) -> Labels:
        """Return the label of each input's nearest record, :data:`NO_OPINION` if it is not near."""
        return self.answers(described(self.takes.conform(inputs)))

    def answers(self, queries: Floats) -> Labels:
        """Return the same for (n, d) queries in the feature space."""
        alike = queries @ self.records.T
        best = alike.argmax(axis=1)
        near = alike[np.arange(len(alike)), best] >= self.least
        return np.where(near, self.labels[best], NO_OPINION)

    def store(self) -> Stored:
        """Return the records' features as safetensors, the schema as JSON."""
        least = np.array([self.least], dtype=np.float32)
        model = dump({"records": self.records, "labels": self.labels, "least": least})
        return Stored({"size": list(self.takes.size)}, model)


class Nearest:
    """Makes nearest-record teachers; each depends only on its shard, bit for bit."""

    name = "nearest"
    version = (
        f"1, gradients {GRADIENTS_VERSION}, upright {UPRIGHT_VERSION}, strokes {STROKES_VERSION}, "
        f"distortions {DISTORTIONS_VERSION}"
    )
    suffix = "safetensors"

    def fit(self, shard: Dataset, seed: int) -> NearestTeacher:
        """Return the teacher of a shard of images; there is no randomness in it."""
        del seed
        if not isinstance(shard.inputs, Images):
            raise UsageError("model nearest is for images")
        records = described(shard.inputs)
        alike = records @ records.T
        alike[shard.labels[:, None] == shard.labels] = -1
        nearest_other = alike.max(axis=1)
        least = float(np.float32(np.quantile(nearest_other, 1 - _TAKEN_FOR_ANOTHER)))
        return NearestTeacher(ImageSchema(shard.inputs.size), records, shard.labels, least)

    def predict_many(self, members: Sequence[Teacher], classes: int, inputs: Inputs) -> Labels:
        """Return (k, n) int64; no rounding depends on another member's records: products are apart."""
        del classes
        answers = np.empty((len(members), len(inputs)), dtype=np.int64)
        queries: dict[ImageSchema, Floats] = {}
        for at, member in enumerate(members):
            if not isinstance(member, NearestTeacher):
                answers[at] = member.predict(inputs)
                continue
            if member.takes not in queries:
                queries[member.takes] = described(member.takes.conform(inputs))
            answers[at] = member.answers(queries[member.takes])
        return answers

    def restore(self, stored: Stored) -> NearestTeacher:
        """Return the teacher that was stored."""
        found = load(stored.model, ("records", "labels", "least"))
        takes = ImageSchema.from_facts(stored.facts)
        records, labels, least = found["records"], found["labels"], found["least"]
        if labels.ndim != 1 or records.shape != (len(labels), AXES) or least.shape != (1,):
            raise DamagedTeacherError("the shapes of its records")
        return NearestTeacher(
            takes, records.astype(np.float32), labels.astype(np.int64), float(least[0])
        )


def described(images: Images) -> Floats:
    """Return (n, d) float32 unit vectors."""
    return _space(images.size).embed(images)


@functools.lru_cache(maxsize=4)
def _space(size: tuple[int, int, int]) -> InvariantSpace:
    return InvariantSpace.fit(ImageSpace("upright", size), strokes(_DRAWINGS, size))
