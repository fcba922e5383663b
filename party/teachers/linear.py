"""Linear teachers: ridge regression on fixed image features, embeddings or a shard's table encoding.

A view describes an image by a unit vector: histograms of oriented gradients of the image as it is,
or of the deskewed image, or wavelet scattering. Random Fourier features of that vector make a
linear model on them act like a Gaussian-kernel one. No view is fitted, so all teachers of all
parties may share them, and caching them leaks nothing. Each teacher uses the view with the least
leave-one-out error on its own shard.

One teacher by itself has the penalty with the least leave-one-out error; one of many whose mean counts
has a tenth of it, as their mean averages out variance, and not bias; where a party is the unit, less still.

Sources: Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007; Rifkin and
Lippert, "Notes on regularized least squares", MIT-CSAIL-TR-2007-025: the leave-one-out residuals of
every penalty come from one eigendecomposition.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from party.teachers.protocol import DamagedTeacherError, Labels, Stored, dump, load
from party.teachers.schema import EmbeddingSchema, ImageSchema, TableEncoding
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import SchemaError
from pate.features.gradients import UPRIGHT_VERSION, gradients, upright
from pate.features.gradients import VERSION as GRADIENTS_VERSION
from pate.features.scattering import VERSION as SCATTERING_VERSION
from pate.features.scattering import scatter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.teachers.protocol import Teacher
    from pate.data.values import Dataset, Inputs

    Floats = NDArray[np.float32]

#: Penalties tried, as a share of the mean eigenvalue of the centred Gram matrix.
_PENALTIES: Final = np.array([10.0 ** (step / 2) for step in range(-6, 5)])
#: Penalty of one of many, as a share of what is best for one.
OF_MANY: Final = 0.1
#: And of one of many parties, where the party is the unit: a party counts half as much as a record would, so
#: the noise leaves more of what a weaker penalty keeps.
OF_PARTIES: Final = 0.03
#: Version of the features: changes whenever they do.
VERSION: Final = (
    f"2, gradients {GRADIENTS_VERSION}, upright {UPRIGHT_VERSION}, scattering {SCATTERING_VERSION}"
)
#: Number of features, whatever the size of the images.
WIDTH: Final = 2048
#: Views of an image.
View: TypeAlias = Literal["gradients", "upright", "scattering"]
VIEWS: Final[tuple[View, ...]] = ("gradients", "upright", "scattering")
_BANDWIDTH: Final = 1.0  # of the kernel exp(-|x - y|^2) on unit vectors
_ROWS_AT_ONCE: Final = 1024
_DIRECTIONS_AT_ONCE: Final = 64
#: A table's number counts as at most this many spreads from the shard's median.
_FARTHEST: Final = 8.0
#: Records of a shard used to choose its view.
_ON_TRIAL: Final = 64
#: Columns of one product of features and weights: as many teachers' classes as fit into it.
_COLUMNS_AT_ONCE: Final = 4096


# --- ridge regression ------------------------------------------------------------------------


class Ridge(NamedTuple):
    """A linear classifier, x W + b; ``error`` is the mean square of its leave-one-out residuals."""

    weights: Floats
    bias: Floats
    error: float


def fit_ridge(
    features: Floats, labels: NDArray[np.int64], classes: int, share: float = 1.0
) -> Ridge:
    """Return the classifier of a shard, with ``share`` of the best penalty: see OF_MANY."""
    count, width = features.shape
    middle = features.mean(axis=0, dtype=np.float64)
    centred = features - middle.astype(np.float32)
    targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
    level = targets.mean(axis=0)
    targets -= level

    # The smaller of the two Gram matrices has the same positive eigenvalues.
    dual = count <= width
    gram = centred @ centred.T if dual else centred.T @ centred
    values, vectors = np.linalg.eigh(gram.astype(np.float64))
    kept = values > values[-1] * 1e-7
    if not kept.any() or values[-1] <= 0:  # all rows equal: only the class frequencies matter
        error = float(np.mean(np.square(targets)))
        return Ridge(np.zeros((width, classes), np.float32), level.astype(np.float32), error)
    values, vectors = values[kept], vectors[:, kept]
    # Left singular vectors, (n, rank), and the targets seen along them.
    left = vectors if dual else (centred @ vectors) / np.sqrt(values)
    along = left.T @ targets

    # All penalties at once: (penalties, rank), then (n, penalties) and (n, penalties, classes).
    shrink = values / (values + _PENALTIES[:, None] * (values.sum() / count))
    influence = np.square(left) @ shrink.T + 1 / count
    pulled = (shrink.T[:, :, None] * along[:, None, :]).reshape(len(values), -1)
    fitted = (left @ pulled).reshape(count, len(_PENALTIES), classes)
    residual = targets[:, None, :] - fitted
    residual /= np.clip(1 - influence, 1e-6, None)[:, :, None]
    errors = np.square(residual).mean(axis=(0, 2))
    best = int(errors.argmin())
    held = values / (values + share * _PENALTIES[best] * (values.sum() / count))

    if dual:
        weights = centred.T @ (vectors @ (along * (held / values)[:, None])).astype(np.float32)
    else:
        scaled = along * (held / np.sqrt(values))[:, None]
        weights = (vectors @ scaled).astype(np.float32)
    bias = level - middle @ weights
    return Ridge(weights, bias.astype(np.float32), float(errors[best]))


# --- features of images ---------------------------------------------------------------------


@functools.lru_cache(maxsize=len(VIEWS))  # teachers read the same batch one after the other
def image_features(images: Images, view: View) -> Floats:
    """Return (n, WIDTH) float32 features."""
    features = describe(images, view)
    features.setflags(write=False)
    return features


def describe(images: Images, view: View) -> Floats:
    """Return (n, WIDTH) float32 features, uncached."""
    described = _described(images, view)
    directions, phases = _projection(described.shape[1])
    features = np.empty((len(images), WIDTH), dtype=np.float32)
    for start in range(0, len(images), _ROWS_AT_ONCE):
        piece = features[start : start + _ROWS_AT_ONCE]
        np.matmul(described[start : start + _ROWS_AT_ONCE], directions, out=piece)
        piece += phases
        np.cos(piece, out=piece)
        piece *= np.float32(np.sqrt(2 / WIDTH))
    return features


def _described(images: Images, view: View) -> Floats:
    if view == "scattering":
        return scatter(images)
    return gradients(upright(images) if view == "upright" else images)


@functools.lru_cache(maxsize=2)
def _projection(inputs: int) -> tuple[Floats, Floats]:
    """Return the random directions, (inputs, WIDTH), and phases, (WIDTH,).

    From SHAKE-256 by Box-Muller: stored teachers rely on them, and numpy's streams may change.
    """
    directions = np.empty((inputs, WIDTH), dtype=np.float32)
    for start in range(0, inputs, _DIRECTIONS_AT_ONCE):
        piece = directions[start : start + _DIRECTIONS_AT_ONCE]
        first, second = _uniform(f"directions {start}", 2, piece.size // 2)
        radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        piece[:] = normal.reshape(piece.shape) * np.sqrt(2 * _BANDWIDTH)
    phases = 2 * np.pi * _uniform("phases", 1, WIDTH)[0]
    return directions, phases.astype(np.float32)


def _uniform(purpose: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return (rows, columns) numbers, the middles of 2^32 cells of (0, 1): no logarithm of 0."""
    stream = hashlib.shake_256(f"pate random Fourier features 2 {purpose}".encode())
    drawn = np.frombuffer(stream.digest(4 * rows * columns), dtype="<u4")
    spread: NDArray[np.float64] = (drawn.reshape(rows, columns) + 0.5) / 2.0**32
    return spread


