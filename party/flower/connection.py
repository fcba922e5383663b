"""A party that stays connected and answers, with its teachers loaded, until it is told to stop.

Flower would start a new process for every message and run in it whatever code the server's run
carries. Here the messages come to this process, the answers are computed by the code that is
installed here, and a run that carries code of its own is refused unread.
"""

from __future__ import annotations

import logging
import math
import random
import time
from typing import TYPE_CHECKING, Final

import httpx

from party.flower.internals import (
    KEY_NEEDED,
    KEY_REFUSED,
    PIECE_ERRORS,
    PulledMessage,
    next_message,
)
from party.flower.supernode import Server, SuperNode, UntrustedServerError
from pate.errors import RefusedError, UnreachableError, UsageError
from pate.runtime.reminder import Reminder
from protos.flower.runtime import RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flwr.clientapp import ClientApp

    from party.monitoring.status import State

_log = logging.getLogger(__name__)

#: Between two looks at a SuperNode that does not hold a look open, and at one that is still starting,
#: in seconds.
_POLL_S: Final = 0.1
_STARTING_S: Final = 0.05
#: Between two looks at the server's health while nothing is asked.
_HEALTH_S: Final = 10.0
#: After so long without the server whoever waits is told what that may mean.
_ABSENCE_S: Final = 180.0
_FIRST_PAUSE_S: Final = 1.0
#: Between two looks for a server that does not answer, during the first seconds.
_OFTEN_S: Final = 0.5
_SOON_S: Final = 10.0
#: What the last look before a server is given up may take.
_LEAST_PROBE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
#: A SuperNode that lived this long was connected: its end starts the pauses anew.
_SETTLED_S: Final = 15.0
#: How long a server may refuse a party's key before that is final: it learns of a new party within
#: a second, but takes a party that crashed for connected for about a minute.
REFUSAL_PATIENCE_S: Final = 120.0
_REFUSED_PAUSE_S: Final = 10.0
#: A SuperLink takes what a node signed for so long, by both their clocks; a little less, in seconds.
_SKEW_S: Final = 240.0


