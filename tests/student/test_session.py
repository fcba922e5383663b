"""A student's session: what it trains on, campaigns of one series, and its final output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from pate.data.values import Inputs
from pate.errors import DataError, RefusedError, SchemaError, UsageError
from pate.formats.labels import LabelRow, LabelSet
from pate.formats.noisy_counts import NoisyVotes
from pate.formats.privacy_statement import ObserverStatement, adjacency_of
from pate.runtime.screen import Screen
from protos.pate.v1 import student_pb2 as wire
from student import weights
from student.card import promise_of
from student.evaluation.evaluate import Evaluation, LabelledData
from student.lesson import Effort, Lesson, Student
from student.options import TrainOptions
from student.output import tell_few_labels, tell_published
from student.series import together
from student.session import Measure, Published, check_labels, follow, graduate, identify, lesson
from tests.party.voting.test_neighbour_voter import CLASSES
from tests.support.party.offers import statement
from tests.support.student_samples import (
    PRIVACY,
    STATEMENT,
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


NEIGHBOUR = [{"mechanism": "neighbour", "threshold": 3, "sigma": "40", "votes_per_unit": 1}]
GNMAX = [{"mechanism": "gnmax", "sigma2": "40", "votes_per_unit": 1}]
SEEDED = {"observer": "public", "epsilon": None, "delta": None, "meaning": "a seeded run"}


@pytest.mark.parametrize(
    ("mechanism", "more", "words"),
    [
        (NEIGHBOUR, {}, "one record added, removed or altered"),
        (
            [NEIGHBOUR[0] | {"mechanism": "distributed-neighbour"}],
            {},
            "one record added, removed or",
        ),
        (GNMAX, {}, "one record added or removed; observer"),
        (GNMAX, {"statements": [SEEDED]}, "no privacy guarantee: see privacy.json"),
    ],
)
def test_the_last_line_promises_what_the_statement_does(
    mechanism: list[dict[str, object]],
    more: dict[str, object],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """For the neighbours of who voted; and nothing where the statement takes it back."""
    labels = few(mechanism, (), **more)
    tell_published(
        Published((), None, 1.0), labels, Path("out"), Screen("pate-student"), as_json=False
    )
    said = capsys.readouterr().err
    terms = "" if more else "epsilon 1.97 at delta 1e-05 (unit: record; adjacency: "
    assert f"1 labels, {terms}{words}" in said
    assert ("1.97" in said) == (not more)


def few(mechanism: object, rows: tuple[LabelRow, ...] = (), **changes: object) -> LabelSet:
    return LabelSet(
        campaign=b"1" * 16,
        classes=("no", "yes", "may\x1b[2Jbe"),
        public_set=bytes(32),
        queries=100,
        rows=rows or (LabelRow(0, 1, 1, "teachers"),),
        privacy=json.dumps(STATEMENT | {"mechanism": mechanism} | changes),
    )


def test_classes_without_labels_are_said_before_the_training_and_what_to_try(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_few_labels(few(GNMAX, teachers=40), Screen("pate-student"))
    said = capsys.readouterr().err
    assert (
        "1 labels: no label of 2 of 3 classes (no, may\\x1b[2Jbe), fewer than 10 labels of 1 class (yes)"
        in said
    )
    assert "`pate plan --aggregator gnmax --classes 3 --teachers 40 --queries 100 --epsilon" in said
    tell_few_labels(few(NEIGHBOUR), Screen("pate-student"))
    assert "`pate plan --aggregator neighbour --classes 3 --epsilon" in capsys.readouterr().err
    enough = tuple(LabelRow(i, i % 3, 1, "teachers") for i in range(30))
    tell_few_labels(few(GNMAX, enough), Screen("pate-student"))
    assert capsys.readouterr().err == ""


def test_a_server_cannot_write_into_the_command_that_is_to_be_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "1; rm -rf ~"
    mechanism = [{"mechanism": evil, "votes_per_unit": evil}]
    tell_few_labels(few(mechanism, teachers=evil, unit=evil), Screen("pate-student"))
    tell_few_labels(few(mechanism, unit="party"), Screen("pate-student"))
    assert "rm -rf" not in capsys.readouterr().err


SIGMA = 4.0


def campaign(number: int, queries: list[int], counts: list[list[int]], **changes: Any) -> LabelSet:
    fields: dict[str, Any] = {
        "campaign": bytes([number]).hex() * 16,
        "series": "monthly",
        "series_key": "3" * 64,
        "adjacency": adjacency_of("record", records_vote=True, series=True),
        "unit": "record",
    }
    of_set = {name: changes.pop(name) for name in ("public_set", "classes") if name in changes}
    code = changes.pop("code", "nearest")
    noisy = NoisyVotes(np.array(queries), np.array(counts), changes.pop("sigma", SIGMA), code)
    made: dict[str, Any] = {
        "campaign": bytes([number]) * 16, "classes": CLASSES, "public_set": b"p" * 32,
        "queries": 10, "rows": (), "privacy": statement(**(fields | changes)).to_json(),
        "noisy": noisy,
    }  # fmt: skip
    return LabelSet(**(made | of_set))


def test_a_series_of_one_name_at_two_servers_is_two_series() -> None:
    """Their costs add up: a unit votes once at each of them."""
    rounds = [campaign(at, [0], [[9, 0]], series_key=f"{at}" * 64) for at in (1, 2)]
    with pytest.raises(DataError, match="their series_key differs"):
        together(rounds)
    rounds[1] = campaign(2, [0], [[9, 0]], series_key="1" * 64)
    assert json.loads(together(rounds).privacy)["series_key"] == "1" * 64


JANUARY = campaign(1, [0, 2], [[30, 0], [0, 6]])
FEBRUARY = campaign(2, [0, 2, 5], [[10, 4], [1, 30], [9, 0]])


def test_of_several_labels_counts_are_added_and_no_query_gets_a_label() -> None:
    made = together([campaign(at, [0], [[900, 0]], code="nearest labels-1") for at in (1, 2)])
    assert made.noisy is not None
    assert made.noisy.counts.tolist() == [[1800, 0]]
    assert made.rows == ()
    assert made.content_in_words == "noisy counts of 1 representative"


def test_counts_are_added_and_labels_made_of_the_sum() -> None:
    made = together([JANUARY, FEBRUARY])
    assert made.noisy is not None
    assert made.noisy.queries.tolist() == [0, 2, 5]
    assert made.noisy.counts.tolist() == [[40, 4], [1, 36], [9, 0]]
    # Two noises of 4 votes, and rounding.
    assert math.sqrt(32) <= made.noisy.sigma < 5.7
    # Margins of 36 and 35 exceed twice the spread of a difference, 17; one of 9 does not.
    assert [(row.query, row.label, row.source) for row in made.rows] == [
        (0, 0, "records"), (2, 1, "records"),
    ]  # fmt: skip
    assert made.campaign == FEBRUARY.campaign


def test_older_votes_may_count_less() -> None:
    made = together([JANUARY, JANUARY_LATER, FEBRUARY], half_life=1.0)
    assert made.noisy is not None
    assert made.noisy.counts.tolist() == [
        [28, 4],
        [1, 35],
        [9, 0],
    ]  # 30/4 + 21/2 + 10, 6/4 + 7/2 + 30
    assert made.noisy.sigma == pytest.approx(math.sqrt(16 * (1 + 1 / 4 + 1 / 16) + 1 / 4))


JANUARY_LATER = campaign(3, [0, 2], [[21, 0], [0, 7]])


def test_one_campaign_is_as_it_was() -> None:
    assert together([JANUARY]) is JANUARY
    with pytest.raises(UsageError, match="two or more"):
        together([JANUARY], half_life=2.0)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="above 0"):
            together([JANUARY, FEBRUARY], half_life=wrong)


def test_the_statement_is_that_of_the_most_expensive_campaign() -> None:
    dear = campaign(4, [0], [[9, 0]], epsilon=3.0)
    none = (ObserverStatement("public", None, None, "no guarantee: seeded"),)
    simulated = campaign(5, [0], [[9, 0]], statements=none)
    for order in ([JANUARY, dear, FEBRUARY], [dear, JANUARY], [FEBRUARY, dear]):
        assert together(order).privacy == dear.privacy
    assert together([dear, simulated, JANUARY]).privacy == simulated.privacy
    promise = promise_of(json.loads(together([JANUARY, FEBRUARY]).privacy))
    assert "in all campaigns of series 'monthly' with its composition and no larger cap" in promise


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"series": "weekly"}, "series differs"),
        ({"delta": 1e-6}, "delta differs"),
        ({"composition": "zcdp"}, "composition differs"),
        ({"unit": "patient"}, "unit differs"),
        ({"public_set": b"q" * 32}, "one public set"),
        ({"classes": ("b", "a")}, "one class list"),
    ],
)
def test_campaigns_that_are_not_of_one_series_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        together([JANUARY, campaign(2, [0], [[9, 0]], **changes)])


def test_campaigns_without_a_series_add_up_and_are_refused() -> None:
    words = adjacency_of("record", records_vote=True)
    alone = {"series": None, "series_key": None, "adjacency": words}
    two = [campaign(number, [0], [[9, 0]], **alone) for number in (1, 2)]
    with pytest.raises(DataError, match="costs of others add up"):
        together(two)
    with pytest.raises(DataError, match="one is there twice"):
        together([JANUARY, JANUARY])


def test_half_life_is_for_several_files(tmp_path: Path) -> None:
    folders: dict[str, Any] = {"public": tmp_path, "out": tmp_path / "student"}
    with pytest.raises(UsageError, match="--half-life"):
        TrainOptions(**folders, server="127.0.0.1:1", half_life=2.0)
    assert TrainOptions(**folders, labels=[tmp_path], half_life=2.0).half_life == 2.0
