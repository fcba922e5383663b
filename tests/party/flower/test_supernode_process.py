"""The pauses of a SuperNode, its end, and how it says which process it is."""

from __future__ import annotations

import inspect
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode import main as supernode_api
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.start_client_internal import start_client_internal
from google.protobuf.empty_pb2 import Empty

from party.flower.supernode_process import ANSWER_S, HOLD_S, SLOW_S, Pauses, hold, repeat, speak_up
from protos.flower.carriage import BEAT_S, HELD_HEADER, SESSION_HEADER


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pauses(clock: Clock) -> Pauses:
    return Pauses(lambda: clock.now, clock.sleep)


def test_flowers_loop_has_what_is_replaced() -> None:
    loop = sys.modules[start_client_internal.__module__]
    source = inspect.getsource(start_client_internal)
    assert re.search(r"_pull_and_store_message\(", source)
    assert re.search(rf"time\.sleep\({SLOW_S}\)", source)
    assert vars(loop)["time"] is time
    assert callable(vars(loop)["_pull_and_store_message"])
    assert re.search(r"receive=receive,", source)
    push = inspect.getsource(vars(loop)["_push_messages"])
    assert push.count(f"time.sleep({ANSWER_S})") == 2
    connection = inspect.getsource(http_request_response)
    assert "HeartbeatSender(send_node_heartbeat)" in connection
    assert "NodeAuthHttpInterceptor(private_key, public_key)" in connection


def test_pauses_are_short_after_a_message_and_for_a_while(clock: Clock, pauses: Pauses) -> None:
    pulled = iter([None, 7, None])
    pull = partial(pauses.noted(lambda receive, **_: receive()), receive=lambda: next(pulled))
    assert pull(state=1) is None
    pauses.sleep(SLOW_S)
    assert pull() == 7
    pauses.sending(lambda: None)()
    pauses.sleep(SLOW_S)
    assert pull() is None
    pauses.sleep(SLOW_S)
    clock.now += 1000
    pauses.sleep(SLOW_S)
    assert clock.slept == [3, 0.5, 0.5, 3]


def test_after_a_look_that_was_held_open_the_next_one_follows_at_once(
    clock: Clock, pauses: Pauses
) -> None:
    def held() -> None:
        pauses.was_held = True

    for receive in (held, lambda: None):
        pauses.noted(lambda receive: receive())(receive=receive)
        pauses.sleep(SLOW_S)
    assert clock.slept == [0.05, 3]


def test_the_partys_question_waits_until_a_message_is_all_here(pauses: Pauses) -> None:
    begun, answers = threading.Event(), list[bool]()

    def all_here() -> bool:
        return is_all_here

    ask, is_all_here = pauses.holding(all_here), False
    answers.append(ask())  # the first one is answered at once: nothing is here

    def asks() -> None:
        begun.set()
        answers.append(ask())

    def pull(receive: Callable[[], int]) -> int:
        nonlocal is_all_here
        run = receive()
        asking.start()
        assert begun.wait(10)
        is_all_here = True
        return run

    asking = threading.Thread(target=asks)
    pauses.noted(pull)(receive=lambda: 7)
    asking.join(10)
    assert answers == [False, True]


def test_the_partys_question_does_not_wait_for_ever(pauses: Pauses) -> None:
    ask = pauses.holding(lambda: "nothing")
    began = time.monotonic()
    assert [ask(), ask()] == ["nothing", "nothing"]
    assert time.monotonic() - began >= HOLD_S


def test_flowers_answer_to_the_partys_question_is_the_one_that_waits(pauses: Pauses) -> None:
    answers = inspect.getsource(sys.modules["flwr.supercore.routers.runtime.router"])
    assert "return handlers.acquire_task(request, state)" in answers
    assert "runtime_handlers" in inspect.getsource(supernode_api)
    handlers = SimpleNamespace(acquire_task=lambda: "nothing")
    hold(handlers, pauses)
    assert handlers.acquire_task() == "nothing"
    hold(SimpleNamespace(), pauses)  # a Flower that we do not know is left as it is


def test_other_pauses_are_not_touched(clock: Clock, pauses: Pauses) -> None:
    pauses.noted(lambda receive: receive())(receive=lambda: 7)
    pauses.sleep(0.1)
    pauses.sleep(ANSWER_S)  # not while an answer is waited for
    assert clock.slept == [0.1, 0.5]
    assert pauses.monotonic is time.monotonic


def test_while_an_answer_is_waited_for_the_server_hears_of_us(clock: Clock, pauses: Pauses) -> None:
    heard: list[float] = []

    def beat() -> None:
        heard.append(clock.now)
        raise httpx.ReadTimeout("the server is away")

    pauses.beat = beat

    def push() -> None:
        while clock.now < 1000 + 3.5 * BEAT_S:
            pauses.sleep(ANSWER_S)

    pauses.sending(push)()
    assert len(heard) == 3
    assert max(clock.slept) <= 0.05


