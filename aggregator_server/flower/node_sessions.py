"""Sessions: which process uses a node key, when another one may replace it, and long polling.

Flower considers a killed node connected for a minute, and refuses its key meanwhile. Here the key's
holder is admitted as soon as the earlier process is known to be silent: our SuperNode sends a
heartbeat at least every :data:`protos.flower.carriage.BEAT_S` seconds while its party computes,
and otherwise has a pull open.

Of two live processes with the same key (a copied home), the connected one stays: it sends
heartbeats, and the other is refused. A process that was silent and was replaced is refused from
then on, so the two do not alternate. Processes are distinguished by a random number that each sends
with its requests. It proves nothing: the signature of the key is checked first, and a false number
gives a process no power that the key does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aggregator_server.flower.internals import (
    KEY_REFUSED,
    activated_node,
    deactivation_of,
    pulling_node,
)
from pate.foreign import json_value
from protos.flower.carriage import HELD_HEADER, SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Headers = Iterable[tuple[bytes, bytes]]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
    #: Forwards a body to a path of the SuperLink, with the headers of the request.
    Ask = Callable[[str, bytes], Awaitable[Answer]]

ACTIVATE: Final = "/v1/fleet/activate-node"
DEACTIVATE: Final = "/v1/fleet/deactivate-node"
PULL: Final = "/v1/fleet/pull-messages"
#: Only in a trial, where each process has its own key.
_UNREGISTER: Final = "/v1/fleet/unregister-node"
#: Seconds of silence after which another process may replace a process.
SILENCE_S: Final = 6.0
_NUMBER: Final = SESSION_HEADER.encode()
_MAX_NUMBER: Final = 64
_OK: Final = 200
#: Seconds for which a pull is held. A SuperNode gives up a request after 30.
HOLD_S: Final = 10.0
_HELD: Final = (HELD_HEADER.encode(), b"1")
_OTHER_SESSION: Final[Answer] = (401, [(b"connection", b"close")], b"")


@dataclass
class _Session:
    """The process of a key: its number, its node, its last activity, its end."""

    number: bytes
    node: int
    heard: float
    has_left: bool = False
    spoke: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """Sessions of parties' processes. Used in one event loop."""

    def __init__(
        self,
        *,
        pulls: HeldPulls | None = None,
        # seconds without activity after which a process may be replaced
        silence: float = SILENCE_S,
        # called with a node key (PEM) whose holder asks for admission
        on_asking: Callable[[bytes], None] = lambda _: None,
        # called with the id of a node whose process is new
        on_arrived: Callable[[int], None] = lambda _: None,
        # called when there may be something new for the campaign
        on_news: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,  # seconds, monotonic
    ) -> None:
        """Start without sessions."""
        self.pulls = pulls or HeldPulls()
        self._silence = silence
        self._on_asking = on_asking
        self._on_arrived = on_arrived
        self.on_news = on_news
        self._clock = clock
        self._of: dict[bytes, _Session] = {}
        self._asking: set[bytes] = set()

    async def call(
        self, key: bytes, path: str, headers: Headers, body: bytes, ask: Ask, receive: Receive
    ) -> Answer:
        """Answer one request of a party with an admitted key.

        ``key``: the node key (PEM) that signed it; ``receive``: reports when the client has
        disconnected.
        """
        number = dict(headers).get(_NUMBER, b"")[:_MAX_NUMBER]
        if path == ACTIVATE:
            return await self._activate(key, number, body, ask)
        session = self._of.get(key)
        if session is not None and session.number != number and not session.has_left:
            return _OTHER_SESSION

        async def passed() -> Answer:
            answer = await ask(path, body)
            if answer[0] == _OK and session is not None:
                session.heard = self._clock()
                session.spoke.set()
            return answer

        node = pulling_node(body) if path == PULL else None
        if node is not None:
            return await self.pulls.pull(node, passed, receive)
        answer = await passed()
        if answer[0] == _OK and path == DEACTIVATE:
            self.on_news()
            if session is not None:
                session.has_left = True
        if answer[0] == _OK and path == _UNREGISTER:
            self._of.pop(key, None)
        return answer

    async def _activate(self, key: bytes, number: bytes, body: bytes, ask: Ask) -> Answer:
        """Admit a process, replacing a silent one of the same key."""
        answer = await ask(ACTIVATE, body)
        session, is_told = self._of.get(key), False
        if _is_connected_already(answer) and session is not None:
            self._on_asking(key)
            # One at a time: of two simultaneous requests the first wins.
            if key not in self._asking and await self._is_silent(key, session):
                # The SuperLink checks the same signature of the time again.
                if (await ask(DEACTIVATE, deactivation_of(session.node)))[0] == _OK:
                    # Before the new one is registered, so that the two are not confused.
                    self._on_arrived(session.node)
                    is_told = True
                answer = await ask(ACTIVATE, body)
        node = activated_node(answer[2]) if answer[0] == _OK else None
        if node is not None:
            self._of[key] = _Session(number, node, self._clock())
            self._on_asking(key)
            if session is not None and session.node == node and not is_told:
                self._on_arrived(node)
            self.on_news()
        return answer

    async def _is_silent(self, key: bytes, session: _Session) -> bool:
        """Wait until the process of a session shows activity, or has been silent for long enough."""
        self._asking.add(key)
        try:
            session.spoke.clear()
            # A process with a held pull is prompted: its pull is answered, and it pulls again.
            waits = self.pulls.release(session.node)
            since = self._clock() if waits else session.heard
            left = since + self._silence - self._clock()
            if left > 0:
                async with asyncio.timeout(left):
                    await session.spoke.wait()
                return False
        except TimeoutError:
            pass
        finally:
            self._asking.discard(key)
        return self._of.get(key) is session


