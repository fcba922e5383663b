"""Sessions: which process uses a node key, and when another one may replace it.

Flower considers a killed node connected for a minute, and refuses its key meanwhile. Here the key's
holder is admitted as soon as the earlier process is known to be silent: our SuperNode sends a
heartbeat at least every :data:`protos.flower.node_session.BEAT_S` seconds while its party computes,
and otherwise has a pull open.

Of two live processes with the same key (a copied home), the connected one stays: it sends
heartbeats, and the other is refused. A process that was silent and was replaced is refused from
then on, so the two do not alternate. Processes are distinguished by a random number that each sends
with its requests. It proves nothing: the signature of the key is checked first, and a false number
gives a process no power that the key does not.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aggregator_server.flower.internals import (
    KEY_REFUSED,
    activated_node,
    deactivation_of,
    pulling_node,
)
from pate.foreign import json_value
from protos.flower.node_session import SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from aggregator_server.flower.held_pulls import HeldPulls

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
#: Calls that may bring something that the campaign waits for.
_STIRS: Final = frozenset({DEACTIVATE})
#: Seconds of silence after which another process may replace a process.
SILENCE_S: Final = 6.0
_NUMBER: Final = SESSION_HEADER.encode()
_MAX_NUMBER: Final = 64
_OK: Final = 200
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
        pulls: HeldPulls,
        *,
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
        self._pulls = pulls
        self._silence = silence
        self._on_asking = on_asking
        self._on_arrived = on_arrived
        self._on_news = on_news
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
            return await self._pulls.pull(node, passed, receive)
        answer = await passed()
        if answer[0] == _OK and path in _STIRS:
            self._on_news()
        if answer[0] == _OK and path == DEACTIVATE and session is not None:
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
            self._on_news()
        return answer

    async def _is_silent(self, key: bytes, session: _Session) -> bool:
        """Wait until the process of a session shows activity, or has been silent for long enough."""
        self._asking.add(key)
        try:
            session.spoke.clear()
            # A process with a held pull is prompted: its pull is answered, and it pulls again.
            waits = self._pulls.release(session.node)
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
