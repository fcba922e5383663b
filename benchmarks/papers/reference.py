"""Models without privacy, trained on the pooled records of all parties: the best of three by validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from benchmarks import measure, standard_models
from benchmarks.standard_models import Fitted, Floats, Lesson
from pate.data.embeddings import Embeddings
from pate.data.values import Images, Table
from pate.features.space import space_over
from student.trainers.encoding import learn_encoding
from student.trainers.selftraining import TableStudent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.papers.split import Split
    from pate.data.values import Dataset, Inputs
    from student.trainers.base import Progress, Student

#: One unit in this many chooses a model's own parameters, or stops its training.
_HELD: Final = 10
#: Networks of this many seeds are trained where there are few images.
_SEEDS: Final = 3
_FEW: Final = 10_000
_STRENGTHS: Final = tuple(10.0**power for power in range(-7, 0))
#: Scores of a model by seed, for the validation records and for the test records.
Scores: TypeAlias = Sequence[tuple[Floats, Floats]]


def output(student: Student, test: Dataset) -> Floats:
    """Return what a student says of records.

    Returns:
        Of classes (n, classes) probabilities in the order of the records' classes; of several labels
        (n, labels); of a number (n, 2): predictions and means.
    """
    if test.kind == "number":
        assert isinstance(student, TableStudent)  # no other student has such answers
        return np.stack(student.predict_numbers(test.inputs), axis=1)
    found = student.predict_probabilities(test.inputs)
    return found[:, [student.classes.index(name) for name in test.classes]]


def judge(student: Student, test: Dataset) -> dict[str, float]:
    """Return the figures of a student on test records, by name (:func:`benchmarks.measure.figures_of`)."""
    return measure.judged(output(student, test), test)


def pooled(
    split: Split, *, figure: str, seed: int, progress: Progress, steps: int | None = None
) -> dict[str, float | str]:
    """Return the figures of the best of three standard models, trained without privacy.

    The data's validation records choose; where there are none, the labels of the public part, which no
    model learns from. Test labels choose nothing.

    Args:
        split: of the row.
        figure: that chooses, a name of :func:`benchmarks.measure.figures_of`.
        seed: of all randomness.
        progress: called after every step of a network.
        steps: of a network's training; None: according to the number of images.

    Returns:
        As :func:`choice`.
    """
    validation = split.public if split.validation is None else split.validation
    models: dict[str, Scores] = {}
    if isinstance(split.private.inputs, Images):
        models |= _networks(split, validation, seed, progress, steps)
        space = space_over(split.queries, "scattering")
        encode = space.embed
        fits = {
            "ridge regression on scattering features": _ridge,
            "a perceptron on scattering features": standard_models.perceptron,
        }
    elif isinstance(split.private.inputs, Table):
        encode = learn_encoding(split.private.inputs).encode
        fits = dict(standard_models.FOR_TABLES)
    else:
        encode = _points
        fits = dict(standard_models.FOR_EMBEDDINGS)
    private = split.private
    lesson = Lesson(
        encode(private.inputs),
        measure.truth_of(private),
        private.kind,
        len(private.classes),
        _held(private, seed),
        seed,
    )
    parts = encode(validation.inputs), encode(split.test.inputs)
    for name, fit in fits.items():
        model = fit(lesson)
        models[name] = [(model(parts[0]), model(parts[1]))]
    return choice(models, validation, split.test, figure=figure)


def choice(
    models: Mapping[str, Scores], validation: Dataset, test: Dataset, *, figure: str
) -> dict[str, float | str]:
    """Return the figures on test records of the model that is best on validation records.

    Args:
        models: scores by name; on a tie the first.
        validation: records that no model learned from.
        test: records.
        figure: that chooses; of an error less is better.

    Returns:
        Its figures by name, means over its seeds, with their 95 % intervals under ``low.`` and ``high.``;
        its name under ``model``; the best test figure of the others under ``other.`` with the figure's
        name, and all that the choice rests on in one line under ``chosen``.
    """
    figures, sign = measure.figures_of(test), -1.0 if figure in measure.ERRORS else 1.0
    scale, mark = (1, "") if figure in measure.PLAIN else (100, " %")
    digits = 2 if mark else 3
    found = {
        name: tuple(
            float(np.mean([figures[figure](pair[at], measure.truth_of(part)) for pair in scores]))
            for at, part in ((0, validation), (1, test))
        )
        for name, scores in models.items()
    }
    best = max(found, key=lambda name: sign * found[name][0])
    told: dict[str, float | str] = {"model": best}
    for name, of in figures.items():
        known = measure.estimate(of, [on_test for _, on_test in models[best]], test)
        told |= {name: known.mean, f"low.{name}": known.low, f"high.{name}": known.high}
    others = [on_test for name, (_, on_test) in found.items() if name != best]
    if others:
        told[f"other.{figure}"] = max(others, key=lambda value: sign * value)
    words = "; ".join(
        f"{name} {scale * there:.{digits}f}{mark} there and {scale * on_test:.{digits}f}{mark} on test"
        for name, (there, on_test) in found.items()
    )
    name = figure.replace("_", " ")
    told["chosen"] = f"by {name} on {len(validation):,} validation records: {words}"
    return told


def _networks(
    split: Split, validation: Dataset, seed: int, progress: Progress, steps: int | None
) -> dict[str, Scores]:
    """Train the student's network with every label; return its scores as trained and calibrated."""
    from benchmarks.papers import network_reference

    seeds = _SEEDS if len(split.private) < _FEW else 1
    plain, calibrated = [], []
    for number in range(seeds):

        def move(step: int, total: int, loss: float, before: int = number) -> None:
            progress(before * total + step, seeds * total, loss)

        network = network_reference.train(
            split.private, seed=seed + number, progress=move, steps=steps
        )
        plain.append((output(network, validation), output(network, split.test)))
        network_reference.calibrate(network, split.private)
        calibrated.append((output(network, validation), output(network, split.test)))
    name = "the student's network, with every label"
    return {name: plain, f"{name}, calibrated": calibrated}


