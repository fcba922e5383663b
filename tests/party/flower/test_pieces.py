"""A party's messages: in pieces, while the server is absent, and of a failure only that there was one."""

from __future__ import annotations

import inspect
import threading
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectUnavailableError,
    pull_objects,
)
from flwr.supernode import start_client_internal

from aggregator_server.flower.internals import query
from party.flower import connection as resident
from party.flower.connection import Connection, Timeouts, make_client_app
from party.flower.supernode import Server
from party.flower.supernode_process import SILENCE_S, Pauses, unless_silent
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.session import of_absence
from pate.errors import PateError, UnreachableError
from pate.runtime.child import free_port
from protos.flower.carriage import pack, unpack_message
from tests.support.party.offers import answer, joining, queries, settled


class Store:
    """Pieces that a server has, and a clock that each look at it moves by a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0
        self.has: dict[str, float] = {}

    def clock(self) -> float:
        return self.now

    def pull(self, run: int, name: str) -> bytes:
        assert run == 7
        self.looks += 1
        self.now += 1.0
        if self.has.get(name, 1e9) > self.now:
            raise ObjectUnavailableError(name)
        return name.encode()


def fetched(store: Store, *names: str) -> dict[str, bytes]:
    """Fetch pieces as a SuperNode does, but without pauses."""
    pull = unless_silent(store.pull, store.clock)
    return pull_objects(
        list(names), lambda name: pull(7, name), max_concurrent_pulls=1, initial_backoff=0.0
    )


def test_pieces_that_come_are_waited_for() -> None:
    """Each a little before the patience with it ends, and together much later."""
    store = Store()
    names = [f"piece {at}" for at in range(5)]
    store.has = {name: (at + 1) * (SILENCE_S - 5) for at, name in enumerate(names)}
    assert fetched(store, *names) == {name: name.encode() for name in names}
    assert store.now > 4 * SILENCE_S


def test_a_piece_that_never_comes_is_given_up() -> None:
    store = Store()
    store.has = {"first": 30.0}
    with pytest.raises(ObjectPullError, match="nothing of it for 60 s"):
        fetched(store, "first", "never")
    assert 30 + SILENCE_S <= store.now <= 30 + SILENCE_S + 5


def test_one_that_is_on_its_way_is_progress() -> None:
    """A slow link: one piece takes minutes, and others are asked for in vain meanwhile."""
    store, comes = Store(), threading.Event()
    slow_began = threading.Event()

    def pull(name: str) -> bytes:
        if name == "slow":
            slow_began.set()
            assert comes.wait(10)
            return b"slow"
        return store.pull(7, name)

    pulling = unless_silent(pull, store.clock)
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(pulling("slow")))
    thread.start()
    assert slow_began.wait(10)
    for _ in range(200):
        with pytest.raises(ObjectUnavailableError):
            pulling("other")
    comes.set()
    thread.join()
    assert found == [b"slow"]


def test_flowers_loop_fetches_pieces_with_what_is_replaced() -> None:
    """By this name the loop gets it, and calls it with the run and the piece."""
    loop = inspect.getsource(start_client_internal)
    assert "pull_object=pull_object," in loop
    assert "pull_object(run_id, obj_id)" in loop
    given: list[object] = []

    def pull(**kwargs: object) -> None:
        given.append(kwargs["pull_object"])

    def original(_run: int, name: str) -> bytes:
        return name.encode()

    noted = Pauses().noted(pull)
    noted(receive=lambda: None, pull_object=original)
    noted(receive=lambda: None, pull_object=original)
    (first, second) = given
    assert callable(first)
    assert first(7, "x") == b"x"
    assert len({id(original), id(first), id(second)}) == 3, "each message has its own patience"


def test_the_line_says_what_our_ledger_knows(tmp_path: Path) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    assert "no campaign was joined yet" in of_absence(ledger)
    answer(ledger, settled(), queries(0, 3))
    assert of_absence(ledger).startswith(
        "campaign c1c1c1c1 may have ended while this party was away"
    )
    ledger.join(joining(campaign="d2" * 16))
    assert "campaign d2d2d2d2 may have ended" in of_absence(ledger)
    ledger.end("c1" * 16, queries_asked=3, labels_released=3, epsilon=1.5, delta=1e-5)
    # What was heard last is what whoever waits here is about.
    assert of_absence(ledger).startswith("campaign c1c1c1c1 has ended, according to our ledger")


@pytest.mark.parametrize(("absence", "max_wait", "times"), [(0.0, 2.0, 1), (3600.0, 0.5, 0)])
def test_it_is_said_once_when_the_server_is_away_for_long(
    tmp_path: Path, absence: float, max_wait: float, times: int
) -> None:
    said: list[str] = []
    with pytest.raises(UnreachableError, match="gave up after"):
        Connection(
            Server(f"127.0.0.1:{free_port()}"),
            ClientApp(),
            tmp_path,
            timeouts=Timeouts(server=max_wait, absence=absence),
            on_absence=lambda: said.append("away"),
        ).run(lambda: False)
    assert len(said) == times


class Away:
    """Stands in for the clock, a server that never answers, and the SuperNode that waits for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(resident, "time", self)
        monkeypatch.setattr(Server, "probe", self.probe)
        monkeypatch.setattr(resident, "SuperNode", lambda *_: self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def probe(self, *, within: float) -> None:
        self.now += min(within, 5.0)
        raise UnreachableError("nobody answers")

    def stop(self) -> None: ...


@pytest.mark.parametrize("max_wait", [3.0, 17.0, 90.0, 3600.0])
def test_a_server_is_waited_for_as_long_as_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_wait: float
) -> None:
    away, said = Away(monkeypatch), list[str]()
    connection = Connection(
        Server("127.0.0.1:1"),
        ClientApp(),
        tmp_path,
        timeouts=Timeouts(server=max_wait),
        on_event=said.append,
    )
    with pytest.raises(UnreachableError, match="gave up after"):
        connection.run(lambda: False)
    # The first look ends after 5 seconds, and the last one may take one.
    assert max_wait <= away.now - 1005 <= max_wait + 1.5
    assert len(said) <= 2 + max_wait / 25 + 6


CONTEXT = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})


def ask(content: RecordDict) -> Message:
    def handle(body: bytes) -> bytes:
        if body == b"bad":
            raise ValueError("secret 42")
        return body[::-1]

    return make_client_app(handle)(message=query(1, 5, content, 60.0), context=CONTEXT)


def test_the_body_goes_to_the_handler_and_its_answer_back() -> None:
    assert unpack_message(ask(pack(b"abc"))) == b"cba"


def test_an_exception_is_logged_here_and_no_more_than_that_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reply = ask(pack(b"bad"))
    assert reply.error.reason == PateError.public
    assert "secret 42" in caplog.text


def test_a_message_that_is_not_ours_is_answered_alike() -> None:
    assert ask(RecordDict({"x": ConfigRecord()})).error.reason == PateError.public
