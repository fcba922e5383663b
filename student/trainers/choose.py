"""The choice of a trainer for the inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import DataError, UsageError
from pate.runtime.plugins import STUDENTS, plugin_names
from student.trainers.base import Effort, Lesson, Progress, silent
from student.trainers.plugged import plugged

if TYPE_CHECKING:
    from pate.data.values import Inputs
    from student.trainers.base import Student

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


def choose(model: str, inputs: Inputs) -> str:
    """Return the trainer for the inputs.

    Raises:
        UsageError: for an unknown trainer, or one for other inputs.
    """
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
    """Train the student that suits the inputs.

    Args:
        lesson: what to learn from.
        model: one of :data:`MODELS`, or the name of a plugin (:mod:`student.trainers.plugged`).
        seed: of every random choice.
        device: ``auto``, ``cpu`` or ``cuda``; tables and embeddings are always trained on the CPU.
        effort: how long.
        progress: called as it goes.

    Raises:
        UsageError: if the model does not take the inputs, or the device is not here.
        DataError: if it does not learn the answer that the counts have.
    """
    chosen = choose(model, lesson.public)
    if lesson.noisy is not None and chosen not in (*TABLE_MODELS, *EMBEDDING_MODELS):
        answer = code_of(lesson.noisy.code).answer
        if not answer.one_hot:
            raise DataError(
                f"counts of the answer {answer} are learnt from tables and embeddings only: give images as "
                "a table of features, or with an encoder and --model head"
            )
    # Of teachers' counts a network learns the labels: records of others did not vote at its images.
    if lesson.noisy is not None and lesson.noisy.of_teachers and isinstance(lesson.public, Images):
        if not len(lesson.labels):
            raise DataError(
                f"--model {chosen} learns from labels, and no noisy count leads clearly: more epsilon, or "
                "--release arrays over an encoder's rows"
            )
        lesson = replace(lesson, noisy=None)
    counted = (*TABLE_MODELS, *EMBEDDING_MODELS, OWN_NETWORK)
    if not len(lesson.labels) and chosen not in counted:
        raise DataError(
            f"--model {chosen} learns from labels, and none were released; "
            f"{choose('auto', lesson.public)} learns from the released counts"
        )
    if chosen not in MODELS:
        return plugged(chosen).train(
            lesson, seed=seed, device=device, effort=effort, progress=progress
        )
    if chosen in ("selftraining", "head"):
        from student.trainers import selftraining

        return selftraining.train(lesson, seed=seed, effort=effort, progress=progress)
    if chosen == "smoothing":
        from student.trainers import selftraining

        smoothed = selftraining.Settings(smoothed=True)
        return selftraining.train(
            lesson, seed=seed, effort=effort, settings=smoothed, progress=progress
        )
    from student.trainers import pate_g, propagation, vat

    if isinstance(lesson.public, Embeddings):
        return _own_network(lesson, seed, device, effort, progress)
    module = {"propagation": propagation, "vat": vat, "pate-g": pate_g}[chosen]
    trained: Student = module.train(
        lesson, seed=seed, device=device, effort=effort, progress=progress
    )
    return trained


def _own_network(
    lesson: Lesson, seed: int, device: str, effort: Effort | None, progress: Progress
) -> Student:
    """Return a network taught by the soft labels that a head would be fitted to; it needs no encoder."""
    from student.trainers import propagation
    from student.trainers.head import head_chances
    from student.trainers.labels import ONLY_NOISE

    if lesson.pixels is None:
        raise UsageError(NO_PIXELS)
    chances = head_chances(lesson, seed)
    if chances is None and not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    # Without a label the counts are all there is; the network sees only what the head makes of them.
    noisy = None if len(lesson.labels) else lesson.noisy
    seen = Lesson(lesson.pixels, lesson.queries, lesson.labels, lesson.classes, noisy)
    return propagation.train(
        seen,
        seed=seed,
        device=device,
        effort=effort,
        progress=progress,
        chances=chances,
    )
