"""The connection of a party: it answers messages, with its teachers in memory, until stopped.

Flower would start a new process for every message and run in it the code that the server's run
carries. Here the messages come to this process, the answers are computed by the installed code, and
a run that carries code is refused unread.
"""

from __future__ import annotations

import logging
import math
import random
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx
from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from party.flower.internals import (
    KEY_NEEDED,
    KEY_REFUSED,
    PIECE_ERRORS,
    PulledMessage,
    next_message,
)
from party.flower.supernode import ACCEPTED, SuperNode
from pate.errors import PateError, RefusedError, UnreachableError, UsageError
from pate.runtime.screen import Reminder
from protos.flower.carriage import pack, unpack_message
from protos.flower.runtime import ErrorCode, RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flwr.app import Context

    from party.flower.supernode import Server
    from party.monitoring import State

_log = logging.getLogger(__name__)

#: Seconds between polls of a SuperNode that does not hold polls open, or is still starting.
_POLL_S: Final = 0.1
_STARTING_S: Final = 0.05
#: Seconds between health checks of the server while idle.
_HEALTH_S: Final = 10.0
#: Seconds without the server after which the operator is informed.
_ABSENCE_S: Final = 180.0
_FIRST_PAUSE_S: Final = 1.0
#: Pause between the first health checks of a server that does not answer.
_OFTEN_S: Final = 0.5
_SOON_S: Final = 10.0
#: Time limit of the last health check before giving up.
_LEAST_PROBE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
#: A SuperNode that lived this long was connected: its end resets the pauses.
_SETTLED_S: Final = 15.0
#: How long a server may refuse a party's key before that is final: it learns of a new party within
#: a second, but considers a crashed party connected for about a minute.
REFUSAL_PATIENCE_S: Final = 120.0
_REFUSED_PAUSE_S: Final = 10.0


@dataclass(frozen=True)
class Timeouts:
    """How long a party waits, in seconds."""

    refusal: float = REFUSAL_PATIENCE_S  # after which a refusal by the server is final
    # after which the party gives up on a server that does not answer; None: never
    server: float | None = None
    # without an answer of the server, after which the operator is informed
    absence: float = _ABSENCE_S


