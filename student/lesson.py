"""What a student learns from, and what it is: the interface of all trainers, plugins included."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from pate.answers import CLASS, ORDERED
from pate.codes import code_of
from pate.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Images, Inputs
    from pate.formats.noisy_counts import NoisyVotes

#: Called with (step, total, loss) during training. The loss is NaN if there is none.
Progress: TypeAlias = Callable[[int, int, float], None]


def silent(step: int, total: int, loss: float) -> None:
    """Ignore progress."""


def by_model(progress: Progress, number: int) -> Callable[[], None]:
    """Return what to call after each model, or fit of one, of a training that has so many.

    They take times of their own, but a minute without a sign looks like a standstill.
    """
    done = itertools.count(1)
    progress(0, number, math.nan)
    return lambda: progress(next(done), number, math.nan)


@dataclass(frozen=True)
class Effort:
    """Training effort.

    Attributes:
        steps: optimisation steps (images) or trees per forest (tables); None for a default that
            suits the inputs.
        seconds: stop early after this long; None for no limit. If the limit is reached, the result
            depends on the machine and is not reproducible from its seed.
    """

    steps: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Lesson:
    """Training data of a student: public inputs, of which a few have labels.

    Attributes:
        public: n inputs.
        queries: (l,) int64, distinct rows of ``public`` that have a label; none if the noisy votes are
            of several labels, or of a number.
        labels: (l,) int64, indices into ``classes``; a few may be wrong.
        classes: class names, at least two.
        noisy: the released noisy votes behind the labels, if any, including queries without a
            label.
        teachers: how many voted in one release; 0 for any other votes.
        pixels: the n public images themselves, if ``public`` are their embeddings and a network learns
            from them.
    """

    public: Inputs
    queries: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    noisy: NoisyVotes | None = None
    teachers: int = 0
    pixels: Images | None = None

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(f"a student needs at least two classes, got {self.classes}")
        if self.queries.shape != self.labels.shape or self.queries.ndim != 1:
            raise DataError(f"{self.queries.shape} queries but {self.labels.shape} labels")
        if not len(self.queries):
            if not learns_from_counts(self.noisy):
                raise DataError("there are no labels to learn from; wait for a release")
        elif not 0 <= self.queries.min() <= self.queries.max() < len(self.public):
            raise DataError(f"a labelled query is outside the {len(self.public)} public inputs")
        if len(np.unique(self.queries)) != len(self.queries):
            raise DataError("a query has two labels")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise DataError(f"a label is outside the {len(self.classes)} classes")
        if self.noisy is not None:
            if self.noisy.counts.shape[1] != len(self.classes):
                raise DataError(f"noisy votes of {self.noisy.counts.shape[1]} classes")
            if len(self.noisy.queries) and self.noisy.queries[-1] >= len(self.public):
                raise DataError(f"a noisy vote is outside the {len(self.public)} public inputs")
        if self.pixels is not None and len(self.pixels) != len(self.public):
            raise DataError(f"{len(self.pixels)} images of {len(self.public)} public inputs")
        self.queries.setflags(write=False)
        self.labels.setflags(write=False)


def learns_from_counts(noisy: NoisyVotes | None) -> bool:
    """Return whether a student learns from noisy counts where there is no label."""
    if noisy is None:
        return False
    return noisy.dense or noisy.of_teachers or not code_of(noisy.code).answer.one_hot


def answer_in(student: Student) -> str:
    """Return the text of a student's answer; those of images and of plugins know classes only."""
    return str(getattr(student, "answer", CLASS))


def has_classes(student: Student) -> bool:
    """Return whether a student predicts one class; those of tables may predict labels, or a number."""
    return bool(getattr(student, "has_classes", True))


def decided(answer: str, probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return (n,) the predicted class of each row.

    It is the most probable one; of ordered classes the median, which has the least expected distance
    from the true one.

    Args:
        answer: text of a student's :class:`~pate.answers.Answer`.
        probabilities: (n, m).
    """
    if answer == ORDERED:
        half = probabilities.sum(axis=1, keepdims=True) / 2
        return np.asarray((probabilities.cumsum(axis=1) >= half - 1e-6).argmax(axis=1))
    return np.asarray(probabilities.argmax(axis=1))


class Student(Protocol):
    """A trained classifier of one kind of inputs."""

    @property
    def kind(self) -> str:
        """Return the trainer's name, as in ``model.json``."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names, in the order of the columns of the probabilities."""

    @property
    def schema(self) -> str:
        """Return the schema line of the accepted inputs, in the form of ``Inputs.schema``."""

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, classes) probabilities; each row sums to 1.

        Raises:
            SchemaError: if the inputs are not of the kind that it was trained on.
        """

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        """Return (n,) indices into the classes."""
