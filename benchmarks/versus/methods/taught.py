"""A private model of images that labels the public set, from which this project's student then learns.

What a private model says of public inputs is post-processing, so it costs nothing. It shows how much of this
project's figures of images is that of its student, a network that learns from public images without labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.papers.reference import output
from benchmarks.versus.method import TRIALS, Fitted, Method, Setting
from pate.data.values import Images
from student.trainers.base import Effort, Lesson
from student.trainers.choose import train

if TYPE_CHECKING:
    from benchmarks.versus.problem import Problem


def method(base: Method) -> Method:
    """Return a private method with a student of its labels."""
    public: dict[str, Problem] = {}

    def asked(problem: Problem) -> Problem:
        """Return the problem with the public set in the place of the test part."""
        if problem.name not in public:
            split = replace(problem.split, test=problem.split.public)
            public[problem.name] = replace(problem, split=split, _kinds={}, _whole={})
        return public[problem.name]

    def fit(problem: Problem, setting: Setting, epsilon: float | None, seed: int) -> Fitted:
        if seed in TRIALS:  # settings are chosen by the private model itself, which takes seconds
            return base.fit(problem, setting, epsilon, seed)
        # The same seed is the same model.
        said = base.fit(asked(problem), setting, epsilon, seed)
        inputs, split = problem.split.queries, problem.split
        lesson = Lesson(
            inputs,
            np.arange(len(inputs)),
            said.test.argmax(axis=1).astype(np.int64),
            split.private.classes,
        )
        student = train(lesson, seed=seed, effort=Effort(None))
        return Fitted(output(student, problem.validation), output(student, split.test), said.cost)

    return replace(
        base,
        name=f"{base.name}-taught",
        fit=fit,
        fits=lambda problem: isinstance(problem.split.private.inputs, Images),
    )
