"""A student's session in a campaign: follow the labels, submit predictions, publish at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from pate.codes import code_of
from pate.data.values import Inputs, content_hash
from pate.errors import DataError, RefusedError, SchemaError
from pate.formats.labels import LabelRow, LabelSet, checked_statement
from student.arrivals import CampaignEnd, PublicSet, RoundEnd
from student.card import Provenance
from student.evaluation.evaluate import LabelledData, evaluated
from student.evaluation.fairness import coverage
from student.export import publish
from student.lesson import Lesson, Student, has_classes, learns_from_counts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.formats.noisy_counts import NoisyVotes
    from student.client import StudentClient
    from student.evaluation.evaluate import AnyEvaluation

#: Returns a student's accuracy on labelled inputs, from 0 to 1.
Measure: TypeAlias = Callable[[Student], float]
#: Trains a student for a round; the number varies the seed by round; 0 is the final training.
Trainer: TypeAlias = Callable[[Lesson, int], Student]
Say: TypeAlias = Callable[[str], None]
#: Why a campaign that has ended teaches nothing.
NO_LABELS: Final = (
    "the campaign ended without a single label: the vote was never clear enough, or the budget too "
    "small"
)


@dataclass(frozen=True)
class Published:
    """The result of a session."""

    files: tuple[str, ...]
    evaluation: AnyEvaluation | None  # on labelled public data, if there was any
    seconds: float


def identify(public: Inputs) -> PublicSet:
    """Return the identification of a public set in messages."""
    return PublicSet(content_hash(public), len(public), public.schema())


def follow(
    client: StudentClient,
    public: Inputs,
    train: Trainer,
    *,
    say: Say,
    measure: Measure | None = None,
    seen: Inputs | None = None,
) -> LabelSet:
    """Follow a campaign to its end and return all its labels with their privacy statement.

    At the end of each round that needs predictions, a student is trained on the labels so far and
    its probabilities for the whole public set are submitted. Repeating that after a restart is
    harmless: the server uses the first ones.

    ``measure`` returns a student's accuracy for the server's page; ``seen`` is the public set as the student
    takes it, if not as it is.
    """
    rows: list[LabelRow] = []
    for event in client.events():
        if isinstance(event, LabelRow):
            rows.append(event)
        elif isinstance(event, RoundEnd):
            say(f"round {event.round} has ended" + (f"; {len(rows)} labels so far" if rows else ""))
            # A late student need not submit predictions that the campaign no longer waits for.
            if event.wants_predictions and client.campaign().phase != "finished":
                number, classes = event.round + 1, client.campaign().classes
                student, said = predictions(public, rows, classes, number, train, seen=seen)
                accuracy = None if student is None or measure is None else measure(student)
                say(f"round {number}: {_submitted(client, number, said, accuracy)}")
        elif isinstance(event, CampaignEnd):
            given = event.labels_released
            say("the campaign has ended" + (f" with {given} labels" if given else ""))
    campaign = client.campaign()
    # Before the statement: once labels and statement are delivered, the server may stop.
    noisy = client.noisy_votes()
    if not rows and not learns_from_counts(noisy):
        raise DataError(NO_LABELS)
    return LabelSet(
        campaign=campaign.id,
        classes=campaign.classes,
        public_set=content_hash(public),
        queries=len(public),
        rows=tuple(rows),
        privacy=client.privacy_statement(),
        noisy=noisy,
    )


def _submitted(
    client: StudentClient, number: int, said: NDArray[np.float32], accuracy: float | None
) -> str:
    """Submit the predictions for a round; return in words what became of them."""
    try:
        had = client.submit(number, said, accuracy)
    except RefusedError:
        # The campaign may end during training.
        if client.campaign().phase != "finished":
            raise
        return "the campaign ended before the predictions were made"
    return f"predictions {'existed already' if had else 'submitted'}"


def predictions(
    public: Inputs,
    rows: Sequence[LabelRow],
    classes: tuple[str, ...],
    number: int,
    train: Trainer,
    *,
    seen: Inputs | None = None,
) -> tuple[Student | None, NDArray[np.float32]]:
    """Return a student of the labels so far, None without, and its probabilities for the public set."""
    if not rows:
        even = np.full((len(public), len(classes)), 1 / len(classes), dtype=np.float32)
        return None, even
    student = train(lesson(public, rows, classes), number)
    return student, student.predict_probabilities(public if seen is None else seen)


def lesson(
    public: Inputs,
    rows: Sequence[LabelRow],
    classes: tuple[str, ...],
    noisy: NoisyVotes | None = None,
    teachers: int = 0,
) -> Lesson:
    """Return labels for a trainer, in the order of their queries; see :class:`Lesson`."""
    ordered = sorted(rows)
    return Lesson(
        public,
        np.array([row.query for row in ordered], dtype=np.int64),
        np.array([row.label for row in ordered], dtype=np.int64),
        classes,
        noisy,
        teachers,
    )


def check_labels(labels: LabelSet, public: Inputs) -> None:
    """Refuse labels of another public set."""
    own = identify(public)
    if (labels.public_set, labels.queries) != (own.content_hash, own.queries):
        raise SchemaError(
            f"the labels are of a public set of {labels.queries} inputs with the hash "
            f"{labels.public_set.hex()[:12]}, this one has {own.queries} and "
            f"{own.content_hash.hex()[:12]}; give --public the same files as the server has"
        )
    if not labels.rows and not learns_from_counts(labels.noisy):
        raise DataError("the label file has no labels; export it after a release")


def teachers_of(labels: LabelSet) -> int:
    """Return how many teachers voted in one release; 0 for any other votes."""
    if labels.noisy is None or not code_of(labels.noisy.code).of_teachers:
        return 0
    teachers = checked_statement(labels.privacy).get("teachers")
    if type(teachers) is not int or teachers < 1:
        raise DataError("the privacy statement does not say how many teachers voted")
    return teachers


def graduate(
    labels: LabelSet,
    public: Inputs,
    train: Trainer,
    out: Path,
    *,
    facts: Mapping[str, object],
    name: str = "",
    test: LabelledData | None = None,
    encoder: Path | None = None,
    say: Say = lambda _: None,
    seen: Inputs | None = None,
) -> Published:
    """Train the final student on all labels of a campaign and publish it.

    ``facts`` about the training are for ``model.json`` and the card; ``encoder`` is the folder of the public
    set's; ``seen`` is the public set as the student takes it, if not as it is.
    """
    check_labels(labels, public)
    started = time.monotonic()
    student = train(
        lesson(public, labels.rows, labels.classes, labels.noisy, teachers_of(labels)), 0
    )
    seconds = time.monotonic() - started
    covered = None
    if has_classes(student):
        covered = coverage(student, public if seen is None else seen, labels.rows)
    evaluation = None if test is None else evaluated(student, test, coverage=covered)
    reinforced = sum(row.source == "reinforced" for row in labels.rows)
    provenance = Provenance(
        campaign=labels.campaign.hex(),
        name=name,
        public_set=labels.public_set.hex(),
        queries=labels.queries,
        from_teachers=len(labels.rows) - reinforced,
        reinforced=reinforced,
        learnt_from="" if labels.rows else labels.content_in_words,
        coverage=covered,
        training={"trainer": student.kind, **facts, "seconds": round(seconds, 1)},
    )
    files = publish(
        student,
        out,
        privacy=labels.privacy,
        provenance=provenance,
        evaluation=evaluation,
        encoder=encoder,
        say=say,
    )
    return Published(tuple(files), evaluation, seconds)
