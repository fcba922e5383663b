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
    from collections.abc import Iterator, Sequence

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
                :class:`party.teachers.constant.Constant`.
            classes: length of the class list that their answers index.
            inputs: n queries.

        Raises:
            SchemaError: if the inputs are not of the kind that the teachers were fitted on.
        """
