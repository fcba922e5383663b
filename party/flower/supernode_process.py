"""Flower's SuperNode in our own process, which waits less and shuts down cleanly.

It is imported while the server is not ready yet, and starts on a signal of its parent. Then:

* Flower's SuperNode polls the server every three seconds, and each of the five steps of a masked
  sum waits for it. Our server holds a poll open until there is a message, and says so
  (:mod:`aggregator_server.flower.node_sessions`): then this one polls again at once, and otherwise
  every half second for a while after a message.
* It gives up on a stalled message after a minute instead of two hours (:func:`unless_silent`).
* Its party polls it ten times a second for tasks. Here that poll waits until a message is
  complete, or for :data:`HOLD_S`.
* While its party computes an answer it sends the server a heartbeat every few seconds, so that a
  killed node can be distinguished from a busy one (:mod:`aggregator_server.flower.node_sessions`).
* It repeats a request whose TLS connection broke (:func:`repeat`).
* When asked to stop it first sends the pending answer of its party.

Nothing else is changed. ``tests/test_flower_internals.py`` checks the names that this relies on;
without them Flower's SuperNode runs unchanged, and slower.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import httpx
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.main import create_app  # noqa: F401 - Flower would import it at the start
from flwr.supernode.servicer.runtime.runtime_handlers import acquire_task
from flwr.supernode.start_client_internal import start_client_internal

from pate.runtime.child import told
from protos.flower.carriage import BEAT_S, HELD_HEADER, SESSION_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    _Handler = Callable[[int, FrameType | None], Any] | int | None

#: The loop's functions for pulling messages and pushing answers.
_PULL: Final = "_pull_and_store_message"
_PUSH: Final = "_push_messages"
#: The function that answers the party's poll for tasks.
_ACQUIRE: Final = "acquire_task"
#: The heartbeat, and the signer of each request.
_HEARTBEAT: Final = "HeartbeatSender"
_SIGNER: Final = "NodeAuthHttpInterceptor"
#: The maker of the object that repeats failed requests.
_REPEATER: Final = "make_simple_http_retry_invoker"
#: Flower's pause between polls, and its replacement, in seconds.
SLOW_S: Final = 3
_QUICK_S: Final = 0.5
_BREATH_S: Final = 0.05
#: Seconds after a message during which polling is fast: parties may take that long to vote.
_LIVELY_S: Final = 120.0
#: Flower's pause between checks for the party's answer, and ours.
ANSWER_S: Final = 0.5
_LOOK_S: Final = 0.02
#: Longest wait of a party's poll for tasks, in seconds: it checks in between whether to stop.
HOLD_S: Final = 1.0


class Pauses:
    """Replacement for :mod:`time` in Flower's loop."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,  # seconds, monotonic
        sleep: Callable[[float], None] = time.sleep,  # waits that many seconds
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._last: float | None = None
        self.was_held = False  # whether the server held the last poll open
        self._is_asked = False  # a message has arrived, and its answer is not sent yet
        self._sends = False
        self._spoke = clock()
        self._ending: tuple[int, FrameType | None] | None = None
        self._patience = 0
        self._end: _Handler = signal.SIG_DFL
        # sends the server a heartbeat; None until there is a connection
        self.beat: Callable[[], object] | None = None
        #: A complete message has not been polled yet. Set at the start, so that the party's first
        #: poll is answered at once, by which it knows that this process is up.
        self._has_come = threading.Event()
        self._has_come.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def noted(self, pull: Callable[..., int | None]) -> Callable[..., int | None]:
        """Wrap ``pull`` so that it records the arrival of a message."""

        def pulling(*args: object, receive: Callable[[], Any], **kwargs: Any) -> int | None:
            if signal.getsignal(signal.SIGTERM) != self.ended:
                self._end = signal.signal(signal.SIGTERM, self.ended)
            if "pull_object" in kwargs:
                # A fresh timeout for the pieces of each message.
                kwargs["pull_object"] = unless_silent(kwargs["pull_object"])

            def receiving() -> Any:
                received = receive()
                # From here on the party may get the message, and answer it.
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
        """Wrap ``acquire`` so that it waits for a message, but not long."""

        def acquiring(*args: object, **kwargs: object) -> Any:
            self._has_come.wait(HOLD_S)
            # Cleared before the poll: a later message is found by the next poll.
            self._has_come.clear()
            return acquire(*args, **kwargs)

        return acquiring

    def sending(self, push: Callable[..., None]) -> Callable[..., None]:
        """Wrap ``push`` so that a request to stop waits until a pending answer is sent."""

        def pushing(*args: object, **kwargs: object) -> None:
            self._sends, self._patience, self._spoke = True, 1, self._clock()
            try:
                push(*args, **kwargs)
            finally:
                self._answered()

        return pushing

    def _answered(self) -> None:
        """Record that no answer is pending, and stop if that was requested."""
        self._is_asked = self._sends = False
        if self._ending is not None:
            self._leave(*self._ending)

    def ended(self, number: int, frame: FrameType | None) -> None:
        """Handle the request to stop: at once, or after the pending answer."""
        if self._is_asked and self._ending is None:
            self._ending = number, frame
        else:
            self._leave(number, frame)

    def sleep(self, seconds: float) -> None:
        """Sleep, but less than Flower would while messages arrive."""
        if self._sends and seconds == ANSWER_S:
            self._await_answer()
            return
        if seconds == SLOW_S:
            lively = self._last is not None and self._clock() - self._last < _LIVELY_S
            seconds = _BREATH_S if self.was_held else _QUICK_S if lively else seconds
        self._sleep(seconds)

    def _await_answer(self) -> None:
        if self._ending is not None:
            # The answer preceded the request to stop, so one more check would have found it.
            if self._patience == 0:
                self._leave(*self._ending)
            self._patience -= 1
        if self.beat is not None and self._clock() - self._spoke >= BEAT_S:
            with contextlib.suppress(Exception):  # Flower's own heartbeat handles failures
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
    """Run the SuperNode with the arguments of this process and the port from its parent."""
    pauses = Pauses()
    loop = sys.modules[start_client_internal.__module__]
    connection = sys.modules[http_request_response.__module__]
    _replace(loop, pauses)
    hold(sys.modules[acquire_task.__module__], pauses)
    speak_up(connection, pauses)
    repeat(connection)
    sys.argv += ["--port", told()]
    flower_supernode()


