from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

from pate.data.values import Images
from pate.errors import (
    DataError,
    PateError,
    ProtocolError,
    RefusedError,
    SchemaError,
    UnreachableError,
)
from pate.formats.labels import LabelRow
from pate.runtime.child import free_port
from protos.pate.v1 import student_pb2 as wire
from student.arrivals import CampaignEnd, RoundEnd
from student.client import StudentClient
from student.session import identify
from tests.support.student_samples import (
    PRIVACY,
    ScriptedServer,
    campaign_end,
    connected,
    label,
    round_end,
    serving,
)

PUBLIC = Images(np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8, 1).copy())
CLASSES = ("ill", "well")
SCRIPT = [
    label(1, 2, 1), label(2, 0, 0), round_end(3, 1, wants=True),
    label(7, 1, 1, number=2, source=2), round_end(8, 2), campaign_end(9, 3),
]  # fmt: skip
EVENTS = [
    LabelRow(2, 1, 1, "teachers"), LabelRow(0, 0, 1, "teachers"),
    RoundEnd(1, wants_predictions=True), LabelRow(1, 1, 2, "reinforced"),
    RoundEnd(2, wants_predictions=False), CampaignEnd(3),
]  # fmt: skip


def server_with(events: list[wire.LabelEvent] | None = None) -> ScriptedServer:
    return ScriptedServer(PUBLIC, CLASSES, SCRIPT if events is None else events)


def refused(
    server: ScriptedServer,
    kind: type[PateError],
    why: str,
    ask: Callable[[StudentClient], object] = lambda client: list(client.events()),
) -> None:
    with connected(server, PUBLIC) as client, pytest.raises(kind, match=why):
        ask(client)


def test_events_come_as_values() -> None:
    with connected(server_with(), PUBLIC) as client:
        campaign = client.campaign()
        assert (campaign.id, campaign.classes, campaign.phase) == (b"c" * 16, CLASSES, "voting")
        assert list(client.events()) == EVENTS
        assert client.privacy_statement() == PRIVACY


def test_predictions_arrive_bit_for_bit_and_the_first_count() -> None:
    server = server_with()
    probabilities = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5], [0, 1]], dtype=np.float32)
    with connected(server, PUBLIC) as client:
        assert client.submit(2, probabilities) is False
        assert client.submit(2, probabilities[::-1].copy()) is True
    message = server.submitted[2]
    assert (message.campaign, message.round, message.rows, message.classes) == (b"c" * 16, 2, 4, 2)
    assert np.array_equal(np.frombuffer(message.probabilities, "<f4").reshape(4, 2), probabilities)


@pytest.mark.parametrize(
    ("at", "code", "why", "asked_after"),
    [
        (7, grpc.StatusCode.UNAVAILABLE, "restarting", [0, 3]),
        (1, grpc.StatusCode.RESOURCE_EXHAUSTED, "8 students follow already", [0, 0]),
    ],
)
def test_a_dropped_stream_goes_on_after_the_last_event(
    at: int, code: grpc.StatusCode, why: str, asked_after: list[int]
) -> None:
    server = server_with()
    dropped: list[wire.LabelEvent] = []

    def drop_once(event: wire.LabelEvent, context: grpc.ServicerContext) -> None:
        if event.cursor == at and not dropped:
            dropped.append(event)
            context.abort(code, why)

    server.before = drop_once
    said: list[str] = []
    with connected(server, PUBLIC, say=said.append) as client:
        assert list(client.events()) == EVENTS
    assert server.asked_after == asked_after
    assert why in said[0]
    assert said[1].endswith("is available")


def test_a_server_that_ends_the_stream_early_is_asked_again() -> None:
    server = server_with(SCRIPT[:2])
    with connected(server, PUBLIC) as client:
        events = client.events()
        assert [next(events), next(events)] == EVENTS[:2]
        server.events = SCRIPT
        assert list(events) == EVENTS[2:]
    assert server.asked_after == [0, 2]


def test_a_quiet_stream_is_opened_anew_and_nothing_is_lost() -> None:
    server = server_with()
    reopened = threading.Event()

    def quiet_in_the_first_stream(event: wire.LabelEvent, context: grpc.ServicerContext) -> None:
        if len(server.asked_after) > 1:
            reopened.set()
        elif event.cursor == 3:
            reopened.wait(20)

    server.before = quiet_in_the_first_stream
    said: list[str] = []
    with connected(server, PUBLIC, say=said.append, stream_seconds=1.0) as client:
        assert list(client.events()) == EVENTS
    assert server.asked_after == [0, 2]
    assert not said  # quiet is not gone


