"""A student: means of the labelled public inputs. The module itself is the plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearest_mean.teachers import flat, nearest
from pate.data.values import Inputs
from pate.errors import DataError
from student.lesson import Effort, Lesson, Progress, Student

_FILE = "means.json"


@dataclass(frozen=True, eq=False)
class MeansStudent:
    """A classifier by the nearest of as many means as there are classes."""

    classes: tuple[str, ...]
    schema: str
    means: NDArray[np.float64]
    kind: str = "nearest-mean"

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return probabilities that fall with the squared distance."""
        scores = -nearest(flat(inputs), self.means)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares: NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True)
        return shares.astype(np.float32)

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        """Return the most probable class of each input."""
        chosen: NDArray[np.int64] = self.predict_probabilities(inputs).argmax(axis=1)
        return chosen


def train(
    lesson: Lesson, *, seed: int, device: str, effort: Effort | None, progress: Progress
) -> MeansStudent:
    """Return a student; a class without a label gets the mean of all public inputs."""
    del seed, device, effort
    rows = flat(lesson.public)
    means = np.tile(rows.mean(axis=0), (len(lesson.classes), 1))
    for label in np.unique(lesson.labels):
        means[label] = rows[lesson.queries[lesson.labels == label]].mean(axis=0)
    progress(1, 1, float("nan"))
    return MeansStudent(lesson.classes, lesson.public.schema(), means)


def store(student: Student) -> Mapping[str, bytes]:
    """Return the means as JSON."""
    if not isinstance(student, MeansStudent):
        raise TypeError(f"not a student of this plugin: {type(student).__name__}")
    return {_FILE: json.dumps(student.means.tolist()).encode()}


def restore(files: Mapping[str, bytes], classes: tuple[str, ...], schema: str) -> MeansStudent:
    """Return the stored student."""
    try:
        means = np.array(json.loads(files[_FILE]), dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{_FILE} does not hold means") from error
    if means.ndim != 2 or len(means) != len(classes) or not np.isfinite(means).all():
        raise DataError(f"{_FILE} does not hold a mean for each of {len(classes)} classes")
    return MeansStudent(classes, schema, means)
