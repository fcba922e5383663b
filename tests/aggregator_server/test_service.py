from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.student_service import FOLLOWERS, StudentService
from pate.campaign.choices import Guess
from pate.errors import PortInUseError
from pate.formats.privacy_statement import PrivacyStatement
from pate.runtime.home import new_token
from pate.storage.hash_chain import Head
from protos.pate.v1 import student_pb2, student_pb2_grpc
from protos.student_proof import PROOF_KEY, predictions_proof, reading_proof
from protos.terms import announced_in
from tests.support.server.campaigns import CLASSES, label, make_predictions, make_spec, start

SPEC = make_spec(aggregator="interactive-gnmax", rounds=2, queries=30, epsilon=20.0)
NO_HURRY = 60.0
TOKEN = new_token()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with start(tmp_path / "ledger.sqlite", SPEC) as made:
        yield made


@pytest.fixture
def service(ledger: Ledger) -> Iterator[StudentService]:
    made = StudentService(ledger, token=TOKEN)
    made.start()
    yield made
    made.stop(0.0)


@pytest.fixture
def channel(service: StudentService) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{service.port}") as made:
        yield made


@pytest.fixture
def student(channel: grpc.Channel) -> student_pb2_grpc.StudentStub:
    return student_pb2_grpc.StudentStub(channel)  # type: ignore[no-untyped-call]


def predictions(**changes: Any) -> student_pb2.Predictions:
    fields: dict[str, Any] = {
        "campaign": bytes.fromhex(SPEC.id), "round": 2, "rows": 30, "classes": 3,
        "probabilities": make_predictions(30).tobytes(),
    }  # fmt: skip
    return student_pb2.Predictions(**(fields | changes))


def submit(
    student: student_pb2_grpc.StudentStub, message: student_pb2.Predictions, token: str = TOKEN
) -> bool:
    """Hand in predictions as the student does that has the token; return whether some were there."""
    proof = ((PROOF_KEY, predictions_proof(token, message)),)
    receipt = student.SubmitPredictions(message, timeout=NO_HURRY, metadata=proof)
    return bool(receipt.already_had)


AS_READER = ((PROOF_KEY, reading_proof(TOKEN, bytes.fromhex(SPEC.id))),)


def stream(student: student_pb2_grpc.StudentStub, after: int = 0) -> list[student_pb2.LabelEvent]:
    request = student_pb2.StreamLabelsRequest(after=after)
    return list(student.StreamLabels(request, timeout=NO_HURRY))


def test_the_campaign_is_described(ledger: Ledger, student: student_pb2_grpc.StudentStub) -> None:
    told = student.GetCampaign(student_pb2.GetCampaignRequest(), timeout=NO_HURRY)
    assert announced_in(told.campaign) == replace(SPEC.announced, classes=CLASSES)
    assert (told.phase, told.name) == ("labelling", "trial")