def test_a_stream_that_never_gets_further_is_given_up() -> None:
    with connected(server_with(SCRIPT[:2]), PUBLIC, max_wait=0.5) as client:
        events = client.events()
        assert [next(events), next(events)] == EVENTS[:2]
        with pytest.raises(UnreachableError, match="ended the stream of labels before"):
            next(events)


def test_no_server_is_waited_for_and_then_given_up() -> None:
    port = free_port()
    said: list[str] = []
    with (
        StudentClient(
            f"127.0.0.1:{port}", identify(PUBLIC), max_wait=0.5, say=said.append
        ) as client,
        pytest.raises(UnreachableError, match=rf"nothing from 127.0.0.1:{port} for 0.5 s"),
    ):
        client.campaign()
    assert said == [f"waiting for the server at 127.0.0.1:{port}: it does not answer (yet)"]


def test_a_server_on_this_machine_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    with connected(server_with(), PUBLIC) as client:
        assert client.campaign().phase == "voting"


def test_the_proxy_of_a_server_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{(proxy := free_port())}")
    # An address of documentation: without the proxy nothing answers there.
    with (
        StudentClient("192.0.2.1:9093", identify(PUBLIC), max_wait=0.5) as client,
        pytest.raises(UnreachableError, match=f"http_proxy names the proxy 127.0.0.1:{proxy}: "),
    ):
        client.campaign()


def test_a_server_that_comes_late_is_found() -> None:
    port = free_port()
    said: list[str] = []
    late = threading.Event()

    def note(line: str) -> None:
        said.append(line)
        late.set()

    found: list[object] = []
    with StudentClient(f"127.0.0.1:{port}", identify(PUBLIC), max_wait=30, say=note) as client:
        asking = threading.Thread(target=lambda: found.append(client.campaign().phase))
        asking.start()
        assert late.wait(20)
        with serving(server_with(), port):
            asking.join(30)
    assert found == ["voting"]


