"""The page, served beside a campaign by a thread of its own.

The campaign never waits for it and does not notice its end: what fails here is said once, and the
campaign goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from aggregator_server.identities import require_identities
from aggregator_server.identities.authority import ends
from aggregator_server.identities.store import joined
from aggregator_server.monitoring.token import TOKEN_FILE, kept_token
from pate.errors import PortInUseError, ProcessError
from pate.runtime.child import LOOPBACK, listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from aggregator_server.identities import Identities
    from aggregator_server.monitoring.board import Board
    from aggregator_server.monitoring.overview import Overview
    from pate.runtime.screen import Screen

#: Where the page is unless told otherwise; any free port if somebody else is there.
DEFAULT_PORT: Final = 9094
#: Connections that are held at a time: those with the token, and as many again for all else.
_CONNECTIONS: Final = 64
_MAX_HEAD: Final = 16 * 1024
_START_S: Final = 30.0
_STOP_S: Final = 10.0


@dataclass(frozen=True)
class PageDoor:
    """Where the page listens.

    Attributes:
        host: an address of this machine; other than loopback needs the server's certificate.
        port: 0 for any free one; None for :data:`DEFAULT_PORT`, or any free one if that is taken.
    """

    host: str = "127.0.0.1"
    port: int | None = None


class Page:
    """A board on a port; use it as a context manager.

    Attributes:
        port: where it listens.
        address: where it is, without the token.
    """

    def __init__(
        self,
        board: Board,
        door: PageDoor,
        home: Path,
        *,
        identities: Identities | None = None,
        students: Callable[[], int] = lambda: 0,
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`.

        Args:
            board: what is shown.
            door: where.
            home: of the server; its token lies there.
            identities: the server's, for TLS where the page is reached from outside.
            students: says how many students are connected now.
            say: a line for the server's screen, and how grave it is.

        Raises:
            PortInUseError: if somebody else has the port.
            UsageError: if the host is reached from outside and there is no certificate.
            StateError: if the token is damaged.
            DiskError: if it cannot be written.
        """
        require_identities(door.host, identities)
        outside = door.host not in LOOPBACK
        names = () if identities is None else tuple(identities.hosts)
        self._identities = identities
        self._certificate = identities if outside else None
        self._board, self._home, self._students, self._say = board, home, students, say
        self._token = kept_token(home)
        self._hosts = {*LOOPBACK, door.host, *names}
        self._listener = _listener(door)
        self.port = int(self._listener.getsockname()[1])
        shown = names[0] if outside and names else door.host
        self.address = f"{'https' if outside else 'http'}://{joined(shown, self.port)}"
        self._closing = threading.Event()
        self._faults: set[str] = set()
        self._server: Any = None  # uvicorn's
        self._thread: threading.Thread | None = None

    @property
    def link(self) -> str:
        """What opens the page in a browser. It is a secret."""
        return f"{self.address}/?token={self._token}"

    def __enter__(self) -> Self:
        """Start; see :meth:`start`."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def tell(self, screen: Screen) -> None:
        """Say where the page is; the token is for a person's screen, and not for a log."""
        if screen.live:
            screen.say(f"page: {self.link}")
        else:
            screen.say(
                f"page: {self.address}/ ; to open it the first time add ?token= and what is in "
                f"{self._home / TOKEN_FILE}"
            )

    def start(self) -> None:
        """Begin to serve, and return when it does.

        Raises:
            ProcessError: if it does not.
        """
        import uvicorn

        from aggregator_server.flower.bounded_listener import BoundedListener, Room
        from aggregator_server.flower.listening import BoundedHead, protocol_of, quiet_uvicorn
        from aggregator_server.monitoring.app import make_app

        quiet_uvicorn()
        files = self._certificate
        # Whoever asks anew is let in, whatever others hold: a probe that got no answer would have
        # the campaign ended.
        room = Room(_CONNECTIONS, _CONNECTIONS)
        listener = self._listener = BoundedListener(self._listener, room)
        app = make_app(
            self._board,
            token=self._token,
            hosts=self._hosts,
            # Browsers keep cookies by name and host, not by port.
            cookie=f"pate-page-{self.port}",
            secure=files is not None,
            closing=self._closing,
            scrape=self._scrape,
            on_fault=self._failed,
            keep=lambda client: listener.keep(client, "the token"),
        )
        config = uvicorn.Config(
            BoundedHead(app, _MAX_HEAD),
            lifespan="off",
            ws="none",
            http=protocol_of(listener),
            h11_max_incomplete_event_size=_MAX_HEAD,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
            ssl_certfile=None if files is None else str(files.certificate),
            ssl_keyfile=None if files is None else str(files.certificate_key),
        )
        config.load()
        if config.ssl is not None:
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="page", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ProcessError(f"the page at port {self.port} did not start; try --no-page")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop serving and give the port back. Harmless if it never started."""
        self._closing.set()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_S)
        self._listener.close()

    def _serve(self) -> None:
        from aggregator_server.flower.listening import Loop

        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(self._server.serve(sockets=[self._listener]))
        # The last line of defence: whatever it was, it must not be more than the end of the page.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """Say what failed: each kind once, else a browser that tries again fills the screen."""
        kind = type(error).__name__
        if kind not in self._faults:
            self._faults.add(kind)
            self._say(f"the page failed ({kind}); the campaign goes on without it", "warning")

    def _scrape(self, overview: Overview, streams: int) -> bytes:
        from aggregator_server.monitoring import metrics

        return metrics.render(
            replace(overview, made=self._board.time()),
            home=self._home,
            certificate_ends=self._certificates_end(),
            students=self._students(),
            streams=streams,
        )

    def _certificates_end(self) -> datetime | None:
        if self._identities is None:
            return None
        found = None
        for path in (self._identities.ca, self._identities.certificate):
            # While `pate-server rotate` is at it, or if somebody moved it: there is none to tell.
            with contextlib.suppress(OSError, ValueError):
                end = ends(path.read_bytes())
                found = end if found is None else min(found, end)
        return found


def _listener(door: PageDoor) -> socket.socket:
    try:
        return listen(door.host, DEFAULT_PORT if door.port is None else door.port)
    except PortInUseError as error:
        if door.port is None:
            return listen(door.host, 0)
        raise PortInUseError(
            f"port {door.port} of {door.host} is taken; stop what uses it, choose another with "
            "--page-port, or do without the page: --no-page"
        ) from error
