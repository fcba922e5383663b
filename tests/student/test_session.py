from __future__ import annotations

import json
from pathlib import Path

import grpc
import numpy as np
import pytest

from pate.data.values import Inputs
from pate.errors import DataError, RefusedError, SchemaError
from pate.formats.labels import LabelRow, LabelSet
from protos.pate.v1 import student_pb2 as wire
from student import weights
from student.evaluation.evaluate import Evaluation, LabelledData
from student.lesson import Effort, Lesson, Student
from student.session import Measure, check_labels, follow, graduate, identify, lesson
from tests.support.student_samples import (
    PRIVACY,
    ScriptedServer,
    accuracy,
    campaign_end,
    connected,
    label,
    round_end,
    taught_rows,
    tumours,
)


class Teaching:
    """Trains quickly and remembers what it was given."""

    def __init__(self) -> None:
        self.lessons: list[tuple[int, int]] = []

    def __call__(self, lesson: Lesson, number: int) -> Student:
        self.lessons.append((number, len(lesson.queries)))
        return taught_rows(lesson, seed=number, effort=Effort(steps=10))


def script(first: int, second: int) -> list[wire.LabelEvent]:
    """Return labels of two rounds, true ones, with predictions wanted between them."""
    public, _ = tumours()
    truth = public.labels.tolist()
    events = [label(at + 1, at, truth[at]) for at in range(first)]
    events.append(round_end(first + 1, 1, wants=True))
    events += [
        label(at + 2, at, truth[at], number=2, source=1 + at % 2)
        for at in range(first, first + second)
    ]
    total = first + second
    return [*events, round_end(total + 2, 2), campaign_end(total + 3, total)]


def follow_scripted(
    server: ScriptedServer, public: Inputs, train: Teaching, measure: Measure | None = None
) -> tuple[LabelSet, list[str]]:
    said: list[str] = []
    with connected(server, public) as client:
        return follow(client, public, train, say=said.append, measure=measure), said


def test_a_campaign_from_first_label_to_published_student(tmp_path: Path) -> None:
    public, held_out = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(40, 25))
    train, measured = Teaching(), list[float]()

    def measure(student: Student) -> float:
        measured.append(accuracy(student.predict(held_out.inputs), held_out))
        return measured[-1]

    labels, said = follow_scripted(server, public.inputs, train, measure)
    assert train.lessons == [(2, 40)]
    assert list(server.submitted) == [2]
    message = server.submitted[2]
    # It states, with its predictions, the accuracy that it measures before each submission.
    assert measured == [message.accuracy]
    assert message.accuracy > 0.7
    predicted = np.frombuffer(message.probabilities, "<f4").reshape(400, 2)
    assert (predicted.argmax(axis=1) == public.labels).mean() > 0.85
    assert "the campaign has ended with 65 labels" in said
    assert labels.privacy == PRIVACY
    assert LabelSet.from_json(labels.to_json()) == labels

    published = graduate(
        labels,
        public.inputs,
        train,
        tmp_path / "out",
        facts={"seed": 0},
        name="t",
        test=LabelledData(held_out),
    )
    assert train.lessons == [(2, 40), (0, 65)]
    student = weights.load(tmp_path / "out")
    assert isinstance(published.evaluation, Evaluation)
    assert (
        published.evaluation.accuracy == accuracy(student.predict(held_out.inputs), held_out) > 0.85
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert "65: 53 from the teachers' noisy votes, 12 own predictions" in card


def test_a_round_without_labels_claims_nothing() -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(0, 3))
    train = Teaching()
    labels, _ = follow_scripted(server, public.inputs, train)
    assert train.lessons == []
    assert not server.submitted[2].HasField("accuracy")  # without a measure
    assert set(np.frombuffer(server.submitted[2].probabilities, "<f4").tolist()) == {0.5}
    assert len(labels.rows) == 3


def test_a_student_that_comes_after_the_end_does_not_predict() -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(5, 5))
    server.info.phase = "finished"
    labels, _ = follow_scripted(server, public.inputs, Teaching())
    assert not server.submitted
    assert len(labels.rows) == 10


def test_a_campaign_that_ends_while_the_student_trains() -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, script(5, 0))
    phase_after = "finished"

    def refuse(request: wire.Predictions, context: grpc.ServicerContext) -> wire.PredictionsReceipt:
        server.info.phase = phase_after
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the campaign has continued")
        raise AssertionError

    server.SubmitPredictions = refuse  # type: ignore[method-assign]
    labels, said = follow_scripted(server, public.inputs, Teaching())
    assert len(labels.rows) == 5
    assert "round 2: the campaign ended before the predictions were made" in said
    server.info.phase = phase_after = "voting"
    with pytest.raises(RefusedError, match="continued"):
        follow_scripted(server, public.inputs, Teaching())


def test_a_campaign_without_a_label_leaves_no_student() -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, [campaign_end(1, 0)])
    with pytest.raises(DataError, match="without a single label"):
        follow_scripted(server, public.inputs, Teaching())


def test_of_several_labels_noisy_counts_are_all_that_a_student_needs() -> None:
    public, _ = tumours()
    server = ScriptedServer(public.inputs, public.classes, [campaign_end(1, 0)])
    counts = np.array([[4, 1], [0, 2]], dtype="<i8")
    server.noisy = wire.NoisyVotes(
        classes=2, queries=[3, 7], counts=counts.tobytes(), sigma=1.0, code="nearest labels-1"
    )
    labels, said = follow_scripted(server, public.inputs, Teaching())
    assert labels.rows == ()
    assert said[-1] == "the campaign has ended"
    check_labels(labels, public.inputs)
    assert LabelSet.from_json(labels.to_json()).content_in_words == labels.content_in_words
    made = lesson(public.inputs, labels.rows, labels.classes, labels.noisy)
    assert made.noisy is labels.noisy
    server.noisy.code = "dense-2"
    dense, _ = follow_scripted(server, public.inputs, Teaching())
    check_labels(dense, public.inputs)
    assert dense.content_in_words == "noisy sums in 2 directions"
    server.noisy.code = "nearest"
    with pytest.raises(DataError, match="without a single label"):
        follow_scripted(server, public.inputs, Teaching())
    with pytest.raises(DataError, match="no labels to learn from"):
        lesson(public.inputs, (), labels.classes)


def test_labels_of_another_public_set_are_refused() -> None:
    public, held_out = tumours()
    own = identify(public.inputs)
    labels = LabelSet(
        b"c", public.classes, own.content_hash, 400, (LabelRow(0, 0, 1, "teachers"),), PRIVACY
    )
    check_labels(labels, public.inputs)
    with pytest.raises(SchemaError, match="this one has 169"):
        check_labels(labels, held_out.inputs)
    empty = LabelSet(b"c", public.classes, own.content_hash, 400, (), PRIVACY)
    with pytest.raises(DataError, match="no labels"):
        check_labels(empty, public.inputs)
    assert json.loads(labels.to_json())["queries"] == 400