HOSTILE: dict[str, tuple[list[wire.LabelEvent], str]] = {
    "cursor 0": ([label(0, 1, 1)], "event 0 came after event 0"),
    "cursor twice": ([label(1, 1, 1), label(1, 2, 1)], "event 1 came after event 1"),
    "cursor back": ([label(5, 1, 1), label(4, 2, 1)], "event 4 came after event 5"),
    "query outside": ([label(1, 4, 1)], "query 4 of 4"),
    "query huge": ([label(1, 2**64 - 1, 1)], "of 4"),
    "class outside": ([label(1, 0, 2)], "class 2 of 2"),
    "query twice": ([label(1, 0, 1), label(2, 0, 1)], "labelled twice"),
    "other answer": ([label(1, 0, 1), round_end(2, 1), label(3, 0, 0, number=2)], "labelled twice"),
    "round 0": ([label(1, 0, 1, number=0)], "round 0 after the end of 0"),
    "round too far": ([label(1, 0, 1, number=2)], "round 2"),
    "round over": ([round_end(1, 1), label(2, 0, 1, number=1)], "round 1 after the end of 1"),
    "no source": ([label(1, 0, 1, source=0)], "unknown source 0"),
    "new source": ([label(1, 0, 1, source=9)], "unknown source 9"),
    "end of a round to come": ([round_end(1, 2)], "round 2 ended after round 0"),
    "end twice": ([round_end(1, 1), round_end(2, 1)], "round 1 ended after round 1"),
    "empty event": ([wire.LabelEvent(cursor=1)], "kind unknown to this version"),
    "something after the end": (
        [label(1, 0, 1), campaign_end(2, 1), label(3, 1, 1)],
        "after the end of the campaign",
    ),
    "labels lost": ([label(1, 0, 1), campaign_end(2, 2)], "released 2 labels, 1 arrived"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_events_are_refused(name: str) -> None:
    events, why = HOSTILE[name]
    server = server_with(events)
    # The scripted server leaves out what lies before the cursor; this one does not care.
    server.StreamLabels = lambda _request, _context: iter(events)  # type: ignore[assignment, method-assign]
    refused(server, ProtocolError, why)


CAMPAIGNS: dict[str, tuple[dict[str, Any], type[PateError], str]] = {
    "other public set": ({"public_set": b"x" * 32}, SchemaError, "same files in the same order"),
    "other size": ({"queries": 5}, SchemaError, "5 inputs"),
    "other schema": ({"schema": "images 9x9x1"}, SchemaError, "images 9x9x1"),
    "short hash": ({"public_set": b"x"}, ProtocolError, "public_set must be 64"),
    "no identity": ({"id": b""}, ProtocolError, "id must be 32"),
    "one class": ({"classes": ["a"]}, ProtocolError, "number of classes"),
    "a class twice": ({"classes": ["a", "a"]}, ProtocolError, "repeated"),
    "a class without a name": ({"classes": ["a", ""]}, ProtocolError, "empty"),
    "an endless class": ({"classes": ["a", "b" * 2001]}, ProtocolError, "too long"),
    "an unknown field": ({"more": {"seed": 1}}, ProtocolError, "unknown fields: 'seed'"),
}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_wrong_campaigns_are_refused(name: str) -> None:
    changes, kind, why = CAMPAIGNS[name]
    server = server_with()
    server.about = server.about.copy(**changes)
    refused(server, kind, why)


def test_an_unknown_phase_is_refused_and_shown_as_one_line() -> None:
    server = server_with()
    server.info.phase = "dreaming\n\x1b[2J"
    refused(server, ProtocolError, r"'dreaming\\n\\x1b\[2J'")


def test_a_warning_of_the_server_is_shown_as_one_line_and_cut() -> None:
    server = server_with()
    server.info.expected = "few\x1b[2J\n" * 1000
    with connected(server, PUBLIC) as client:
        shown = client.campaign().expected
    assert shown.startswith("few\\x1b[2J\\n")
    assert shown.isprintable()
    assert len(shown) == 1000


def test_another_campaign_or_other_classes_under_way_are_refused() -> None:
    server = server_with()
    with connected(server, PUBLIC) as client:
        client.campaign()
        server.about.classes = (*server.about.classes, "dead")
        with pytest.raises(ProtocolError, match="changed the classes"):
            client.campaign()
        server.about.id = b"d" * 16
        with pytest.raises(SchemaError, match="runs another campaign"):
            client.campaign()


def test_a_label_before_the_classes_are_known_is_refused_and_after_is_not() -> None:
    server = server_with()
    server.about.classes = ()
    with connected(server, PUBLIC) as client:
        assert client.campaign().classes == ()
        with pytest.raises(ProtocolError, match="before it named its classes"):
            list(client.events())
        server.before = lambda _event, _context: setattr(server.about, "classes", CLASSES)
        assert list(client.events()) == EVENTS


@pytest.mark.parametrize("text", ["", "{}", "[1]", PRIVACY.replace("1.97", "-1"), PRIVACY + "x"])
def test_statements_that_do_not_say_it_are_refused(text: str) -> None:
    server = server_with()
    server.privacy = text
    refused(server, ProtocolError, "privacy statement", StudentClient.privacy_statement)


@pytest.mark.parametrize(
    "wrong",
    [
        np.full((3, 2), 0.5, dtype=np.float32),
        np.full((4, 2), 0.5, dtype=np.float64),
        np.full((4, 2), 0.6, dtype=np.float32),
        np.array([[2, -1]] * 4, dtype=np.float32),
        np.full((4, 2), np.nan, dtype=np.float32),
    ],
)
def test_only_probabilities_are_submitted(wrong: np.ndarray) -> None:
    server = server_with()
    refused(server, DataError, "predictions", lambda client: client.submit(2, wrong))
    assert not server.submitted


def test_only_a_share_is_sent_as_accuracy() -> None:
    for wrong in (-0.01, 1.01, math.nan, math.inf):
        even = np.full((4, 2), 0.5, dtype=np.float32)
        with (
            connected(server_with(), PUBLIC) as client,
            pytest.raises(DataError, match="an accuracy"),
        ):
            client.submit(2, even, wrong)


def test_a_refusal_is_told_and_not_repeated() -> None:
    server = server_with()
    calls = []

    def refuse(request: wire.Predictions, context: grpc.ServicerContext) -> wire.PredictionsReceipt:
        calls.append(request.round)
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "round 7 wants nothing\n\x1b[31m")
        raise AssertionError

    server.SubmitPredictions = refuse  # type: ignore[method-assign]
    predictions = np.full((4, 2), 0.5, dtype=np.float32)
    why = r"refused: round 7 wants nothing\\n\\x1b\[31m"
    refused(server, RefusedError, why, lambda client: client.submit(7, predictions))
    assert calls == [7]


def test_a_message_that_is_too_large_is_refused() -> None:
    server = server_with()
    server.privacy = "x" * (64 * 2**20)
    refused(server, ProtocolError, "larger than max", StudentClient.privacy_statement)


def test_bytes_that_are_no_message_are_refused() -> None:
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "GetCampaign": grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: b"\xff\xff\xff"
        )
    }
    from concurrent import futures

    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("pate.v1.Student", handlers)]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with StudentClient(f"127.0.0.1:{port}", identify(PUBLIC), max_wait=20) as client:
            with pytest.raises(ProtocolError, match="does not speak this version"):
                client.campaign()
            with pytest.raises(ProtocolError, match="does not speak this version"):
                client.privacy_statement()  # not implemented there
    finally:
        server.stop(0).wait()
