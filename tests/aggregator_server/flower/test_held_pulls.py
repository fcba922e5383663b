"""A pull waits until there is a message, and no message is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from aggregator_server.flower.node_sessions import HeldPulls

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aggregator_server.flower.node_sessions import Answer

EMPTY: Answer = (200, [], b"")
HELD: Answer = (200, [(b"pate-held", b"1")], b"")
FULL: Answer = (200, [], b"a message")
#: Longer than any test: a release only by this timeout would make a test hang.
LONG_S = 3600.0


class Superlink:
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


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 60))


async def until_held(pulls: HeldPulls, node: int) -> None:
    while node not in pulls._held:
        await asyncio.sleep(0)


def test_what_is_there_is_given_at_once_and_a_refusal_too() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Superlink()
        link.waiting = [(401, [], b""), FULL]
        assert await pulls.pull(7, link.ask, Caller().receive) == FULL
        assert await pulls.pull(7, link.ask, Caller().receive) == (401, [], b"")

    play(scene())


def test_a_pull_waits_for_the_message_and_leaves_it_to_the_next() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Superlink()
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
        pulls, link = HeldPulls(LONG_S), Superlink()

        async def ask() -> Answer:
            answer = await link.ask()
            pulls.wake(7)
            return answer

        assert await pulls.pull(7, ask, Caller().receive) == HELD

    play(scene())


def test_after_a_while_it_is_answered_with_nothing() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(0.01), Superlink()
        assert await pulls.pull(7, link.ask, Caller().receive) == HELD

    play(scene())


def test_one_that_has_gone_is_not_waited_with() -> None:
    async def scene() -> None:
        pulls, link, caller = HeldPulls(LONG_S), Superlink(), Caller()
        pull = asyncio.create_task(pulls.pull(7, link.ask, caller.receive))
        await until_held(pulls, 7)
        caller.gone.set()
        await pull
        assert not pulls._held

    play(scene())


def test_a_node_holds_one_pull() -> None:
    async def scene() -> None:
        pulls, link = HeldPulls(LONG_S), Superlink()
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
        pulls, link = HeldPulls(LONG_S), Superlink()
        assert not pulls.release(7)
        for end in (lambda: pulls.release(7), pulls.close):
            pull = asyncio.create_task(pulls.pull(7, link.ask, Caller().receive))
            await until_held(pulls, 7)
            end()
            assert await pull == HELD
        assert await pulls.pull(7, link.ask, Caller().receive) == EMPTY

    play(scene())
