"""Linear teachers: ridge regression on fixed image features, embeddings or a shard's table encoding.

For images there are several fixed views; each teacher uses the one with the least leave-one-out
error on its own shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers import tensors
from party.teachers.columns import TableEncoding
from party.teachers.device import product
from party.teachers.image_features import VERSION, VIEWS, WIDTH, View, describe, image_features
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from party.teachers.ridge import fit_ridge
from party.teachers.schema import EmbeddingSchema, ImageSchema
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.teachers.protocol import Teacher
    from pate.data.values import Dataset, Inputs

    Floats = NDArray[np.float32]

#: A table's number counts as at most this many spreads from the shard's median.
_FARTHEST: Final = 8.0
#: Records of a shard used to choose its view.
_ON_TRIAL: Final = 64
#: Columns of one product of features and weights: as many teachers' classes as fit into it.
_COLUMNS_AT_ONCE: Final = 4096


@dataclass(frozen=True)
class LookAt:
    """Images of one size in one view.

    Attributes:
        images: their size.
        view: of the images.
    """

    images: ImageSchema
    view: View

    def rows(self, inputs: Inputs) -> Floats:
        """Return (n, d) float32, the features of images; raises SchemaError for other inputs."""
        return image_features(self.images.conform(inputs), self.view)


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one encoder, which are rows already.

    Attributes:
        kind: their line.
    """

    kind: EmbeddingSchema

    def rows(self, inputs: Inputs) -> Floats:
        """Return (n, d) float32; raises SchemaError for inputs of another encoder."""
        return self.kind.conform(inputs).points()