def test_a_student_is_warned_of_few_labels_before_they_come_and_not_after(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", make_spec(aggregator="gnmax", epsilon=1.0)) as ledger:
        service = StudentService(ledger, guess=Guess(rarest=0.05))
        channel = grpc.insecure_channel(f"127.0.0.1:{service.start()}")
        student = student_pb2_grpc.StudentStub(channel)  # type: ignore[no-untyped-call]

        def said() -> str:
            told = student.GetCampaign(student_pb2.GetCampaignRequest(), timeout=NO_HURRY)
            return str(told.expected)

        assert "if your rarest class is 1 in 20, expect" in said()
        assert "what helps: " in said()
        label(ledger)
        ledger.end_round(wants_predictions=False)
        assert said() == ""
        channel.close()
        service.stop(0.0)


def test_events_have_the_same_cursors_ever_after(
    ledger: Ledger, student: student_pb2_grpc.StudentStub
) -> None:
    label(ledger)
    first = stream(student)
    assert {e.label.query: e.label.label for e in first} == {
        query: each.label for query, each in ledger.state().labels.items()
    }
    cursors = [event.cursor for event in first]
    assert cursors == sorted(set(cursors))
    assert cursors[0] > 0
    ledger.end_round(wants_predictions=True)
    more = stream(student)
    assert more[:-1] == first
    assert more[-1].round_end == student_pb2.RoundEnd(round=1, wants_predictions=True)
    for at, cursor in enumerate(cursors):
        assert stream(student, cursor) == more[at + 1 :]
    assert stream(student, more[-1].cursor) == []


def test_a_restarted_server_tells_the_same(tmp_path: Path, ledger: Ledger) -> None:
    def told(ledger: Ledger) -> list[student_pb2.LabelEvent]:
        service = StudentService(ledger)
        with grpc.insecure_channel(f"127.0.0.1:{service.start()}") as channel:
            found = stream(student_pb2_grpc.StudentStub(channel))  # type: ignore[no-untyped-call]
        service.stop(0.0)
        return found

    label(ledger)
    before = told(ledger)
    ledger.close()
    with Ledger.open(ledger.place) as again:
        assert told(again) == before


def test_a_follower_sees_a_whole_interactive_campaign(
    ledger: Ledger, service: StudentService, student: student_pb2_grpc.StudentStub
) -> None:
    """The student in one thread, the campaign in this one, nothing but the service between them."""
    stop = threading.Event()

    def study() -> tuple[list[student_pb2.LabelEvent], list[bool], PrivacyStatement]:
        seen: list[student_pb2.LabelEvent] = []
        receipts: list[bool] = []
        request = student_pb2.StreamLabelsRequest(follow=True)
        for event in student.StreamLabels(request, timeout=NO_HURRY, metadata=AS_READER):
            seen.append(event)
            if event.round_end.wants_predictions:
                receipts.extend(submit(student, predictions()) for _ in range(2))
        told = student.GetPrivacyStatement(
            student_pb2.GetPrivacyStatementRequest(), timeout=NO_HURRY, metadata=AS_READER
        )
        return seen, receipts, PrivacyStatement.from_json(told.json)

    with ThreadPoolExecutor(1) as pool:
        studying = pool.submit(study)
        label(ledger)
        ledger.end_round(wants_predictions=True)
        guess = service.wait_for_predictions(2, stop)
        assert guess is not None
        np.testing.assert_array_equal(guess, make_predictions(30))
        label(ledger)
        ledger.end_round(wants_predictions=False)
        assert not service.delivered
        ledger.finish()
        seen, receipts, statement = studying.result(NO_HURRY)
    assert service.wait_until_delivered(stop, NO_HURRY)
    assert receipts == [False, True]
    assert [e.WhichOneof("body") for e in seen if not e.HasField("label")] == [
        "round_end", "round_end", "campaign_end",
    ]  # fmt: skip
    labels = ledger.state().labels
    assert {e.label.query: e.label.label for e in seen if e.HasField("label")} == {
        query: each.label for query, each in labels.items()
    }
    assert seen[-1].campaign_end.labels_released == len(labels) == statement.labels_released
    sources = {e.label.source for e in seen if e.HasField("label") and e.label.round == 2}
    assert student_pb2.SOURCE_REINFORCED in sources
    verify(ledger.place, Head.parse(statement.ledger_head))


def first_row(*row: float) -> bytes:
    return np.array(row, dtype="<f4").tobytes() + make_predictions(29).tobytes()


NOT_NOW = grpc.StatusCode.FAILED_PRECONDITION
WRONG = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"campaign": b"\1" * 16}, NOT_NOW),
        ({"round": 1}, NOT_NOW),
        ({"round": 3}, NOT_NOW),
        ({"rows": 29}, WRONG),
        ({"classes": 2}, WRONG),
        ({"probabilities": b""}, WRONG),
        ({"probabilities": make_predictions(30).tobytes()[:-1]}, WRONG),
        ({"probabilities": first_row(np.nan, 0, 1)}, WRONG),
        ({"probabilities": first_row(np.inf, 0, 0)}, WRONG),
        ({"probabilities": first_row(-np.inf, 0, 1)}, WRONG),
        ({"probabilities": first_row(-0.5, 0.5, 1)}, WRONG),
        ({"probabilities": first_row(0.5, 0.4, 0)}, WRONG),
        ({"probabilities": first_row(2, -1, 0)}, WRONG),
    ],
)
def test_bad_predictions_are_refused_and_good_ones_still_count(
    ledger: Ledger,
    student: student_pb2_grpc.StudentStub,
    changes: dict[str, Any],
    code: grpc.StatusCode,
) -> None:
    ledger.end_round(wants_predictions=True)
    with pytest.raises(grpc.RpcError) as caught:
        submit(student, predictions(**changes))
    assert caught.value.code() == code
    assert ledger.state().predictions == {}
    assert not submit(student, predictions())


