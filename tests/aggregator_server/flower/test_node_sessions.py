"""A node's admission while its earlier process seems connected, and pulls that wait for a message."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from flwr.proto.fleet_pb2 import ActivateNodeResponse, DeactivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node

from aggregator_server.flower.deployment import Deployment
from aggregator_server.flower.internals import KEY_NEEDED, KEY_REFUSED
from aggregator_server.flower.node_sessions import ACTIVATE, DEACTIVATE, PULL, HeldPulls, Sessions
from protos.flower.carriage import SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from aggregator_server.flower.node_sessions import Answer


HEARTBEAT = "/v1/fleet/send-node-heartbeat"
KEY, NODE = b"a key", 1234
SILENCE_S = 6.0


def refusal(code: int) -> Answer:
    return 412, [], json.dumps({"code": code, "detail": "no"}).encode()


class Superlink:
    """Admits a node unless it is online, as Flower does, and never a wrong signature."""

    def __init__(self) -> None:
        self.online = False
        self.calls: list[str] = []
        self.refuses: Answer | None = None

    async def ask(self, path: str, body: bytes) -> Answer:
        self.calls.append(path)
        if self.refuses is not None:
            return self.refuses
        if path == ACTIVATE:
            if self.online:
                return refusal(KEY_REFUSED)
            self.online = True
            return 200, [], ActivateNodeResponse(node_id=NODE).SerializeToString()
        if path == DEACTIVATE:
            assert DeactivateNodeRequest.FromString(body).node_id == NODE
            self.online = False
        return 200, [], b""


class Stage:
    """A gateway's sessions, and processes that call."""

    def __init__(self, silence: float = SILENCE_S) -> None:
        self.now = 1000.0
        self.link = Superlink()
        self.asking: list[bytes] = []
        self.arrived: list[int] = []
        self.pulls = HeldPulls(3600.0)
        self.sessions = Sessions(
            pulls=self.pulls,
            silence=silence,
            on_asking=self.asking.append,
            on_arrived=self.arrived.append,
            clock=lambda: self.now,
        )

    async def call(self, path: str, process: bytes, body: bytes = b"") -> int:
        async def never() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        headers = [(SESSION_HEADER.encode(), process)]
        answer = await self.sessions.call(KEY, path, headers, body, self.link.ask, never)
        return answer[0]

    async def pull(self, process: bytes) -> int:
        return await self.call(
            PULL, process, PullMessagesRequest(node=Node(node_id=NODE)).SerializeToString()
        )


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 60))


def test_one_that_was_silent_is_replaced_and_is_refused_from_then_on() -> None:
    async def scene() -> None:
        stage = Stage()
        assert await stage.call(ACTIVATE, b"old") == 200
        assert await stage.call(HEARTBEAT, b"old") == 200
        stage.now += SILENCE_S
        assert await stage.call(ACTIVATE, b"new") == 200
        assert stage.link.calls[-3:] == [ACTIVATE, DEACTIVATE, ACTIVATE]
        assert stage.arrived == [NODE], "the first one comes to a node at which nobody was"
        assert await stage.call(HEARTBEAT, b"new") == 200
        # It would otherwise take the new one's messages, and its node away as it leaves.
        for path in (HEARTBEAT, PULL, DEACTIVATE):
            assert await stage.call(path, b"old") == 401
        assert stage.link.calls[-1] == HEARTBEAT
        assert stage.link.online

    play(scene())


def test_one_that_speaks_stays_and_the_other_is_refused() -> None:
    async def scene() -> None:
        stage = Stage()
        assert await stage.call(ACTIVATE, b"old") == 200
        copy = asyncio.create_task(stage.call(ACTIVATE, b"copy"))
        while not stage.sessions._asking:
            await asyncio.sleep(0)
        assert await stage.call(HEARTBEAT, b"old") == 200
        assert await copy == 412
        assert DEACTIVATE not in stage.link.calls
        assert await stage.call(HEARTBEAT, b"copy") == 401
        assert stage.asking == [KEY, KEY]

    play(scene())


def test_one_that_waits_for_a_message_is_asked_to_speak() -> None:
    async def scene() -> None:
        stage = Stage()
        assert await stage.call(ACTIVATE, b"old") == 200
        pull = asyncio.create_task(stage.pull(b"old"))
        while NODE not in stage.pulls._held:
            await asyncio.sleep(0)
        stage.now += 15  # a pull is held for longer than whoever is silent is waited for
        copy = asyncio.create_task(stage.call(ACTIVATE, b"copy"))
        assert await pull == 200
        again = asyncio.create_task(stage.pull(b"old"))
        assert await copy == 412
        stage.pulls.close()
        assert await again == 200

    play(scene())


def test_one_whose_pull_nobody_reads_is_replaced() -> None:
    async def scene() -> None:
        stage = Stage(silence=0.01)
        assert await stage.call(ACTIVATE, b"old") == 200
        pull = asyncio.create_task(stage.pull(b"old"))
        while NODE not in stage.pulls._held:
            await asyncio.sleep(0)
        assert await stage.call(ACTIVATE, b"new") == 200
        await pull

    play(scene())


