"""Flower's SuperNode as a process of ours, which waits less and leaves in order.

It is imported while the server is not ready yet, and begins when its parent says so. Then:

* Between two looks at the server Flower's SuperNode sleeps three seconds, always. A masked sum has
  five steps, each of which waits for it. Our server holds a look open until there is a message, and
  says so (:mod:`aggregator_server.flower.held_pulls`): after that this one looks again at once, and else it
  sleeps half a second for a while after a message.
* A message of which nothing comes is given up after a minute, not after two hours
  (:mod:`party.flower.pieces`).
* Its party asks it ten times a second whether there is something to do. Here that question waits
  until a message is all here, or for :data:`HOLD_S`.
* While its party computes an answer it tells the server every few seconds that it is there, so that
  one that was killed is known from one that is busy (:mod:`aggregator_server.flower.node_sessions`).
* When it is asked to end it first sends the answer that its party has given it.

Nothing else of it is changed. ``tests/test_flower_internals.py`` holds the names that this relies
on; without them it is Flower's SuperNode as it is, and slower.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.main import create_app  # noqa: F401 - Flower would import it at the start
from flwr.supernode.servicer.runtime.runtime_handlers import acquire_task
from flwr.supernode.start_client_internal import start_client_internal

from party.flower.pieces import unless_silent
from pate.runtime.child import told
from protos.flower.node_session import BEAT_S, HELD_HEADER, SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    _Handler = Callable[[int, FrameType | None], Any] | int | None

#: What the loop gets messages with, and what it sends answers with.
_PULL: Final = "_pull_and_store_message"
_PUSH: Final = "_push_messages"
#: What the party's question for something to do is answered with.
_ACQUIRE: Final = "acquire_task"
#: What tells the server that the node is there, and what signs each request.
_HEARTBEAT: Final = "HeartbeatSender"
_SIGNER: Final = "NodeAuthHttpInterceptor"
#: Flower's own pause between two looks, and the one that takes its place, in seconds.
SLOW_S: Final = 3
_QUICK_S: Final = 0.5
_BREATH_S: Final = 0.05
#: How long after a message the next one is looked for soon: parties may take that long to train
#: nothing more and vote.
_LIVELY_S: Final = 120.0
#: Flower's pause between two looks at what the party has answered, and ours.
ANSWER_S: Final = 0.5
_LOOK_S: Final = 0.02
#: How long a party that asks for something to do waits at most, in seconds: it looks up in between,
#: to see whether it is to stop.
HOLD_S: Final = 1.0


class Pauses:
    """Stands in for :mod:`time` in Flower's loop.

    Args:
        clock: seconds, monotonic.
        sleep: waits that many seconds.

    Attributes:
        beat: tells the server that this node is there; None until there is a connection.
        was_held: whether the server held the last look open.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._last: float | None = None
        self.was_held = False
        self._is_asked = False  # a message has come, and its answer has not gone
        self._sends = False
        self._spoke = clock()
        self._ending: tuple[int, FrameType | None] | None = None
        self._patience = 0
        self._end: _Handler = signal.SIG_DFL
        self.beat: Callable[[], object] | None = None
        #: A message is all here, and nobody has asked for it since. At the start, so that the party's
        #: first question is answered at once: by that it knows that this process is up.
        self._has_come = threading.Event()
        self._has_come.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def noted(self, pull: Callable[..., int | None]) -> Callable[..., int | None]:
        """Return ``pull`` so that it notes when it got a message."""

        def pulling(*args: object, receive: Callable[[], Any], **kwargs: Any) -> int | None:
            if signal.getsignal(signal.SIGTERM) != self.ended:
                self._end = signal.signal(signal.SIGTERM, self.ended)
            if "pull_object" in kwargs:
                # For each message anew: its pieces are what is waited for.
                kwargs["pull_object"] = unless_silent(kwargs["pull_object"])

            def receiving() -> Any:
                received = receive()
                # From here on the party may have the message, and answer it.
                self._is_asked = received is not None
                return received

            self.was_held = False
            run = pull(*args, receive=receiving, **kwargs)
            if run is not None:
                self._last = self._clock()
                self._has_come.set()
            else:
                self._answered()
            return run

        return pulling

    def holding(self, acquire: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``acquire`` so that it waits until there may be a message, at most a while."""

        def acquiring(*args: object, **kwargs: object) -> Any:
            self._has_come.wait(HOLD_S)
            # Before the look: what comes after it is seen by the next one.
            self._has_come.clear()
            return acquire(*args, **kwargs)

        return acquiring

    def sending(self, push: Callable[..., None]) -> Callable[..., None]:
        """Return ``push`` so that a request to end waits until an answer that is there is sent."""

        def pushing(*args: object, **kwargs: object) -> None:
            self._sends, self._patience, self._spoke = True, 1, self._clock()
            try:
                push(*args, **kwargs)
            finally:
                self._answered()

        return pushing

    def _answered(self) -> None:
        """Take note that there is nothing to answer any more, and end if that was waited for."""
        self._is_asked = self._sends = False
        if self._ending is not None:
            self._leave(*self._ending)

    def ended(self, number: int, frame: FrameType | None) -> None:
        """Take the request to end: at once, or after the answer that is there."""
        if self._is_asked and self._ending is None:
            self._ending = number, frame
        else:
            self._leave(number, frame)

    def sleep(self, seconds: float) -> None:
        """Sleep, and less than Flower would while messages come."""
        if self._sends and seconds == ANSWER_S:
            self._await_answer()
            return
        if seconds == SLOW_S:
            lively = self._last is not None and self._clock() - self._last < _LIVELY_S
            seconds = _BREATH_S if self.was_held else _QUICK_S if lively else seconds
        self._sleep(seconds)

    def _await_answer(self) -> None:
        if self._ending is not None:
            # An answer was given before the request to end, so one more look would have found it.
            if self._patience == 0:
                self._leave(*self._ending)
            self._patience -= 1
        if self.beat is not None and self._clock() - self._spoke >= BEAT_S:
            with contextlib.suppress(Exception):  # Flower's own heartbeat decides what it means
                self.beat()
            self._spoke = self._clock()
        self._sleep(_LOOK_S)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._is_asked, self._sends, self._ending = False, False, None
        if callable(self._end):
            self._end(number, frame)
        else:
            sys.exit(0)


def main() -> None:
    """Run the SuperNode with the arguments of this process and the port that its parent says."""
    pauses = Pauses()
    loop = sys.modules[start_client_internal.__module__]
    connection = sys.modules[http_request_response.__module__]
    _replace(loop, pauses)
    hold(sys.modules[acquire_task.__module__], pauses)
    speak_up(connection, pauses)
    sys.argv += ["--port", told()]
    flower_supernode()


def _replace(loop: Any, pauses: Pauses) -> None:
    """Let Flower's loop pause as ours does, if it has what that needs."""
    pull, push = getattr(loop, _PULL, None), getattr(loop, _PUSH, None)
    if pull is None or push is None or not hasattr(loop, "time"):
        return
    setattr(loop, _PULL, pauses.noted(pull))
    setattr(loop, _PUSH, pauses.sending(push))
    loop.time = pauses


def hold(handlers: Any, pauses: Pauses) -> None:
    """Let the party's question for something to do wait, if Flower answers it as we know it."""
    acquire = getattr(handlers, _ACQUIRE, None)
    if acquire is not None:
        setattr(handlers, _ACQUIRE, pauses.holding(acquire))


def speak_up(connection: Any, pauses: Pauses) -> None:
    """Join Flower's ``connection`` to ``pauses``, and let each request name this process."""
    number = secrets.token_hex(16)
    signer, heartbeat = getattr(connection, _SIGNER, None), getattr(connection, _HEARTBEAT, None)
    if signer is None or heartbeat is None:
        return

    class NamingSigner(signer):  # type: ignore[misc, valid-type]
        def intercept(self, context: Any, call_next: Any) -> Any:
            context.request.headers[SESSION_HEADER] = number
            answer = super().intercept(context, call_next)
            if HELD_HEADER in answer.headers:
                pauses.was_held = True
            return answer

    class LoudHeartbeat(heartbeat):  # type: ignore[misc, valid-type]
        def __init__(self, beat: Callable[[], bool]) -> None:
            super().__init__(beat)
            pauses.beat = beat

    setattr(connection, _SIGNER, NamingSigner)
    setattr(connection, _HEARTBEAT, LoudHeartbeat)