def _replace(loop: Any, pauses: Pauses) -> None:
    """Replace the pauses of Flower's loop, if it has the expected names."""
    pull, push = getattr(loop, _PULL, None), getattr(loop, _PUSH, None)
    if pull is None or push is None or not hasattr(loop, "time"):
        return
    setattr(loop, _PULL, pauses.noted(pull))
    setattr(loop, _PUSH, pauses.sending(push))
    loop.time = pauses


def hold(handlers: Any, pauses: Pauses) -> None:
    """Let the party's poll for tasks wait, if Flower's handler has the expected form."""
    acquire = getattr(handlers, _ACQUIRE, None)
    if acquire is not None:
        setattr(handlers, _ACQUIRE, pauses.holding(acquire))


def speak_up(connection: Any, pauses: Pauses) -> None:
    """Connect Flower's ``connection`` to ``pauses``, and name this process in each request."""
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


def repeat(connection: Any) -> None:
    """Let Flower's ``connection`` repeat a request whose TLS connection broke.

    Flower repeats a request after any other network error, but takes an error with "ssl" in its
    text for a failed handshake. Such an error while a message is fetched would lose the message.
    A refused certificate still ends the connection, and so does any error before the first answer.
    """
    make = getattr(connection, _REPEATER, None)
    if make is None:
        return

    def making() -> Any:
        repeater = make()
        gives_up, succeeded = repeater.should_giveup, repeater.on_success
        is_up = False

        def on_success(state: object) -> None:
            nonlocal is_up
            is_up = True
            succeeded(state)

        def should_giveup(error: Exception) -> bool:
            is_broken = isinstance(error, httpx.TransportError)
            if is_up and is_broken and "certificate" not in str(error).lower():
                return False
            return bool(gives_up(error))

        repeater.on_success, repeater.should_giveup = on_success, should_giveup
        return repeater

    setattr(connection, _REPEATER, making)


# --- a stalled message: pieces are waited for only while some arrive ------------------------------
# A SuperNode takes one message at a time, and Flower's waits up to two hours for a piece that its
# server announced and does not have. Other messages are blocked meanwhile.


#: How many seconds a server may have no piece for us. The time of a transfer does not count,
#: however slow the link.
SILENCE_S: Final = 60.0


def unless_silent(
    pull: Callable[..., bytes], clock: Callable[[], float] = time.monotonic
) -> Callable[..., bytes]:
    """Wrap ``pull`` so that it gives up on a stalled message.

    ``pull``: fetches a piece; it raises ObjectUnavailableError if the server has only announced it.
    The last of its arguments is the piece's name; ``clock``: seconds, monotonic.
    """
    last, under_way, lock = clock(), 0, threading.Lock()

    def pulling(*args: object) -> bytes:
        nonlocal last, under_way
        with lock:
            under_way += 1
        try:
            content = pull(*args)
        except ObjectUnavailableError:
            # Other pieces may be in transfer in other threads.
            if under_way == 1 and clock() - last > SILENCE_S:
                raise ObjectPullError(
                    str(args[-1]), f"the server has had nothing of it for {SILENCE_S:.0f} s"
                ) from None
            raise
        finally:
            with lock:
                under_way -= 1
        last = clock()
        return content

    return pulling
