"""Teachers of tables that choose their own model: boosted trees, a logistic one, or a forest.

A shard too small for a choice has a teacher of kind :mod:`prior <party.teachers.prior.teacher>`.
Each teacher chooses by cross-validation within its shard, independently of other shards. A common
choice would let one record change every teacher.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.linear import LinearTeacher
from party.teachers.logistic import Logistic
from party.teachers.prior.teacher import MOST_CLASSES, Prior, PriorTeacher
from party.teachers.protocol import DamagedTeacherError, Labels, Stored
from party.teachers.trees import Boosting, Forest, TreeTeacher

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.teachers.protocol import Kind, Teacher
    from pate.data.values import Dataset, Inputs

#: The candidate kinds; ties go to the first. The last is a forest, which must be better by a
#: standard error: forests of small shards are all biased to the frequent classes, and a vote over
#: many teachers averages out only their differences.
_KINDS: Final[tuple[Kind, ...]] = (Boosting(), Logistic(), Forest())
#: The kind of smaller shards, and all kinds.
_TINY: Final = Prior()
_EVERY: Final[tuple[Kind, ...]] = (*_KINDS, _TINY)
_FOLDS: Final = 3
#: With fewer rows, in total or of a second class, the cross-validation error is mostly noise.
_FEWEST_ROWS: Final = 60
_FEWEST_OF_A_CLASS: Final = 6


@dataclass(frozen=True, eq=False)
class ChosenTeacher:
    """A teacher and its kind.

    Attributes:
        kind: name of its kind.
        teacher: the teacher.
    """

    kind: str
    teacher: Teacher

    def predict(self, inputs: Inputs) -> Labels:
        """Return the class of each input.

        Raises:
            SchemaError: if the inputs are not of the kind that the teacher was fitted on.
        """
        return self.teacher.predict(inputs)

    def chances(self, inputs: Inputs) -> NDArray[np.float64]:
        """Return (n,) the probability of class 1 of two; see :class:`party.teachers.several.Sure`."""
        assert isinstance(self.teacher, TreeTeacher | LinearTeacher | PriorTeacher)  # noqa: S101 - of the candidate kinds
        return self.teacher.chances(inputs)

    def store(self) -> Stored:
        """Return the teacher as its kind does, with the kind's name."""
        stored = self.teacher.store()
        return Stored({"chosen": self.kind, "facts": stored.facts}, stored.model)


class Chosen:
    """Makes teachers of the kind with the least error on their shard."""

    name = "auto"
    suffix = "model"

    @property
    def version(self) -> str:
        """The versions of all candidate kinds."""
        return "2; " + "; ".join(f"{kind.name} {kind.version}" for kind in _EVERY)

    def fit(self, shard: Dataset, seed: int) -> ChosenTeacher:
        """Return the teacher of a shard.

        Raises:
            SchemaError: if the shard is not a table.
        """
        kind = choose(shard, seed)
        return ChosenTeacher(kind.name, kind.fit(shard, seed))

    def restore(self, stored: Stored) -> ChosenTeacher:
        """Return the teacher that was stored.

        Raises:
            DamagedTeacherError: if the bytes are not such a teacher.
        """
        facts = stored.facts.get("facts")
        for kind in _EVERY:
            if kind.name == stored.facts.get("chosen") and isinstance(facts, dict):
                return ChosenTeacher(kind.name, kind.restore(Stored(facts, stored.model)))
        raise DamagedTeacherError("the kind that it chose")


def choose(shard: Dataset, seed: int) -> Kind:
    """Return the kind with the least cross-validation error within the shard.

    Of a shard with too few rows to tell, it is ``prior``, or ``forest`` if the data has more classes
    than that takes.

    Args:
        shard: its records, of two classes or more.
        seed: of the folds, and of the candidate teachers.
    """
    sizes = np.sort(np.bincount(shard.labels))
    if len(shard) < _FEWEST_ROWS and len(shard.classes) <= MOST_CLASSES:
        return _TINY
    if len(shard) < _FEWEST_ROWS or sizes[-2] < _FEWEST_OF_A_CLASS:
        return _KINDS[-1]
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        # A class with fewer rows than folds is absent from one of them, which teachers support.
        warnings.simplefilter("ignore", UserWarning)
        splits = list(folds.split(np.zeros(len(shard)), shard.labels))
    wrong = [0] * len(_KINDS)
    for learnt, left in splits:
        learner, exam = shard.take(learnt), shard.take(left)
        for at, kind in enumerate(_KINDS):
            answers = kind.fit(learner, seed).predict(exam.inputs)
            wrong[at] += int((answers != exam.labels).sum())
    *others, forest = wrong
    least = min(others)
    spread = (least * (1 - least / len(shard))) ** 0.5
    return _KINDS[-1] if forest < least - spread else _KINDS[others.index(least)]
