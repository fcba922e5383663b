"""Teachers of several labels: one model a label, each of the same kind and of one shard.

A label is a question of two classes, those who lack it and those who have it. A label that all records of a
shard have, or none, has a constant model; a teacher without records predicts no label. Of more
predicted labels than count, the teacher casts the surest: by its models' own probabilities where they
have some, else by the order of names. All of it depends on the shard, its seed and the query.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.protocol import Constant, DamagedTeacherError, Stored, Sure, restored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.teachers.protocol import Kind, Labels, Teacher
    from pate.data.values import Dataset, Inputs

    Floats = NDArray[np.float64]

#: The two classes of each question.
_WITHOUT_AND_WITH: Final = ("0", "1")
_LACKS, _HAS = 0, 1


@dataclass(frozen=True, eq=False)
class SeveralTeacher:
    """A fitted teacher of several labels: one model each, which predicts 1 where an input has it."""

    models: tuple[Teacher, ...]

    def labels(self, inputs: Inputs, most: int) -> NDArray[np.bool_]:
        """Return (n, labels) bool: the labels cast for each input, at most ``most`` of them."""
        cast = np.stack([each.predict(inputs) == _HAS for each in self.models], axis=1)
        if (cast.sum(axis=1) <= most).all():
            return cast
        chances = np.stack([_chances(each, inputs) for each in self.models], axis=1)
        # Stable: of labels that are as sure the first ones count.
        order = np.argsort(-np.where(cast, chances, -1.0), axis=1, kind="stable")
        counted = np.zeros_like(cast)
        np.put_along_axis(counted, order[:, :most], values=True, axis=1)
        kept: NDArray[np.bool_] = cast & counted
        return kept

    def predict(self, inputs: Inputs) -> Labels:
        """Return the surest label of each input: for code that knows one class only."""
        first: Labels = np.argmax(self.labels(inputs, 1), axis=1).astype(np.int64)
        return first

    def store(self) -> Stored:
        """Return all models as bytes, one after the other."""
        each = [model.store() for model in self.models]
        facts: list[object] = [
            {"facts": one.facts, "bytes": len(one.model), "sha256": _digest(one.model)}
            for one in each
        ]
        return Stored({"several": facts}, b"".join(one.model for one in each))


class Several:
    """Makes teachers of several labels."""

    suffix = "several"

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    @property
    def name(self) -> str:
        """That of the models' kind, for several labels."""
        return f"several {self._kind.name}"

    @property
    def version(self) -> str:
        """That of the models' kind, and of this one."""
        return f"1; {self._kind.version}"

    def fit(self, shard: Dataset, seed: int) -> SeveralTeacher:
        """Return a teacher fitted on a shard of any labels, or of no records."""
        answers = shard.answers
        assert answers is not None  # noqa: S101 - of several labels
        models: list[Teacher] = []
        for at in range(len(shard.classes)):
            labels = answers[:, at].astype(np.int64)
            asked = replace(shard, labels=labels, classes=_WITHOUT_AND_WITH, answers=None)
            models.append(Constant.of(labels) or self._kind.fit(asked, seed))
        return SeveralTeacher(tuple(models))

    def restore(self, stored: Stored) -> SeveralTeacher:
        """Return the teacher that was stored."""
        listed = stored.facts.get("several")
        if not isinstance(listed, list) or not listed:
            raise DamagedTeacherError("its labels")
        models: list[Teacher] = []
        start = 0
        for each in listed:
            facts, size, model = _part(each, stored.model, start)
            start += size
            models.append(restored(self._kind, Stored(facts, model)))
        if start != len(stored.model):
            raise DamagedTeacherError("more bytes than its labels have")
        return SeveralTeacher(tuple(models))


def _part(each: object, whole: bytes, start: int) -> tuple[dict[str, object], int, bytes]:
    if isinstance(each, dict):
        facts, size = each.get("facts"), each.get("bytes")
        if isinstance(facts, dict) and type(size) is int and 0 <= size <= len(whole) - start:
            model = whole[start : start + size]
            if each.get("sha256") == _digest(model):
                return facts, size, model
    raise DamagedTeacherError("one of its labels")


def _digest(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()


def _chances(model: Teacher, inputs: Inputs) -> Floats:
    if isinstance(model, Sure):
        return model.chances(inputs)
    has: Floats = (model.predict(inputs) == _HAS).astype(np.float64)
    return has


def votes_of(
    members: Sequence[Teacher], inputs: Inputs, labels: int, most: int
) -> NDArray[np.int64]:
    """Return (n, labels) int64: how many teachers cast each label, at most ``most`` of each teacher."""
    votes = np.zeros((len(inputs), labels), dtype=np.int64)
    for member in members:
        assert isinstance(member, SeveralTeacher)  # noqa: S101 - of the kind above
        cast = member.labels(inputs, most)
        if cast.shape != votes.shape or (cast.sum(axis=1) > most).any():
            raise AssertionError("a teacher casts more labels than count")
        votes += cast
    return votes