@pytest.mark.parametrize("answer", [(401, [], b""), refusal(KEY_NEEDED), (503, [], b"[]")])
def test_what_the_superlink_refuses_for_another_reason_replaces_nobody(answer: Answer) -> None:
    async def scene() -> None:
        stage = Stage()
        assert await stage.call(ACTIVATE, b"old") == 200
        stage.now += 3600
        stage.link.refuses = answer
        assert await stage.call(ACTIVATE, b"forged") == answer[0]
        # Nor does a refused request count as a word of whoever it pretends to be.
        assert await stage.call(HEARTBEAT, b"old") == answer[0]
        assert stage.sessions._of[KEY].heard == 1000.0
        assert stage.link.calls == [ACTIVATE, ACTIVATE, HEARTBEAT]
        assert stage.asking == [KEY]

    play(scene())


def test_of_two_that_ask_together_one_is_let_in() -> None:
    async def scene() -> None:
        stage = Stage(silence=0.01)
        assert await stage.call(ACTIVATE, b"old") == 200
        both = await asyncio.gather(stage.call(ACTIVATE, b"one"), stage.call(ACTIVATE, b"two"))
        assert sorted(both) == [200, 412]

    play(scene())


def test_whoever_left_in_order_leaves_the_place_free() -> None:
    async def scene() -> None:
        stage = Stage()
        assert await stage.call(ACTIVATE, b"old") == 200
        leaving = DeactivateNodeRequest(node_id=NODE).SerializeToString()
        assert await stage.call(DEACTIVATE, b"old", leaving) == 200
        assert await stage.call(ACTIVATE, b"new") == 200
        assert stage.link.calls == [ACTIVATE, DEACTIVATE, ACTIVATE]
        assert stage.arrived == [NODE]
        assert await stage.call(HEARTBEAT, b"old") == 401

    play(scene())


def test_an_enrolled_party_that_asks_for_admission_counts_as_coming_back_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path)
    try:
        deployment._name_of = {b"a key": "hospital_a"}
        deployment._asks(b"a stranger's")
        assert deployment.carrier.returning() == frozenset()
        deployment._asks(b"a key")
        assert deployment.carrier.returning() == {"hospital_a"}
        deployment.carrier.pause(3600.0)  # which the question ends
        monkeypatch.setattr("aggregator_server.flower.deployment._RETURNING_S", 0.0)
        assert deployment.carrier.returning() == frozenset()
    finally:
        deployment.close()


EMPTY: Answer = (200, [], b"")
HELD: Answer = (200, [(b"pate-held", b"1")], b"")
FULL: Answer = (200, [], b"a message")
#: Longer than any test: a release only by this timeout would make a test hang.
LONG_S = 3600.0


class Mailbox:
    """Replaces a SuperLink: delivers what is put into it, once."""

    def __init__(self) -> None:
        self.waiting: list[Answer] = []
        self.asked = 0

    async def ask(self) -> Answer:
        self.asked += 1
        return self.waiting.pop() if self.waiting else EMPTY


class Caller:
    """The sender of a request, until it disconnects."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def until_held(pulls: HeldPulls, node: int) -> None:
    while node not in pulls._held:
        await asyncio.sleep(0)


def test_what_is_there_is_given_at_once_and_a_refusal_too() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Mailbox()
        link.waiting = [(401, [], b""), FULL]
        assert await pulls.pull(7, link.ask, Caller().receive) == FULL
        assert await pulls.pull(7, link.ask, Caller().receive) == (401, [], b"")

    play(scene())


def test_a_pull_waits_for_the_message_and_leaves_it_to_the_next() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Mailbox()
        pull = asyncio.create_task(pulls.pull(7, link.ask, Caller().receive))
        await until_held(pulls, 7)
        pulls.wake(8)  # another's
        for _ in range(10):
            await asyncio.sleep(0)
        assert not pull.done()
        link.waiting.append(FULL)
        threading.Thread(target=pulls.wake, args=(7,)).start()
        # Its connection may be dead: a message delivered there would be lost.
        assert await pull == HELD
        assert not pulls._held
        assert await pulls.pull(7, link.ask, Caller().receive) == FULL
        assert link.asked == 2

    play(scene())


def test_a_message_that_is_sent_while_the_superlink_answers_is_not_missed() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Mailbox()

        async def ask() -> Answer:
            answer = await link.ask()
            pulls.wake(7)
            return answer

        assert await pulls.pull(7, ask, Caller().receive) == HELD

    play(scene())


def test_after_a_while_it_is_answered_with_nothing() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(0.01), Mailbox()
        assert await pulls.pull(7, link.ask, Caller().receive) == HELD

    play(scene())


def test_one_that_has_gone_is_not_waited_with() -> None:
    async def scene() -> None:
        pulls, link, caller = HeldPulls(LONG_S), Mailbox(), Caller()
        pull = asyncio.create_task(pulls.pull(7, link.ask, caller.receive))
        await until_held(pulls, 7)
        caller.gone.set()
        await pull
        assert not pulls._held

    play(scene())


def test_a_node_holds_one_pull() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Mailbox()
        older = asyncio.create_task(pulls.pull(7, link.ask, Caller().receive))
        await until_held(pulls, 7)
        newer = asyncio.create_task(pulls.pull(7, link.ask, Caller().receive))
        assert await older == HELD
        assert len(pulls._held) == 1
        assert not newer.done()
        pulls.wake(7)
        assert await newer == HELD

    play(scene())


def test_one_can_be_released_and_at_the_end_all_are_and_none_is_held_any_more() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Mailbox()
        assert not pulls.release(7)
        for end in (lambda: pulls.release(7), pulls.close):
            pull = asyncio.create_task(pulls.pull(7, link.ask, Caller().receive))
            await until_held(pulls, 7)
            end()
            assert await pull == HELD
        assert await pulls.pull(7, link.ask, Caller().receive) == EMPTY

    play(scene())