def _ridge(lesson: Lesson) -> Fitted:
    """Fit least squares on targets of +1 and -1; the held rows choose the regularisation."""
    from scipy.linalg import cho_factor, cho_solve

    signs = 2.0 * (lesson.truth[:, None] == np.arange(lesson.classes)) - 1.0
    gram, target = _moments(lesson.rows[~lesson.held], signs[~lesson.held])
    held_gram, held_target = _moments(lesson.rows[lesson.held], signs[lesson.held])
    # In units of the mean squared feature: independent of the space and number of records.
    unit = float(np.trace(gram)) / len(gram)

    def solve(strength: float, left: Floats, right: Floats) -> Floats:
        factor = cho_factor(left + strength * unit * np.eye(len(left)))
        return np.asarray(cho_solve(factor, right))

    known, labels = _with_one(lesson.rows[lesson.held]), lesson.truth[lesson.held]

    def right(strength: float) -> float:
        return float(((known @ solve(strength, gram, target)).argmax(axis=1) == labels).mean())

    best = max(_STRENGTHS, key=right)
    weights = solve(best, gram + held_gram, target + held_target)
    return lambda rows: _with_one(rows) @ weights


def _moments(rows: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """Return X'X and X'Y of rows X with a constant column; a few thousand at a time bound memory."""
    width = rows.shape[1] + 1
    gram, target = np.zeros((width, width)), np.zeros((width, targets.shape[1]))
    for start in range(0, len(rows), 4_096):
        some = _with_one(rows[start : start + 4_096]).astype(np.float64)
        gram += some.T @ some
        target += some.T @ targets[start : start + 4_096]
    return gram, target


def _with_one(rows: Floats) -> Floats:
    return np.hstack([rows, np.ones((len(rows), 1), dtype=rows.dtype)])


def _points(inputs: Inputs) -> Floats:
    assert isinstance(inputs, Embeddings)  # the caller asked
    return inputs.points()


def _held(data: Dataset, seed: int) -> NDArray[np.bool_]:
    """Return a tenth of the units, by row."""
    units = np.arange(len(data)) if data.groups is None else data.groups
    number = np.unique(units, return_inverse=True)[1]
    chosen = np.random.default_rng(seed).permutation(int(number.max()) + 1) % _HELD == 0
    return np.asarray(chosen[number])
