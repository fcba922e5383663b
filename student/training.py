"""Training: the choice of a student for the inputs, and its two stages, chances and fit.

Students from other packages are plugins. A package declares an entry point in the group
``federated_pate.students``. It refers to a :class:`Plugin`: an object with three functions, possibly a
module.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import DataError, UsageError
from pate.runtime.plugins import STUDENTS, load_plugin, plugin_names
from student.lesson import Effort, silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.data.values import Inputs
    from student.chances.evidence import Chances
    from student.lesson import Lesson, Progress, Student

#: Trainers of convolutional networks, the default for all but tiny images first.
IMAGE_MODELS: Final = ("propagation", "vat", "pate-g")
#: Trainers for tables, the default first.
TABLE_MODELS: Final = ("selftraining", "smoothing")
#: Trainers for embeddings.
EMBEDDING_MODELS: Final = ("head",)
#: The one of a network that learns from the public images what votes over their embeddings say.
OWN_NETWORK: Final = "propagation"
#: What it needs.
NO_PIXELS: Final = (
    f"--model {OWN_NETWORK} learns from the public images themselves: name them with --public, and their "
    "encoder with --encoder"
)
#: Values of ``--model``.
MODELS: Final = ("auto", *IMAGE_MODELS, *TABLE_MODELS, *EMBEDDING_MODELS)

_FILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.[a-z0-9]{1,16}")
#: Files of a student's folder that a plugin must not write.
_OURS: Final = (
    "model.json", "privacy.json", "readme.md", "evaluation.json", "evaluation.png", "calibration.png",
)  # fmt: skip


def choose(model: str, inputs: Inputs) -> str:
    """Return the trainer for the inputs; UsageError for an unknown one, or one for other inputs."""
    suited: tuple[str, ...] = IMAGE_MODELS if isinstance(inputs, Images) else TABLE_MODELS
    if isinstance(inputs, Embeddings):
        suited = (*EMBEDDING_MODELS, OWN_NETWORK)
    if model not in MODELS:
        if model not in (others := plugin_names(STUDENTS)):
            known = ", ".join(("auto", *suited, *others))
            raise UsageError(f"there is no model {model!r}; choose {known}")
        return model
    if model not in ("auto", *suited):
        choice = " or ".join(suited)
        raise UsageError(f"--model {model} does not take {inputs.schema()}; choose {choice}")
    if model != "auto":
        return model
    return suited[0]


def train(
    lesson: Lesson,
    *,
    model: str = "auto",
    seed: int,
    device: str = "auto",
    effort: Effort | None = None,
    progress: Progress = silent,
) -> Student:
    """Train the student that suits the inputs; ``progress`` begins anew with each stage."""
    chosen = choose(model, lesson.public)
    lesson, effort = _learnable(lesson, chosen), effort or Effort()
    if chosen not in MODELS:
        return plugged(chosen).train(
            lesson, seed=seed, device=device, effort=effort, progress=progress
        )
    if chosen in ("vat", "pate-g"):
        from student.chances.evidence import labelled

        return _network(lesson, chosen, labelled(lesson), seed, device, effort, progress)
    from student.chances.evidence import chances_of
    from student.fit.rows import encoding_of, fit_rows

    if isinstance(lesson.public, Images):
        (found,) = chances_of(lesson, None, seed=seed)
        return _network(lesson, chosen, found, seed, device, effort, progress)
    encoding = encoding_of(lesson.public)
    rows = encoding.encode(lesson.public)
    asked = chances_of(lesson, rows, seed=seed, smoothed=chosen == "smoothing", progress=progress)
    if chosen == OWN_NETWORK:
        return _network(lesson, chosen, _filled(asked[0]), seed, device, effort, progress)
    return fit_rows(lesson, encoding, rows, asked, seed=seed, effort=effort, progress=progress)


def _learnable(lesson: Lesson, chosen: str) -> Lesson:
    """Return what a model learns of a lesson; DataError if that is nothing."""
    by_rows = chosen in (*TABLE_MODELS, *EMBEDDING_MODELS)
    if lesson.noisy is not None and not by_rows:
        answer = code_of(lesson.noisy.code).answer
        if not answer.one_hot:
            raise DataError(
                f"counts of the answer {answer} are learnt from tables and embeddings only: give images as "
                "a table of features, or with an encoder and --model head"
            )
    # Of teachers' counts a network learns the labels: records of others did not vote at its images.
    counted = lesson.noisy is not None and lesson.noisy.of_teachers and not lesson.noisy.of_arrays
    if counted and isinstance(lesson.public, Images):
        if not len(lesson.labels):
            raise DataError(
                f"--model {chosen} learns from labels, and no noisy count leads clearly: more epsilon, or "
                "--release arrays"
            )
        lesson = replace(lesson, noisy=None)
    if not len(lesson.labels) and not by_rows and chosen != OWN_NETWORK:
        raise DataError(
            f"--model {chosen} learns from labels, and none were released; "
            f"{choose('auto', lesson.public)} learns from the released counts"
        )
    if chosen == OWN_NETWORK and lesson.pixels is None and not isinstance(lesson.public, Images):
        raise UsageError(NO_PIXELS)
    return lesson


def _network(
    lesson: Lesson,
    chosen: str,
    given: Chances,
    seed: int,
    device: str,
    effort: Effort,
    progress: Progress,
) -> Student:
    """Return a network of images, fitted to chances of them, or of their embeddings; it needs no encoder."""
    from student.fit.images import fit_images
    from student.fit.papers import fit_paper

    images = lesson.public if lesson.pixels is None else lesson.pixels
    assert isinstance(images, Images)  # noqa: S101  # a model of images was chosen
    fit = fit_images if chosen == OWN_NETWORK else partial(fit_paper, chosen)
    return fit(
        images, given, lesson.classes, seed=seed, device=device, effort=effort, progress=progress
    )


def _filled(given: Chances) -> Chances:
    """Return chances whose rows have the sum one, also where nothing is known."""
    positive = given.matrix.clip(0.0) + 1e-12
    return replace(given, matrix=positive / positive.sum(axis=1, keepdims=True))


class Plugin(Protocol):
    """The interface of an entry point."""

    def train(
        self, lesson: Lesson, *, seed: int, device: str, effort: Effort | None, progress: Progress
    ) -> Student:
        """Return a student whose ``kind`` is the plugin's name.

        Args:
            lesson: what to learn from.
            seed: of every random choice.
            device: ``auto``, ``cpu`` or ``cuda``.
            effort: how long, None for what suits the inputs.
            progress: called as it goes.

        Raises:
            UsageError: for inputs that it does not take.
        """

    def store(self, student: Student) -> Mapping[str, bytes]:
        """Return the student as files, by name; never as a pickle."""

    def restore(self, files: Mapping[str, bytes], classes: tuple[str, ...], schema: str) -> Student:
        """Return the student that was stored.

        Raises:
            DataError: if the files are not one. They may come from anywhere.
        """


def is_plugged(kind: str) -> bool:
    """Return whether an installed package offers a trainer of that name."""
    return kind in plugin_names(STUDENTS)


def plugged(name: str) -> Plugin:
    """Return the plugin of that name; UsageError if there is none, or it is not a trainer."""
    found = load_plugin(STUDENTS, name)
    for part in ("train", "store", "restore"):
        if not callable(getattr(found, part, None)):
            raise UsageError(f"plugin {name!r} has no function {part}()")
    return cast("Plugin", found)


def check_files(name: str, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return what a plugin's ``store`` returned; DataError if it may not be in a student's folder."""
    for file, content in files.items():
        if not _FILE.fullmatch(file) or file in _OURS:
            raise DataError(f"plugin {name!r} stores a file called {file!r}: choose a plain name")
        if not isinstance(content, bytes):
            raise DataError(f"plugin {name!r} stores {type(content).__name__}, not bytes")
    return files