class Connection:
    """The connection of one party to one server, re-established whenever it ends.

    It starts a SuperNode and answers its messages. It waits for an absent server, and restarts a
    SuperNode that ended, as it does whenever the server restarts.
    """

    def __init__(
        self,
        server: Server,
        app: ClientApp,  # computes the answers; see :func:`party.flower.connection.make_client_app`
        home: Path,  # directory for the SuperNode's log and secret, of only this party
        *,
        # file of the key that admits an enrolled party (OpenSSH format); used only over TLS
        node_key: Path | None = None,
        timeouts: Timeouts | None = None,  # how long the party waits for what; None: the defaults
        # called once per absence of the server, from the thread of :meth:`run`
        on_absence: Callable[[], None] = lambda: None,
        # called with one line for the operator on each change, from the thread of :meth:`run`
        on_event: Callable[[str], None] = lambda _: None,
        # called with the state of the connection, from that thread, too: connected once the
        # SuperNode answers, away while the server does not answer its health check
        on_state: Callable[[State], None] = lambda _: None,
    ) -> None:
        """Describe the connection; nothing is started yet."""
        if node_key is not None and server.in_clear:
            raise UsageError(
                f"the connection to {server.address} would be in clear text: an enrolled party uses TLS"
            )
        self._server = server
        self._node_key = node_key
        self._timeouts = timeouts or Timeouts()
        self._refused_since: float | None = None
        self._app = app
        self._home = home / "supernode"
        self._on_absence = on_absence
        self._is_told = False
        self._on_event = on_event
        self._on_state = on_state
        self._node: SuperNode | None = None
        self._unreachable_since: float | None = None
        self._was_connected = False

    @property
    def supernode_pid(self) -> int | None:
        """Process id of the SuperNode, None if there is none."""
        node = self._node
        return None if node is None else node.child.pid

    def run(self, stop: Callable[[], bool]) -> None:
        """Stay connected and answer until ``stop()`` returns True; then disconnect.

        ``stop``: called at least once a second, but never while an answer is being computed.
        """
        pauses = _Pauses()
        while not stop():
            self._on_state("connecting")
            # Started before the server is up, so that its imports are done meanwhile.
            self._node = SuperNode(self._home, self._server, self._node_key)
            try:
                if not self._wait_for_server(stop):
                    return
                began = time.monotonic()
                self._node.connect()
                self._serve(self._node, stop)
            finally:
                node, self._node = self._node, None
                node.stop()
            if stop():
                return
            if time.monotonic() - began > _SETTLED_S:
                pauses.reset()
                self._refused_since = None
            pause = pauses.next()
            if self._is_refused(node, began):
                pause = min(pause, _REFUSED_PAUSE_S)
                self._on_event(
                    f"{self._server.address} does not admit this party: not enrolled, revoked, or "
                    f"connected a moment ago; trying again in {pause:.0f} s"
                )
            else:
                self._on_event(
                    f"the connection to {self._server.address} ended "
                    f"(log: {node.child.log}); connecting again in {pause:.0f} s"
                )
            clock = self._server.clock
            if clock is not None and clock.is_refused():
                self._on_event(
                    f"this machine's clock is {clock.in_words} that of {self._server.address}, which "
                    f"refuses more than {ACCEPTED}: correct the clock that is wrong"
                )
            _sleep(pause, stop)

    def _is_refused(self, node: SuperNode, began: float) -> bool:
        """Return whether the server refused ``node``, which was started at ``began``."""
        code = node.refusal()
        if code == KEY_NEEDED:
            raise RefusedError(
                f"{self._server.address} admits only enrolled parties, and this is not one: ask "
                "its coordinator for a bundle, and `pate-party enroll` it"
            )
        if code != KEY_REFUSED:
            return False
        self._refused_since = self._refused_since or began
        waited = time.monotonic() - self._refused_since
        if waited >= self._timeouts.refusal:
            raise RefusedError(
                f"{self._server.address} has refused this party's key for {waited:.0f} s: it is "
                "no longer enrolled there, or another pate-party uses its key. The coordinator "
                "sees it with `pate-server parties`; a new bundle enrols it again"
            )
        return True

    def _wait_for_server(self, stop: Callable[[], bool]) -> bool:
        """Wait until the server answers its health check. False: ``stop()`` came first."""
        pauses = _Pauses(_OFTEN_S)
        reminder = Reminder(self._on_event)
        began = time.monotonic()
        while not stop():
            why = self._look()
            if why is None:
                return True
            pause = pauses.next()
            is_early = time.monotonic() - began < _SOON_S
            if is_early:
                # It may have been started with this party, and be ready in a moment.
                pauses.reset()
            pause = min(pause, self._left())
            is_new = is_early and not self._was_connected
            yet = "it may not be running yet; " if is_new else ""
            reminder.tell(f"{why}; {yet}trying again (Ctrl-C is safe)", about=why)
            _sleep(pause, stop)
        return False

    def _left(self) -> float:
        """Return how many more seconds to wait for a server that does not answer."""
        if self._timeouts.server is None or self._unreachable_since is None:
            return math.inf
        return max(0.0, self._unreachable_since + self._timeouts.server - time.monotonic())

    def _look(self) -> str | None:
        """Return why the server does not answer, or None if it does."""
        why = self._server.absence(within=max(_LEAST_PROBE_S, self._left()))
        if why is None:
            self._unreachable_since, self._is_told = None, False
            return None
        now = time.monotonic()
        self._unreachable_since = self._unreachable_since or now
        waited = now - self._unreachable_since
        if self._timeouts.server is not None and waited >= self._timeouts.server:
            raise UnreachableError(
                f"{why}; gave up after {waited:.0f} s. Check the address, and that the server runs "
                "and can be reached from here"
            )
        if waited >= self._timeouts.absence and not self._is_told:
            self._is_told = True
            self._on_absence()
        return why

    def _serve(self, node: SuperNode, stop: Callable[[], bool]) -> None:
        """Answer messages at ``node`` until it ends, becomes unusable, or ``stop()``."""
        looked, was_away, is_up = time.monotonic(), False, False
        with RuntimeClient.with_secret(node.address, node.secret) as client:
            while not stop() and node.child.running:
                asked = time.monotonic()
                try:
                    pulled = next_message(client, node.address)
                    if not is_up:
                        is_up = self._was_connected = True
                        self._on_event(f"connecting to {self._server.address}")
                        self._on_state("connected")
                    if pulled is not None:
                        with closing(pulled):
                            self._answer(pulled)
                        continue
                except httpx.ConnectError:
                    pass  # it is still starting, or has just ended
                except (httpx.HTTPError, TimeoutError, *PIECE_ERRORS) as error:
                    # It waits for an answer that it will not get: it must be replaced.
                    self._on_event(f"the connection is made anew: {error}")
                    return
                if time.monotonic() - looked > min(_HEALTH_S, self._left()):
                    looked, why = time.monotonic(), self._look()
                    if why is not None and not was_away:
                        self._on_event(f"{why}; the connection is kept, waiting")
                    if is_up and was_away != (why is not None):
                        self._on_state("connected" if why is None else "away")
                    was_away = why is not None
                pause = _POLL_S if is_up else _STARTING_S
                # Our SuperNode answers when there is a message, or after a while.
                if time.monotonic() - asked < pause:
                    node.child.ended(pause)

    def _answer(self, pulled: PulledMessage) -> None:
        """Compute and send one answer; an exception is sent as its class name."""
        if pulled.refusal is not None:
            self._on_event(f"refused: {pulled.refusal}")
            pulled.answer(pulled.error(RefusedError.__name__))
            return
        try:
            reply = self._app(message=pulled.message(), context=pulled.context)
        except (httpx.HTTPError, *PIECE_ERRORS):
            raise  # of the SuperNode: the app handles exceptions of its own code
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not leave
            _log.exception("a message of the server could not be read")
            reply = pulled.error(type(error).__name__)
        pulled.answer(reply)


class _Pauses:
    """Exponential backoff with jitter."""

    def __init__(self, first: float = _FIRST_PAUSE_S) -> None:
        self._first = first
        self.reset()

    def reset(self) -> None:
        self._pause = self._first

    def next(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_S)
        # Not a secret: it only spreads the load.
        return pause * random.uniform(0.75, 1.25)  # noqa: S311


def _sleep(seconds: float, stop: Callable[[], bool]) -> None:
    """Sleep, but not past ``stop()``."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))


# --- the Flower app: bytes in, bytes out; of an error only that there was one leaves --------------


def make_client_app(handle: Callable[[bytes], bytes]) -> ClientApp:
    """Return the app that answers each message of the server with ``handle``.

    ``handle``: takes the body of a message and returns the body of the answer. Its exceptions are
    logged here; the server gets one sentence, whatever it is: text and class of an exception can
    tell of a record.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, _context: Context) -> Message:
        try:
            return Message(pack(handle(unpack_message(message))), reply_to=message)
        except Exception:  # noqa: BLE001 - whatever it is, nothing of it must leave
            _log.exception("a message of the server could not be answered")
            failed = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, PateError.public)
            return Message(failed, reply_to=message)

    return app
