"""The HTTP server of a party's monitoring: ``/metrics``, ``/healthz`` and ``/readyz``.

It is read-only, serves only these three paths, and limits the number and duration of connections,
of which the oldest is closed for a new one: no client and no failure here can stop the party, and a
probe gets its answer.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from pate.errors import PortInUseError
from pate.runtime.child import joined, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from party.monitoring.status import Status

_log = logging.getLogger(__name__)
#: Connections at a time.
_VISITORS: Final = 8
#: Timeout of a connection, in seconds.
_PATIENCE_S: Final = 5.0
_JSON: Final = "application/json"


@contextmanager
def watched(status: Status, home: Path, host: str, port: int) -> Iterator[str]:
    """Serve on ``host`` and ``port`` (0: any free one) while the block runs; yields the address.

    ``host``: address of this machine; anyone who can reach it may read everything here.
    """
    # Imported here, so that the first scrape does not import it while the party works.
    import party.monitoring.metrics  # noqa: F401

    try:
        listener = listen(host, port)
    except PortInUseError as error:
        raise PortInUseError(
            f"port {port} of {host} is taken; choose another with --metrics-port"
        ) from error
    server = _Server(listener, status, home)
    thread = threading.Thread(target=server.serve_forever, name="watch", daemon=True)
    thread.start()
    at = server.server_address[1]
    try:
        yield f"http://{joined(host, at)}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A server on a listening socket, with a bounded number of connections."""

    daemon_threads = True
    #: Do not wait at the end for unfinished requests.
    block_on_close = False

    def __init__(self, listener: socket.socket, status: Status, home: Path) -> None:
        self.address_family = listener.family
        super().__init__(listener.getsockname()[:2], _Visit, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.status, self.home = status, home
        self._room = threading.BoundedSemaphore(_VISITORS)
        self._lock = threading.Lock()
        #: The open connections, the oldest first.
        self._here: dict[Any, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            with self._lock, suppress(OSError, StopIteration):
                # A reader of the socket gets its end.
                next(iter(self._here)).shutdown(socket.SHUT_RDWR)
            if not self._room.acquire(timeout=_PATIENCE_S):
                self.shutdown_request(request)
                return
        with self._lock:
            self._here[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(request)
            raise

    def _leave(self, request: Any) -> None:
        with self._lock:
            self._here.pop(request, None)
        self._room.release()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or are too slow."""


class _Visit(BaseHTTPRequestHandler):
    """One request and its answer; the connection is closed after it."""

    server: _Server
    timeout = _PATIENCE_S
    server_version = "pate-party"
    sys_version = ""

    def do_GET(self) -> None:
        try:
            status, kind, body = self._answer(self.path.partition("?")[0])
        except Exception as error:  # noqa: BLE001 - whatever it is, the party must not be hurt
            _log.warning("cannot render metrics: %s: %s", type(error).__name__, error)
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, b"{}\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name is the library's

    def _answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        standing = self.server.status.standing
        if path == "/metrics":
            from party.monitoring.metrics import CONTENT_TYPE, render

            return (
                HTTPStatus.OK,
                CONTENT_TYPE,
                render(standing, self.server.home),
            )
        if path == "/healthz":
            return HTTPStatus.OK, _JSON, _told(standing.state)
        if path == "/readyz":
            ready = standing.state == "connected"
            status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
            return status, _JSON, _told(standing.state)
        return HTTPStatus.NOT_FOUND, _JSON, b"{}\n"

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes come every few seconds."""


def _told(state: str) -> bytes:
    return json.dumps({"state": state}).encode() + b"\n"
