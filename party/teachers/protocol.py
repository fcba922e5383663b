"""The interface of teachers.

Everything that a teacher learns, down to the scaling of a column, comes from its own shard; shared
parts are fixed independently of the data. Otherwise one record could change many votes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pate.data.values import Dataset, Inputs

#: (n,) int64, indices into the class list of the data that the teacher was fitted on.
Labels: TypeAlias = NDArray[np.int64]

#: The rows of one shard, (n,) int64, and the 63 bits that decide its teacher's randomness.
Shard: TypeAlias = tuple[NDArray[np.int64], int]

#: Answer of :meth:`Teacher.predict` for a teacher that has learnt nothing.
NO_OPINION = -1


class DamagedTeacherError(Exception):
    """A damaged stored teacher, to be trained again."""


@dataclass(frozen=True)
class Stored:
    """A teacher as bytes.

    Attributes:
        facts: JSON values: text, numbers, lists and objects of them.
        model: content in the model's own format.
    """

    facts: dict[str, object]
    model: bytes


class Teacher(Protocol):
    """A fitted model."""

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input, or :data:`NO_OPINION`.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """

    def store(self) -> Stored:
        """Return the teacher as bytes, without pickle."""


class Kind(Protocol):
    """A way to make teachers."""

    @property
    def name(self) -> str:
        """The kind's name for users."""

    @property
    def version(self) -> str:
        """A version that changes when teachers of this kind would change."""

    @property
    def suffix(self) -> str:
        """File suffix of the stored model."""

    def fit(self, shard: Dataset, seed: int) -> Teacher:
        """Return a teacher fitted on a shard of two classes or more.

        Args:
            shard: its records; some classes of the list may be absent.
            seed: 63 bits that decide all its randomness.
        """

    def restore(self, stored: Stored) -> Teacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """


@runtime_checkable
class FitsTogether(Protocol):
    """Additional interface of a kind that fits many teachers faster together."""

    def fit_many(self, data: Dataset, shards: Sequence[Shard]) -> Iterator[Teacher]:
        """Yield a teacher for each shard, in order.

        Each is what :meth:`Kind.fit` returns for ``data.take(rows)`` and the seed, but for
        rounding, which must not depend on the records of another shard either. It yields as early
        as possible, since a teacher is stored when it is yielded.

        Args:
            data: the party's records.
            shards: which rows each teacher learns from, and its seed. Shards of one class or none
                are included, so that batches do not depend on the records; their teachers are
                unused.
        """


@runtime_checkable
class AnswersTogether(Protocol):
    """Additional interface of a kind whose teachers answer faster together."""

    def predict_many(
        self, members: Sequence[Teacher], classes: int, inputs: Inputs
    ) -> NDArray[np.int64]:
        """Return (members, n) int64: what each member's own ``predict`` returns, but for rounding.

        The rounding of one member's scores must not depend on another member: at a tie, one record
        could otherwise change votes of teachers that have never seen it.

        Args:
            members: all teachers of an ensemble, by number; some may be of another class, such as
                :class:`Constant`.
            classes: length of the class list that their answers index.
            inputs: n queries.

        Raises:
            SchemaError: if the inputs are not of the kind that the teachers were fitted on.
        """


@runtime_checkable
class Sure(Protocol):
    """Additional interface of a teacher of two classes that says how sure it is."""

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) float64 from 0 to 1: its probability that an input has class 1."""


@dataclass(frozen=True)
class Constant:
    """The teacher of a shard with one class, which it always answers, or without records.

    A party declares k teachers independently of its data, and each row of its votes sums to k. So
    an empty shard has a teacher, too. It answers :data:`NO_OPINION`, and its vote goes to a class
    that only the party's key and the teacher's number decide: such votes spread over the classes,
    and depend on no record.

    Attributes:
        label: the class, or :data:`NO_OPINION`.
    """

    label: int

    @classmethod
    def of(cls, labels: Labels) -> Constant | None:
        """Return the teacher of a shard with at most one class, else None.

        Args:
            labels: (n,) of the shard's records.
        """
        present = np.unique(labels).tolist()
        if len(present) > 1:
            return None
        return cls(present[0] if present else NO_OPINION)

    def predict(self, inputs: Inputs) -> Labels:
        """Return the same class for each input."""
        return np.full(len(inputs), self.label, dtype=np.int64)

    def store(self) -> Stored:
        """Return the class as JSON."""
        return Stored({"constant": self.label}, b"")


def restored(kind: Kind, stored: Stored) -> Teacher:
    """Return the teacher of a kind that was stored, or the constant one that stands for it.

    Raises:
        DamagedTeacherError: if the bytes are neither.
    """
    label = stored.facts.get("constant")
    return Constant(label) if isinstance(label, int) else kind.restore(stored)


def dump(arrays: Mapping[str, NDArray[np.generic]]) -> bytes:
    """Return named arrays as one safetensors file."""
    from safetensors.numpy import save

    content: bytes = save({name: np.ascontiguousarray(loaded) for name, loaded in arrays.items()})
    return content


def load(content: bytes, names: Sequence[str] | None) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of a safetensors file, which must be exactly those named if any are.

    Raises:
        DamagedTeacherError: if it is not such a file, or has NaN.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    try:
        loaded: dict[str, NDArray[np.generic]] = load_arrays(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedTeacherError("its tensors cannot be read") from error
    if names is not None and loaded.keys() != set(names):
        raise DamagedTeacherError("the names of its tensors")
    if not all(np.isfinite(array.astype(np.float64)).all() for array in loaded.values()):
        raise DamagedTeacherError("its tensors have NaN")
    return loaded


class NotConformingError(AssertionError):
    """A kind of teachers violates a rule; the message names it."""


def check_kind(kind: Kind, shard: Dataset, queries: Inputs) -> None:
    """Check a kind of teachers on one shard, for authors of plugins; it is fitted twice.

    The shard has labelled records of two classes or more; queries are two or more, of the same schema.

    Raises:
        NotConformingError: naming the violated rule.
    """
    teacher = kind.fit(shard, seed=1)
    votes = teacher.predict(queries)
    if votes.shape != (len(queries),) or votes.dtype != np.int64:
        raise NotConformingError(f"predict returns (n,) int64, not {votes.shape} {votes.dtype}")
    if not np.all((votes >= NO_OPINION) & (votes < len(shard.classes))):
        raise NotConformingError("predict returns indices into the class list, or NO_OPINION")
    single = [teacher.predict(queries.take(np.array([row]))) for row in range(len(queries))]
    for again, rule in (
        (kind.fit(shard, seed=1).predict(queries), "a seed decides everything"),
        (np.concatenate(single), "a query's vote depends on only that query"),
        (kind.restore(teacher.store()).predict(queries), "a stored teacher votes as it did"),
    ):
        if not np.array_equal(again, votes):
            raise NotConformingError(rule)
