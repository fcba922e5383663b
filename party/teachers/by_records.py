"""Teachers that answer by their shard's records: a network reads them all, or the nearest one decides.

A teacher is its shard's records, encoded, and their classes; so its file has records.

*Prior*, for tables: a network reads the records together with each query, and nothing is fitted. It was
trained on made-up tables, is the same for all, and has seen no record. Its weights come with the package;
``benchmarks/prior.py`` makes them, and the file's header has its command and recipe.

*Nearest*, for images, where shards have few records of many classes: a teacher that knows a third of the
classes and must always answer is mostly wrong, in the same way as all others that lack the class. So it
answers only if a record is nearer to the query than records of two classes usually are to each other; only
that distance is fitted on the shard. Distances are in a deformation-invariant space
(:mod:`pate.features.fitted`), fitted on synthetic strokes, the same for all data. An abstaining teacher
still has one vote: for a class drawn once for it, whatever the query, like that of a teacher of an empty
shard. Such votes spread evenly over the classes.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.protocol import NO_OPINION, DamagedTeacherError, Labels, Stored, dump, load
from party.teachers.schema import ImageSchema, NumberColumn, TableEncoding
from pate.data.values import Images, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.features.distortions import STROKES_VERSION, strokes
from pate.features.distortions import VERSION as DISTORTIONS_VERSION
from pate.features.fitted import AXES, InvariantSpace
from pate.features.gradients import VERSION as GRADIENTS_VERSION
from pate.features.gradients import VERSION as UPRIGHT_VERSION
from pate.features.space import ImageSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.teachers.prior_network import PriorNetwork
    from party.teachers.protocol import Teacher
    from pate.data.values import Dataset, Inputs

    Floats = NDArray[np.float32]

#: The file of the weights, and its SHA-256.
NAME: Final = "prior.safetensors"
DIGEST: Final = "f60e23f5b30fea96101e927d976913f58b2b7967be71a8e75a9ed46c93ff3c75"
#: Most classes: each is one question, whether a record has it.
MOST_CLASSES: Final = 10
#: Most records that the network reads at once, as in its training. More are dealt into parts.
_MOST_KNOWN: Final = 64
#: Most records of a shard that it reads at all, each class in proportion.
_MOST_ROWS: Final = 1024
#: Most columns that it reads: those that go most with the classes in the shard.
_MOST_COLUMNS: Final = 128
#: Queries at once, which bounds the memory.
_AT_ONCE: Final = 256


@dataclass(frozen=True, eq=False)
class PriorTeacher:
    """A shard's records: rows of those cells of the encoding that the network reads; NaN is missing."""

    encoding: TableEncoding
    kept: NDArray[np.int64]
    rows: Floats
    labels: Labels

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input."""
        seen = np.unique(self.labels)
        queries = cells(self.encoding, inputs)[:, self.kept]
        if len(seen) == 2:
            best = (self._logits(queries, seen[1]) > 0).astype(np.int64)
        else:
            best = np.stack([self._logits(queries, each) for each in seen]).argmax(axis=0)
        answers: Labels = seen[best]
        return answers

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) the probability of class 1 of two; see :class:`party.teachers.protocol.Sure`."""
        queries = cells(self.encoding, inputs)[:, self.kept]
        logits = self._logits(queries, np.unique(self.labels)[-1])
        return 1 / (1 + np.exp(-np.clip(logits.astype(np.float64), -50, 50)))

    def _logits(self, queries: Floats, label: int) -> Floats:
        """Return (q,) the logit of a class against all others."""
        import torch

        network = trained_network()
        has = self.labels == label
        logits = np.zeros(len(queries), dtype=np.float32)
        parts = _parts(has)
        with torch.inference_mode():
            for part in parts:
                # Asked both ways round, so that the names of the classes make no difference.
                known = torch.from_numpy(np.stack([has[part], ~has[part]]).astype(np.int64))
                for start in range(0, len(queries), _AT_ONCE):
                    block = queries[start : start + _AT_ONCE]
                    values = torch.from_numpy(np.concatenate([self.rows[part], block]))
                    both = network(values.expand(2, -1, -1), known).numpy()
                    logits[start : start + len(block)] += (both[0] - both[1]) / (2 * len(parts))
        return logits

    def store(self) -> Stored:
        """Return the records' cells as safetensors, the encoding as JSON."""
        missing = np.isnan(self.rows)
        model = {
            "kept": self.kept,
            "rows": np.where(missing, np.float32(0), self.rows),
            "missing": missing,
            "labels": self.labels,
        }
        return Stored({"table": self.encoding.facts()}, dump(model))