def _is_connected_already(answer: Answer) -> bool:
    """Return whether a SuperLink refused a key with a valid signature because it is in use."""
    if answer[0] == _OK:
        return False
    try:
        told = json_value(answer[2])
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("code") == KEY_REFUSED


class HeldPulls:
    """Long polling: pulls are held until there is a message.

    A SuperNode polls for its next message: if often, a thousand of them keep the server busy; if
    seldom, each step of a sum waits for the slowest. So a pull that finds nothing is held until this
    server has sent something to that node, or for :data:`HOLD_S`. Then the node is asked to poll again,
    which our SuperNode does at once. An idle node costs one request in that time, and a message is
    fetched as soon as it was sent.

    A held pull is never answered with a message: the connection may have died unnoticed, and a
    SuperLink delivers a message once. A node has one held pull; a later one replaces it, so their
    number is bounded by the number of nodes.

    :meth:`pull` runs in one event loop, other methods in any thread.
    """

    def __init__(self, hold: float = HOLD_S) -> None:
        """Hold pulls for up to ``hold`` seconds."""
        self._hold = hold
        self._lock = threading.Lock()
        #: Number of messages sent to each node, so that none is missed between two checks.
        self._sent: Counter[int] = Counter()
        self._held: dict[int, _Held] = {}
        self._closed = False

    def wake(self, node: int) -> None:
        """Record that a message was sent to ``node``, and answer its held pull."""
        with self._lock:
            self._sent[node] += 1
            held = self._held.get(node)
        if held is not None:
            held.end()

    def release(self, node: int) -> bool:
        """Answer a held pull of ``node`` now; return whether there was one."""
        with self._lock:
            held = self._held.get(node)
        if held is not None:
            held.end()
        return held is not None

    def release_all(self) -> None:
        """Answer all held pulls."""
        with self._lock:
            released = list(self._held.values())
        for held in released:
            held.end()

    def close(self) -> None:
        """Answer all held pulls, and hold no more."""
        self._closed = True
        self.release_all()

    async def pull(
        self, node: int, ask: Callable[[], Awaitable[Answer]], receive: Receive
    ) -> Answer:
        """Answer a pull of ``node``: at once if there is a message, else when it should poll again.

        ``node``: of the pull, if the SuperLink accepts it: refused pulls are not held; ``receive``:
        reports when the client has disconnected.
        """
        sent = self._sent[node]
        answer = await ask()
        status, headers, body = answer
        if status != _OK or body or self._closed:
            return answer
        held = _Held()
        with self._lock:
            if self._sent[node] != sent:
                held.end()
            older = self._held.get(node)
            self._held[node] = held
        if older is not None:
            older.end()
        try:
            await held.wait(self._hold, receive)
        finally:
            with self._lock:
                if self._held.get(node) is held:
                    del self._held[node]
        return status, [*headers, _HELD], body


class _Held:
    """One held pull, in the event loop in which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()

    def end(self) -> None:
        """End the wait, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the wait
            self._loop.call_soon_threadsafe(self._over.set)

    async def wait(self, seconds: float, receive: Receive) -> None:
        """Wait for the end, or until the client has disconnected, at most ``seconds``."""
        either = {asyncio.ensure_future(self._over.wait()), asyncio.ensure_future(_gone(receive))}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in either:
                each.cancel()


async def _gone(receive: Receive) -> bool:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    return True