@dataclass(frozen=True, eq=False)
class LinearTeacher:
    """A fitted linear classifier.

    Attributes:
        takes: conversion of inputs to rows of d numbers.
        seen: (c,) int64, the classes of the shard, the only possible answers.
        weights: (d, c) float32.
        bias: (c,) float32.
    """

    takes: LookAt | Embedded | TableEncoding
    seen: Labels
    weights: Floats
    bias: Floats

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
        scores = self._rows(inputs) @ self.weights + self.bias
        best: Labels = scores.argmax(axis=1)
        return self.seen[best]

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) how sure it is of class 1 of two; see :class:`party.teachers.several.Sure`.

        The logistic function of the lead of its score: exact for a logistic teacher, and for ridge
        regression in the same order.
        """
        scores = (self._rows(inputs) @ self.weights + self.bias).astype(np.float64)
        lead = np.clip(scores[:, -1] - scores[:, 0], -50.0, 50.0)
        return 1.0 / (1.0 + np.exp(-lead))

    def _rows(self, inputs: Inputs) -> Floats:
        if isinstance(self.takes, TableEncoding):
            return encoded(self.takes, inputs)
        return self.takes.rows(inputs)

    def store(self) -> Stored:
        """Return the weights as safetensors, the schema as JSON."""
        facts: dict[str, object]
        if isinstance(self.takes, LookAt):
            facts = {"size": list(self.takes.images.size), "view": self.takes.view}
        elif isinstance(self.takes, Embedded):
            facts = {"embeddings": self.takes.kind.line}
        else:
            facts = {"table": self.takes.facts()}
        return Stored(
            facts,
            tensors.dump({"seen": self.seen, "weights": self.weights, "bias": self.bias}),
        )


class Linear:
    """Makes linear teachers.

    Each is fitted by itself, and no faster in a batch: the time goes into features and
    decompositions, which are a shard's own. So it does not depend on another shard by a single bit.

    Args:
        device: ``cpu`` or ``cuda``, for answering together.
    """

    name = "linear"
    version = f"2, features {VERSION}"
    suffix = "safetensors"

    def __init__(self, device: str = "cpu") -> None:
        self._device = device

    def fit(self, shard: Dataset, seed: int) -> LinearTeacher:
        """Return the teacher of a shard; there is no randomness in it."""
        del seed
        inputs = shard.inputs
        seen, labels = np.unique(shard.labels, return_inverse=True)
        takes: LookAt | Embedded | TableEncoding
        if isinstance(inputs, Images):
            view, features = _look(inputs, labels, len(seen))
            takes = LookAt(ImageSchema(inputs.size), view)
        elif isinstance(inputs, Embeddings):
            takes = Embedded(EmbeddingSchema(inputs.schema()))
            features = inputs.points()
        else:
            takes = TableEncoding.fit(inputs)
            features = encoded(takes, inputs)
        ridge = fit_ridge(features, labels, len(seen))
        return LinearTeacher(takes, seen, ridge.weights, ridge.bias)

    def predict_many(self, members: Sequence[Teacher], classes: int, inputs: Inputs) -> Labels:
        """Return (k, n) int64; see :class:`party.teachers.protocol.AnswersTogether`."""
        answers = np.empty((len(members), len(inputs)), dtype=np.int64)
        step = max(1, _COLUMNS_AT_ONCE // classes)
        for start in range(0, len(members), step):
            block = slice(start, start + step)
            self._answer(members[block], classes, inputs, answers[block])
        return answers

    def _answer(
        self, block: Sequence[Teacher], classes: int, inputs: Inputs, answers: Labels
    ) -> None:
        """Fill in the answers of some members.

        Each has the same columns of the product whatever the others: a member with another view
        leaves its columns at zero. So no member's rounding, and thus no vote at a tie, depends on
        another member.
        """
        looks: dict[LookAt | Embedded, dict[int, LinearTeacher]] = {}
        for at, member in enumerate(block):
            if isinstance(member, LinearTeacher) and not isinstance(member.takes, TableEncoding):
                looks.setdefault(member.takes, {})[at] = member
            else:
                answers[at] = member.predict(inputs)
        for look, fitted in looks.items():
            features = look.rows(inputs)
            weights = np.zeros((features.shape[1], len(block), classes), dtype=np.float32)
            bias = np.full((len(block), classes), -np.inf, dtype=np.float32)
            for at, one in fitted.items():
                weights[:, at, one.seen] = one.weights
                bias[at, one.seen] = one.bias
            scores = product(features, weights.reshape(len(weights), -1), self._device)
            for at in fitted:
                own = scores[:, at * classes : (at + 1) * classes]
                answers[at] = (own + bias[at]).argmax(axis=1)

    def restore(self, stored: Stored) -> LinearTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        held = tensors.load(stored.model, ("seen", "weights", "bias"))
        width = WIDTH
        takes: LookAt | Embedded | TableEncoding
        if "table" in stored.facts:
            takes = TableEncoding.from_facts(stored.facts["table"])
        elif "embeddings" in stored.facts:
            takes = Embedded(EmbeddingSchema(str(stored.facts["embeddings"])))
            width = _width(takes)
        else:
            views = [view for view in VIEWS if view == stored.facts.get("view")]
            if not views:
                raise DamagedTeacherError("how it looks at images")
            takes = LookAt(tensors.image_size(stored.facts), views[0])
        seen, weights, bias = held["seen"], held["weights"], held["bias"]
        if weights.ndim != 2 or seen.shape != bias.shape or weights.shape[1:] != bias.shape:
            raise DamagedTeacherError("the shapes of its weights")
        if not isinstance(takes, TableEncoding) and len(weights) != width:
            raise DamagedTeacherError("the number of its features")
        return LinearTeacher(
            takes, seen.astype(np.int64), weights.astype(np.float32), bias.astype(np.float32)
        )


def _width(takes: Embedded) -> int:
    try:
        return takes.kind.cells
    except SchemaError as error:
        raise DamagedTeacherError("the encoder of its embeddings") from error


def encoded(encoding: TableEncoding, inputs: Inputs) -> Floats:
    """Return (n, d) float32: a table's rows for a linear model, none of them far out."""
    return np.clip(encoding.encode(inputs), -_FARTHEST, _FARTHEST)


def _look(images: Images, labels: Labels, classes: int) -> tuple[View, Floats]:
    """Return the view of a shard's images, and their features.

    The view with the least leave-one-out error on some of them is used: all of them would take too
    long, and differences between views are large.
    """
    some, rest = images.take(range(len(images))[:_ON_TRIAL]), range(len(images))[_ON_TRIAL:]
    tried = [describe(some, view) for view in VIEWS]
    errors = [fit_ridge(rows, labels[: len(some)], classes).error for rows in tried]
    best = int(np.argmin(errors))
    return VIEWS[best], np.concatenate([tried[best], describe(images.take(rest), VIEWS[best])])