@pytest.fixture
def asked_to_end() -> Iterator[list[str]]:
    """Has a handler of its own while the test runs, as Flower's loop has."""
    ends: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda *_: ends.append("ended"))
    yield ends
    signal.signal(signal.SIGTERM, before)


def asked(pauses: Pauses, meanwhile: Callable[[], object] = lambda: None) -> None:
    """A message comes; something happens before all of it is here."""

    def pull(receive: Callable[[], int]) -> int:
        run = receive()
        meanwhile()
        return run

    assert pauses.noted(pull)(receive=lambda: 7) == 7


def end() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("when", ["while it is fetched", "while it is answered"])
def test_an_answer_that_is_there_is_sent_before_the_end(
    pauses: Pauses, asked_to_end: list[str], when: str
) -> None:
    asked(pauses, end if when == "while it is fetched" else lambda: None)

    def push() -> None:
        if when == "while it is answered":
            pauses.sleep(ANSWER_S)
            end()
        pauses.sleep(ANSWER_S)  # a part of the answer is still to come
        asked_to_end.append("sent")

    pauses.sending(push)()
    assert asked_to_end == ["sent", "ended"]
    end()
    assert asked_to_end == ["sent", "ended", "ended"]


def test_without_an_answer_it_ends_at_once(pauses: Pauses, asked_to_end: list[str]) -> None:
    asked(pauses)

    def push() -> None:
        for _ in range(3):
            pauses.sleep(ANSWER_S)
        end()
        while not asked_to_end:
            pauses.sleep(ANSWER_S)
        asked_to_end.append("left the wait")

    pauses.sending(push)()
    assert asked_to_end == ["ended", "left the wait"]


def test_while_it_waits_for_a_message_it_ends_at_once(
    pauses: Pauses, asked_to_end: list[str]
) -> None:
    def receive() -> None:
        end()
        assert asked_to_end == ["ended"]

    pauses.noted(lambda receive: receive())(receive=receive)
    assert asked_to_end == ["ended"]


def test_a_message_that_was_lost_on_the_way_keeps_nobody(
    pauses: Pauses, asked_to_end: list[str]
) -> None:
    def pull(receive: Callable[[], int]) -> None:
        receive()
        end()
        assert not asked_to_end

    assert pauses.noted(pull)(receive=lambda: 7) is None
    assert asked_to_end == ["ended"]


def test_each_request_names_the_process_and_each_answer_says_whether_it_was_held() -> None:
    class Connection:
        NodeAuthHttpInterceptor: Any = NodeAuthHttpInterceptor
        HeartbeatSender: Any = HeartbeatSender

    named = set()
    for _ in range(2):
        connection, pauses = Connection(), Pauses()
        speak_up(connection, pauses)
        own = connection.NodeAuthHttpInterceptor(*generate_key_pairs())
        for headers in ({}, {HELD_HEADER: "1"}):
            assert not pauses.was_held
            request = httpx.Request("POST", "https://server.test/")
            context = ProtobufRequestContext("call", Empty(), request)
            own.intercept(context, lambda _, h=headers: httpx.Response(200, headers=h))
            named.add(request.headers[SESSION_HEADER])
        assert pauses.was_held
    assert len(named) == 2


def test_a_request_whose_tls_connection_broke_is_repeated() -> None:
    """Not at the start, and not if the certificate is refused: these end the connection."""
    flower = sys.modules[http_request_response.__module__]
    assert "retry_invoker = make_simple_http_retry_invoker()" in inspect.getsource(
        http_request_response
    )
    broken = "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] bad record mac (_ssl.c:2580)"
    refused = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1000)"
    connection = SimpleNamespace(
        make_simple_http_retry_invoker=vars(flower)["make_simple_http_retry_invoker"]
    )
    repeat(connection)
    repeater = connection.make_simple_http_retry_invoker()
    waited: list[float] = []
    repeater.wait_function = waited.append

    def after(*failures: Exception) -> Callable[[], str]:
        """Return a request that fails with each of these, then is answered."""
        left = list(failures)

        def request() -> str:
            if left:
                raise left.pop(0)
            return "answered"

        return request

    for text in (broken, refused):
        with pytest.raises(httpx.ConnectError):
            repeater.invoke(after(httpx.ConnectError(text)))
    assert repeater.invoke(after()) == "answered"
    assert repeater.invoke(after(httpx.ReadError(broken), httpx.WriteError(broken))) == "answered"
    assert len(waited) == 2
    with pytest.raises(httpx.ConnectError):
        repeater.invoke(after(httpx.ConnectError(refused)))
    absent = httpx.Response(404, request=httpx.Request("POST", "https://server.test/"))
    with pytest.raises(httpx.HTTPStatusError):
        repeater.invoke(after(httpx.HTTPStatusError("no", request=absent.request, response=absent)))
    repeat(SimpleNamespace())  # a Flower that we do not know is left as it is