# --- teachers -------------------------------------------------------------------------------


class LookAt(NamedTuple):
    """Images of one size in one view."""

    images: ImageSchema
    view: View


Takes: TypeAlias = LookAt | EmbeddingSchema | TableEncoding


def rows_of(takes: Takes, inputs: Inputs) -> Floats:
    """Return (n, d) float32 rows of inputs, none of a table's far out; SchemaError for other inputs."""
    if isinstance(takes, TableEncoding):
        return np.clip(takes.encode(inputs), -_FARTHEST, _FARTHEST)
    if isinstance(takes, EmbeddingSchema):
        return takes.conform(inputs).points()
    return image_features(takes.images.conform(inputs), takes.view)


def _facts(takes: Takes) -> dict[str, object]:
    """Return JSON values."""
    if isinstance(takes, TableEncoding):
        return {"table": takes.facts()}
    if isinstance(takes, EmbeddingSchema):
        return {"embeddings": takes.line}
    return {"size": list(takes.images.size), "view": takes.view}


@dataclass(frozen=True, eq=False)
class LinearTeacher:
    """A fitted linear classifier; ``seen`` are the classes of the shard, the only possible answers."""

    takes: Takes
    seen: Labels
    weights: Floats
    bias: Floats

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input."""
        scores = rows_of(self.takes, inputs) @ self.weights + self.bias
        best: Labels = scores.argmax(axis=1)
        return self.seen[best]

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) how sure it is of class 1 of two: the logistic function of its lead."""
        scores = (rows_of(self.takes, inputs) @ self.weights + self.bias).astype(np.float64)
        lead = np.clip(scores[:, -1] - scores[:, 0], -50.0, 50.0)
        return 1.0 / (1.0 + np.exp(-lead))

    def store(self) -> Stored:
        """Return the weights as safetensors, the schema as JSON."""
        content = dump({"seen": self.seen, "weights": self.weights, "bias": self.bias})
        return Stored(_facts(self.takes), content)


