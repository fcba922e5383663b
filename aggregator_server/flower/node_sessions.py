"""Which process speaks for a node key, and when another one may take its place.

Flower takes a node that was killed for connected for a minute, and lets nobody in with its key
meanwhile. Here the key's holder is let in as soon as the process before is known to be silent: a
SuperNode of ours says something at least every :data:`protos.flower.node_session.BEAT_S` seconds while its
party computes, and else has a pull under way.

Of two processes that live and hold the same key (a home that was copied), the one that is connected
stays: it speaks up, and the other is refused. One that was silent and has lost its place is refused
from then on, so the two do not take turns. A process is told from another by a number that it draws
at its start and sends with each request. It proves nothing: the signature of the key is checked before
anything that is decided here, and what one process of a key could do to another by a false number it
can do anyway.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aggregator_server.flower.internals import (
    KEY_REFUSED,
    activated_node,
    deactivation_of,
    pulling_node,
)
from protos.flower.node_session import SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from aggregator_server.flower.held_pulls import HeldPulls

    Headers = Iterable[tuple[bytes, bytes]]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]
    #: Passes a body on to a path of the SuperLink, with the headers of the request.
    Ask = Callable[[str, bytes], Awaitable[Answer]]

ACTIVATE: Final = "/v1/fleet/activate-node"
DEACTIVATE: Final = "/v1/fleet/deactivate-node"
PULL: Final = "/v1/fleet/pull-messages"
#: In a trial alone, where each process has a key of its own.
_UNREGISTER: Final = "/v1/fleet/unregister-node"
#: What brings something that the campaign may wait for.
_STIRS: Final = frozenset({DEACTIVATE})
#: After so many seconds without a word a process has lost its place, if another one asks for it.
SILENCE_S: Final = 6.0
_NUMBER: Final = SESSION_HEADER.encode()
_MAX_NUMBER: Final = 64
_OK: Final = 200
_OTHER_SESSION: Final[Answer] = (401, [(b"connection", b"close")], b"")


@dataclass
class _Session:
    """The process that speaks for a key: its number, its node, when it was last heard, its end."""

    number: bytes
    node: int
    heard: float
    has_left: bool = False
    spoke: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """What parties call, by the process that calls. It is used in one event loop."""

    def __init__(
        self,
        pulls: HeldPulls,
        *,
        silence: float = SILENCE_S,
        on_knock: Callable[[bytes], None] = lambda _: None,
        on_arrived: Callable[[int], None] = lambda _: None,
        on_stir: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with nobody.

        Args:
            pulls: where pulls wait.
            silence: seconds without a word after which a process may be replaced.
            on_knock: called with a node key (PEM) whose holder asks to be let in.
            on_arrived: called with the id of a node at which there is another process than before.
            on_stir: called when there may be something new for the campaign.
            clock: seconds, monotonic.
        """
        self._pulls = pulls
        self._silence = silence
        self._on_knock = on_knock
        self._on_arrived = on_arrived
        self._on_stir = on_stir
        self._clock = clock
        self._of: dict[bytes, _Session] = {}
        self._asking: set[bytes] = set()

    async def call(
        self, key: bytes, path: str, headers: Headers, body: bytes, ask: Ask, receive: Receive
    ) -> Answer:
        """Answer one request of a party whose key may pass.

        Args:
            key: the node key (PEM) whose holder signed it.
            path: one of Flower's for parties.
            headers: of the request.
            body: of the request.
            ask: passes it on to the SuperLink.
            receive: tells when whoever asks has gone.
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
            self._on_stir()
        if answer[0] == _OK and path == DEACTIVATE and session is not None:
            session.has_left = True
        if answer[0] == _OK and path == _UNREGISTER:
            self._of.pop(key, None)
        return answer

    async def _activate(self, key: bytes, number: bytes, body: bytes, ask: Ask) -> Answer:
        """Let a process in, in place of one of the same key that is silent."""
        answer = await ask(ACTIVATE, body)
        session, is_told = self._of.get(key), False
        if _is_connected_already(answer) and session is not None:
            self._on_knock(key)
            # One at a time: what two that ask together would decide is decided for the first.
            if key not in self._asking and await self._is_silent(key, session):
                # The SuperLink checks the same signature again, which is of the key and the time.
                if (await ask(DEACTIVATE, deactivation_of(session.node)))[0] == _OK:
                    # Before the new one is there, so that nobody takes it for the old one.
                    self._on_arrived(session.node)
                    is_told = True
                answer = await ask(ACTIVATE, body)
        node = activated_node(answer[2]) if answer[0] == _OK else None
        if node is not None:
            self._of[key] = _Session(number, node, self._clock())
            self._on_knock(key)
            if session is not None and session.node == node and not is_told:
                self._on_arrived(node)
            self._on_stir()
        return answer

    async def _is_silent(self, key: bytes, session: _Session) -> bool:
        """Wait until the process of a session has spoken, or has been silent for long enough."""
        self._asking.add(key)
        try:
            session.spoke.clear()
            # Who waits for a message is asked to speak: its pull is answered, and it pulls again.
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
    """Say whether a SuperLink refused a key, whose signature it accepts, as one that is in use."""
    if answer[0] == _OK:
        return False
    try:
        told = json.loads(answer[2])
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("code") == KEY_REFUSED
