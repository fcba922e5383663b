"""Constant teacher, for a shard with one class or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from party.teachers.protocol import NO_OPINION, Labels, Stored

if TYPE_CHECKING:
    from pate.data.values import Inputs


@dataclass(frozen=True)
class Constant:
    """Answers the only class of its shard, or nothing if the shard is empty.

    A party declares k teachers independently of its data, and each row of its votes sums to k. So
    an empty shard has a teacher, too. It answers :data:`NO_OPINION`, and the ensemble gives its
    vote to a class chosen only by the party's key and the teacher's number: such votes spread over
    the classes, and depend on no record.

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