class Connection:
    """The connection of one party to one server: made, kept, and made again.

    It starts a SuperNode and answers what arrives. A server that is not there (yet, or for a
    while) is waited for; a SuperNode that ends, as it does whenever the server starts anew, is
    started again.
    """

    def __init__(
        self,
        server: str,
        app: ClientApp,
        home: Path,
        *,
        root_certificates: Path | None = None,
        node_key: Path | None = None,
        refusal_patience: float = REFUSAL_PATIENCE_S,
        max_wait: float | None = None,
        absence: float = _ABSENCE_S,
        on_absence: Callable[[], None] = lambda: None,
        on_event: Callable[[str], None] = lambda _: None,
        on_state: Callable[[State], None] = lambda _: None,
    ) -> None:
        """Describe the connection; nothing is started yet.

        Args:
            server: ``host:port`` of the server.
            app: what answers; see :func:`party.flower.client_app.make_client_app`.
            home: directory for the SuperNode's log and secret; no two parties share one.
            root_certificates: certificates (PEM) that the server's must be signed by. Without it,
                a server on loopback is spoken to in clear, any other over TLS with the
                certificates of this system.
            node_key: file of the key by which an enrolled party is let in (OpenSSH format); it is
                used over TLS alone.
            refusal_patience: seconds after which a server that refuses this party is believed.
            max_wait: seconds after which a server that does not answer is given up; None: never.
            absence: seconds without an answer of the server after which ``on_absence`` is called;
                once each time that it goes away.
            on_absence: called then, from the thread of :meth:`run`.
            on_event: called with one line for the operator when something changes, from the
                thread of :meth:`run`.
            on_state: called with what the connection is now, from that thread too: connected from
                when the SuperNode answers, away while the server does not answer its health check.

        Raises:
            UsageError: if the address cannot be read, the certificates are not there, or a node
                key would be used in clear.
        """
        self._server = Server(server, root_certificates)
        if node_key is not None and self._server.in_clear:
            raise UsageError(f"{server} would be spoken to in clear: an enrolled party uses TLS")
        self._node_key = node_key
        self._refusal_patience = refusal_patience
        self._refused_since: float | None = None
        self._app = app
        self._home = home / "supernode"
        self._max_wait = max_wait
        self._absence = absence
        self._on_absence = on_absence
        self._is_told = False
        self._on_event = on_event
        self._on_state = on_state
        self._node: SuperNode | None = None
        self._unreachable_since: float | None = None

    @property
    def supernode_pid(self) -> int | None:
        """Process id of the SuperNode, or None while there is none."""
        node = self._node
        return None if node is None else node.child.pid

    def run(self, stop: Callable[[], bool]) -> None:
        """Be connected and answer until ``stop()`` says so; then leave in order.

        Args:
            stop: asked once a second or more often, and never while an answer is being computed.

        Raises:
            UnreachableError: if the server's certificate is not trusted, or it does not answer
                for longer than ``max_wait``.
            RefusedError: if the server lets enrolled parties in alone, and this is none, or is not
                any more.
            DiskError: if ``home`` cannot be written.
        """
        pauses = _Pauses()
        while not stop():
            self._on_state("connecting")
            # Before the server is there: what it imports is imported meanwhile.
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
                    f"{self._server.address} does not let this party in: not enrolled, revoked, or "
                    f"connected a moment ago; trying again in {pause:.0f} s"
                )
            else:
                self._on_event(
                    f"the connection to {self._server.address} ended "
                    f"(log: {node.child.log}); connecting again in {pause:.0f} s"
                )
            if abs(self._server.skew) > _SKEW_S:
                self._on_event(
                    f"the clocks of {self._server.address} and of this machine differ by "
                    f"{abs(self._server.skew) / 60:.0f} minutes, and who differs by five is not let "
                    "in: set the one that is wrong"
                )
            _sleep(pause, stop)

    def _is_refused(self, node: SuperNode, began: float) -> bool:
        """Say whether the server refused ``node``, which was started at ``began``.

        Raises:
            RefusedError: if it is not worth asking again.
        """
        code = node.refusal()
        if code == KEY_NEEDED:
            raise RefusedError(
                f"{self._server.address} lets in enrolled parties alone, and this is none: ask its "
                "coordinator for a bundle, and `pate-party enroll` it"
            )
        if code != KEY_REFUSED:
            return False
        self._refused_since = self._refused_since or began
        waited = time.monotonic() - self._refused_since
        if waited >= self._refusal_patience:
            raise RefusedError(
                f"{self._server.address} has refused this party's key for {waited:.0f} s: it is "
                "not enrolled there any more, or another pate-party uses its key. The coordinator "
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
                # It may have been started with us, and be there in a moment.
                pauses.reset()
            pause = min(pause, self._left())
            yet = "it may not be running yet; " if is_early else ""
            reminder.tell(f"{why}; {yet}trying again (Ctrl-C is safe)", about=why)
            _sleep(pause, stop)
        return False

    def _left(self) -> float:
        """Return how long a server that does not answer is still waited for, in seconds."""
        if self._max_wait is None or self._unreachable_since is None:
            return math.inf
        return max(0.0, self._unreachable_since + self._max_wait - time.monotonic())

    def _look(self) -> str | None:
        """Return why the server does not answer, or None if it does.

        Raises:
            UnreachableError: if it is not trusted, or has not answered for ``max_wait``.
        """
        try:
            self._server.probe(within=max(_LEAST_PROBE_S, self._left()))
        except UntrustedServerError:
            raise
        except UnreachableError as error:
            now = time.monotonic()
            self._unreachable_since = self._unreachable_since or now
            waited = now - self._unreachable_since
            if self._max_wait is not None and waited >= self._max_wait:
                raise UnreachableError(
                    f"{error}; given up after {waited:.0f} s. Check the address, and that the "
                    "server runs and can be reached from here"
                ) from error
            if waited >= self._absence and not self._is_told:
                self._is_told = True
                self._on_absence()
            return str(error)
        self._unreachable_since, self._is_told = None, False
        return None

    def _serve(self, node: SuperNode, stop: Callable[[], bool]) -> None:
        """Answer what arrives at ``node`` until it ends, or cannot be used, or ``stop()``."""
        looked, was_away, is_up = time.monotonic(), False, False
        with RuntimeClient.with_secret(node.address, node.secret) as door:
            while not stop() and node.child.running:
                asked = time.monotonic()
                try:
                    pulled = next_message(door, node.address)
                    if not is_up:
                        is_up = True
                        self._on_event(f"connecting to {self._server.address}")
                        self._on_state("connected")
                    if pulled is not None:
                        with pulled:
                            self._answer(pulled)
                        continue
                except httpx.ConnectError:
                    pass  # it is still starting, or has just ended
                except (httpx.HTTPError, TimeoutError, *PIECE_ERRORS) as error:
                    # It waits for an answer that it will not get: only a new one goes on.
                    _log.warning("the SuperNode cannot be used any more: %s", error)
                    return
                if time.monotonic() - looked > min(_HEALTH_S, self._left()):
                    looked, why = time.monotonic(), self._look()
                    if why is not None and not was_away:
                        self._on_event(f"{why}; the connection is kept, waiting")
                    if is_up and was_away != (why is not None):
                        self._on_state("connected" if why is None else "away")
                    was_away = why is not None
                pause = _POLL_S if is_up else _STARTING_S
                # One of ours answers when there is a message, or after a while.
                if time.monotonic() - asked < pause:
                    node.child.ended(pause)

    def _answer(self, pulled: PulledMessage) -> None:
        """Compute and send one answer. What the party's code raises becomes its class name."""
        if pulled.refusal is not None:
            self._on_event(f"refused: {pulled.refusal}")
            pulled.answer(pulled.error(RefusedError.__name__))
            return
        try:
            reply = self._app(message=pulled.message(), context=pulled.context)
        except (httpx.HTTPError, *PIECE_ERRORS):
            raise  # of the SuperNode: the app keeps what its own code raises to itself
        except Exception as error:  # noqa: BLE001 - whatever it is, its text must not leave
            _log.exception("a message of the server could not be read")
            reply = pulled.error(type(error).__name__)
        pulled.answer(reply)


class _Pauses:
    """Growing pauses between attempts, each a little different so that parties do not march."""

    def __init__(self, first: float = _FIRST_PAUSE_S) -> None:
        self._first = first
        self.reset()

    def reset(self) -> None:
        self._pause = self._first

    def next(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_S)
        # No secret depends on it: it only spreads the load.
        return pause * random.uniform(0.75, 1.25)  # noqa: S311


def _sleep(seconds: float, stop: Callable[[], bool]) -> None:
    """Sleep, but not past ``stop()``."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))
