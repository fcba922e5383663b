"""A public HTTP server in a thread, shared by the gateway and the page."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pate.errors import ProcessError
from pate.listening.bounded_listener import BoundedListener

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from pate.listening.bounded_listener import Room

    #: An ASGI application.
    App: TypeAlias = Callable[..., Any]

_START_S: Final = 30.0
_STOP_S: Final = 10.0


class HttpServer:
    """An application on a port, in a thread."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        name: str,  # of the thread, and in messages
        max_head: int,  # largest head of a request (its line and headers), in bytes
        certificate: tuple[Path, Path] | None,  # chain and key (PEM), for TLS 1.3; None: clear text
        # called in the thread with the error that ended it; None: the error is raised there
        on_fault: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Take over a listening socket. Nothing is served before :meth:`start`."""
        self.port = int(listener.getsockname()[1])
        self._listener = listener
        self._name, self._max_head, self._on_fault = name, max_head, on_fault
        self._certificate = certificate
        self._server: Any = None  # uvicorn, imported on demand
        self._thread: threading.Thread | None = None

    def start(self, room: Room, make_app: Callable[[BoundedListener], App]) -> None:
        """Start serving; returns when it does.

        ``make_app``: returns the application, given the listener, to which it reports authenticated
        peers.
        """
        import uvicorn

        from pate.listening.timeouts import BoundedHead, protocol_of, quiet_uvicorn

        quiet_uvicorn()
        listener = self._listener = BoundedListener(self._listener, room)
        chain, key = map(str, self._certificate) if self._certificate else (None, None)
        config = uvicorn.Config(
            BoundedHead(make_app(listener), self._max_head),
            lifespan="on",
            ws="none",
            # uvicorn's other parser bounds neither headers nor the request line.
            http=protocol_of(listener),
            h11_max_incomplete_event_size=self._max_head,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # no trust in forwarded addresses
            timeout_graceful_shutdown=2,
            ssl_certfile=chain,
            ssl_keyfile=key,
        )
        config.load()
        if config.ssl is not None:
            # Both ends are ours, and TLS 1.2 shows certificates to observers.
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ProcessError(f"the {self._name} at port {self.port} did not start")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop serving and release the port. Harmless if it never started."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_S)
        self._listener.close()

    def _serve(self) -> None:
        from pate.listening.timeouts import Loop

        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(self._server.serve(sockets=[self._listener]))
        except (Exception, SystemExit) as error:
            if self._on_fault is None:
                raise
            self._on_fault(error)