def test_predictions_before_their_time_are_refused(student: student_pb2_grpc.StudentStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        submit(student, predictions())
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_predictions_of_anybody_but_the_student_are_not_taken(
    ledger: Ledger, student: student_pb2_grpc.StudentStub
) -> None:
    """Otherwise anyone who reaches the port could decide what is asked, and its cost."""
    ledger.end_round(wants_predictions=True)
    own = predictions_proof(TOKEN, predictions())
    other = first_row(0, 0, 1)
    for message, proof in (
        (predictions(), None),
        (predictions(), ""),
        (predictions(), TOKEN),  # never sent, and good for nothing if it is
        (predictions(), predictions_proof(new_token(), predictions())),
        (predictions(), reading_proof(TOKEN, bytes.fromhex(SPEC.id))),
        (predictions(probabilities=other), own),  # heard on the way, under other predictions
        (predictions(round=3), own),
        (predictions(accuracy=0.0), own),
        (predictions(accuracy=0.5), own),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            student.SubmitPredictions(
                message, timeout=NO_HURRY, metadata=() if proof is None else ((PROOF_KEY, proof),)
            )
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        assert "student.token" in (caught.value.details() or "")
        assert ledger.state().predictions == {}
    assert not submit(student, predictions())
    with pytest.raises(grpc.RpcError) as caught:  # nor does a stranger learn that they are there
        student.SubmitPredictions(predictions(), timeout=NO_HURRY)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_server_waits_for_its_own_student_and_not_for_whoever_reads(
    ledger: Ledger, service: StudentService, student: student_pb2_grpc.StudentStub
) -> None:
    label(ledger)
    ledger.end_round(wants_predictions=True)
    submit(student, predictions())
    label(ledger)
    ledger.end_round(wants_predictions=False)
    ledger.finish()
    ask = student_pb2.GetPrivacyStatementRequest()
    read = stream(student)
    assert read[-1].HasField("campaign_end")
    student.GetPrivacyStatement(ask, timeout=NO_HURRY)
    wrong = ((PROOF_KEY, reading_proof(new_token(), bytes.fromhex(SPEC.id))),)
    with pytest.raises(grpc.RpcError) as caught:
        list(student.StreamLabels(student_pb2.StreamLabelsRequest(), metadata=wrong))
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.RpcError) as caught:
        student.GetPrivacyStatement(ask, timeout=NO_HURRY, metadata=wrong)
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert not service.delivered
    request = student_pb2.StreamLabelsRequest()
    assert list(student.StreamLabels(request, timeout=NO_HURRY, metadata=AS_READER)) == read
    student.GetPrivacyStatement(ask, timeout=NO_HURRY, metadata=AS_READER)
    assert service.wait_until_delivered(threading.Event(), NO_HURRY)


def test_waiting_for_predictions_ends_when_asked_to(
    ledger: Ledger, service: StudentService
) -> None:
    stop = threading.Event()
    stop.set()
    assert service.wait_for_predictions(2, stop) is None
    assert service.wait_until_delivered(stop) is False
    assert service.wait_until_delivered(threading.Event(), 0.01) is False


def test_a_message_beyond_the_bound_is_refused(student: student_pb2_grpc.StudentStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        student.SubmitPredictions(
            student_pb2.Predictions(probabilities=b"\0" * (64 * 1024 * 1024 + 1)), timeout=NO_HURRY
        )
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_followers_are_bounded_leave_no_trace_and_end_with_the_server(
    ledger: Ledger, service: StudentService, student: student_pb2_grpc.StudentStub
) -> None:
    ledger.end_round(wants_predictions=True)  # one event, so that each stream is known to be up
    request = student_pb2.StreamLabelsRequest(follow=True)
    streams = [student.StreamLabels(request, timeout=NO_HURRY) for _ in range(FOLLOWERS)]
    for each in streams:
        assert next(each).round_end.round == 1
    with pytest.raises(grpc.RpcError) as caught:
        next(student.StreamLabels(request, timeout=NO_HURRY))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    # Beside them short calls are answered, and a place that is given up is had again.
    student.GetCampaign(student_pb2.GetCampaignRequest(), timeout=NO_HURRY)
    streams.pop().cancel()
    another = None
    while another is None:
        candidate = student.StreamLabels(request, timeout=NO_HURRY)
        with contextlib.suppress(grpc.RpcError):
            assert next(candidate).round_end.round == 1
            another = candidate
    service.stop(NO_HURRY)
    with pytest.raises(grpc.RpcError) as caught:
        next(another)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_there_is_no_statement_before_the_roster(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "young.sqlite", SPEC) as ledger:
        service = StudentService(ledger)
        with grpc.insecure_channel(f"127.0.0.1:{service.start()}") as channel:
            student = student_pb2_grpc.StudentStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.RpcError) as caught:
                student.GetPrivacyStatement(
                    student_pb2.GetPrivacyStatementRequest(), timeout=NO_HURRY
                )
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        service.stop(0.0)


def test_health_is_told(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", "pate.v1.Student"):
        told = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=NO_HURRY)
        assert told.status == health_pb2.HealthCheckResponse.SERVING


def test_a_taken_port_is_told_apart_from_an_impossible_address(ledger: Ledger) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            StudentService(ledger, port=port).start()
    first = StudentService(ledger)
    port = first.start()
    with pytest.raises(PortInUseError, match=str(port)):
        StudentService(ledger, port=port).start()
    first.stop(0.0)


def test_only_loopback_is_served(service: StudentService) -> None:
    with socket.create_server(("127.0.0.2", service.port)):  # taken if it listened on all addresses
        pass