class Linear:
    """Makes linear teachers.

    Each is fitted by itself, and no faster in a batch: the time goes into features and
    decompositions, which are a shard's own. So it does not depend on another shard by a single bit.
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
        takes: Takes
        if isinstance(inputs, Images):
            view, features = _look(inputs, labels, len(seen))
            takes = LookAt(ImageSchema(inputs.size), view)
        elif isinstance(inputs, Embeddings):
            takes, features = EmbeddingSchema(inputs.schema()), inputs.points()
        else:
            takes = TableEncoding.fit(inputs)
            features = rows_of(takes, inputs)
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
        looks: dict[LookAt | EmbeddingSchema, dict[int, LinearTeacher]] = {}
        for at, member in enumerate(block):
            if isinstance(member, LinearTeacher) and not isinstance(member.takes, TableEncoding):
                looks.setdefault(member.takes, {})[at] = member
            else:
                answers[at] = member.predict(inputs)
        for look, fitted in looks.items():
            features = rows_of(look, inputs)
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
        """Return the teacher that was stored."""
        found = load(stored.model, ("seen", "weights", "bias"))
        width = WIDTH
        takes: Takes
        if "table" in stored.facts:
            takes = TableEncoding.from_facts(stored.facts["table"])
        elif "embeddings" in stored.facts:
            takes = EmbeddingSchema(str(stored.facts["embeddings"]))
            try:
                width = takes.cells
            except SchemaError as error:
                raise DamagedTeacherError("the encoder of its embeddings") from error
        else:
            views = [view for view in VIEWS if view == stored.facts.get("view")]
            if not views:
                raise DamagedTeacherError("how it looks at images")
            takes = LookAt(ImageSchema.from_facts(stored.facts), views[0])
        seen, weights, bias = found["seen"], found["weights"], found["bias"]
        if weights.ndim != 2 or seen.shape != bias.shape or weights.shape[1:] != bias.shape:
            raise DamagedTeacherError("the shapes of its weights")
        if not isinstance(takes, TableEncoding) and len(weights) != width:
            raise DamagedTeacherError("the number of its features")
        return LinearTeacher(
            takes, seen.astype(np.int64), weights.astype(np.float32), bias.astype(np.float32)
        )


def _look(images: Images, labels: Labels, classes: int) -> tuple[View, Floats]:
    """Return the view of a shard's images with the least leave-one-out error on some, and features."""
    some, rest = images.take(range(len(images))[:_ON_TRIAL]), range(len(images))[_ON_TRIAL:]
    tried = [describe(some, view) for view in VIEWS]
    errors = [fit_ridge(rows, labels[: len(some)], classes).error for rows in tried]
    best = int(np.argmin(errors))
    return VIEWS[best], np.concatenate([tried[best], describe(images.take(rest), VIEWS[best])])


def product(features: Floats, weights: Floats, device: str) -> Floats:
    """Return ``features @ weights`` in single precision, computed on ``cpu`` or ``cuda``."""
    found: Floats
    if device == "cpu":
        found = np.matmul(features, weights, dtype=np.float32)
        return found
    import torch

    # PyTorch warns about read-only arrays, such as cached features.
    left, right = (torch.from_numpy(np.array(part)).to(device) for part in (features, weights))
    found = (left @ right).cpu().numpy()
    return found