class Prior:
    """Makes teachers that a network answers for; each depends only on its shard."""

    name = "prior"
    version = f"1, weights {DIGEST[:16]}"
    suffix = "safetensors"

    def fit(self, shard: Dataset, seed: int) -> PriorTeacher:
        """Return the teacher of a shard."""
        if not isinstance(shard.inputs, Table):
            raise SchemaError(f"prior teachers take tables, the data is {shard.inputs.schema()}")
        require_few(shard.classes)
        trained_network()  # a damaged installation shows before a campaign, not at its first vote
        order = _some(shard.labels, np.random.default_rng(seed).permutation(len(shard)))
        encoding = TableEncoding.fit(shard.inputs)
        rows, labels = cells(encoding, shard.inputs)[order], shard.labels[order]
        kept = _telling(rows, labels)
        return PriorTeacher(encoding, kept, np.ascontiguousarray(rows[:, kept]), labels)

    def restore(self, stored: Stored) -> PriorTeacher:
        """Return the teacher that was stored."""
        trained_network()
        encoding = TableEncoding.from_facts(stored.facts.get("table"))
        found = load(stored.model, ("kept", "rows", "missing", "labels"))
        kept, rows, labels = (found[name] for name in ("kept", "rows", "labels"))
        shapes = rows.ndim == 2 and rows.shape == found["missing"].shape
        if not shapes or labels.shape != rows.shape[:1] or kept.shape != rows.shape[1:]:
            raise DamagedTeacherError("the shapes of its records")
        width = sum(
            1 if isinstance(column, NumberColumn) else len(column.vocabulary)
            for column in encoding.columns
        )
        if len(np.unique(labels)) < 2 or (kept.size and not 0 <= kept.min() <= kept.max() < width):
            raise DamagedTeacherError("its classes or columns")
        filled = np.where(found["missing"].astype(bool), np.float32(np.nan), rows)
        return PriorTeacher(
            encoding, kept.astype(np.int64), filled.astype(np.float32), labels.astype(np.int64)
        )


def check_weights(content: bytes) -> None:
    """Check that a file has the weights that this version was measured with."""
    if (found := hashlib.sha256(content).hexdigest()) != DIGEST:
        raise DataError(
            f"the weights of model prior, {NAME}, have SHA-256 {found[:16]}… instead of {DIGEST[:16]}…: "
            "the installation is damaged; install the package again"
        )


@functools.cache
def trained_network() -> PriorNetwork:
    """Return the network with its weights, to answer only."""
    import torch
    from safetensors.torch import load as load_tensors

    from party.teachers.prior_network import PriorNetwork

    content = files(__package__).joinpath(NAME).read_bytes()
    check_weights(content)
    # Its first weights, which are replaced, would be drawn from PyTorch's global generator.
    with torch.random.fork_rng(devices=[]):
        made = PriorNetwork()
    made.load_state_dict(load_tensors(content))
    return made.eval().requires_grad_(requires_grad=False)


def require_few(classes: Sequence[str]) -> None:
    """Check that the network takes so many classes."""
    if len(classes) > MOST_CLASSES:
        raise UsageError(
            f"model prior takes at most {MOST_CLASSES} classes, the data has {len(classes)}; "
            "use auto, linear, forest, boosting or logistic"
        )


def cells(encoding: TableEncoding, inputs: Inputs) -> Floats:
    """Return (n, c) float32: a number as one cell, NaN if missing, a category as one for each value."""
    encoded = encoding.encode(inputs)
    kept, at = [], 0
    for column in encoding.columns:
        if isinstance(column, NumberColumn):
            encoded[encoded[:, at + 1] > 0, at] = np.nan
            kept.append(at)
            at += 2
        else:
            kept += range(at, at + len(column.vocabulary))
            at += len(column.vocabulary)
    return np.ascontiguousarray(encoded[:, kept])


def _some(labels: Labels, order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first records of an order: all, or of each class its share of the most, rounded up."""
    if len(order) <= _MOST_ROWS:
        return order
    found = []
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        found.append(of_class[: -(-len(of_class) * _MOST_ROWS // len(order))])
    return np.concatenate(found)


def _telling(rows: Floats, labels: Labels) -> NDArray[np.int64]:
    """Return the columns to read, in order: those that differ, at most the most telling ones."""
    filled = np.nan_to_num(rows, nan=0.0)
    missing = np.isnan(rows)
    differs = (filled != filled[:1]).any(axis=0) | (missing != missing[:1]).any(axis=0)
    kept = np.flatnonzero(differs)
    if len(kept) <= _MOST_COLUMNS:
        return kept
    present = ~missing[:, kept]
    some = filled[:, kept].astype(np.float64)
    mean = some.sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    some = (some - mean) * present
    named = (labels[:, None] == np.unique(labels)).astype(np.float64)
    named -= named.mean(axis=0)
    spread = np.sqrt(np.square(some).sum(axis=0)) + 1e-12
    telling = (np.abs(named.T @ some) / spread).max(axis=0)
    best = np.argsort(-telling, kind="stable")[:_MOST_COLUMNS]
    return np.sort(kept[best])


def _parts(has: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Return which records the network reads together: all, or equal parts with like shares."""
    count = -(-len(has) // _MOST_KNOWN)
    dealt = np.argsort(has, kind="stable")
    parts = [np.sort(dealt[start::count]) for start in range(count)]
    return [part for part in parts if has[part].any() and not has[part].all()]


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
