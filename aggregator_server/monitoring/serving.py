"""Serves the page in a thread, in parallel to a campaign.

The campaign never waits for it: a failure here is reported once, and the campaign continues.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from aggregator_server.identities import require_identities
from aggregator_server.identities.authority import ends
from aggregator_server.identities.store import joined
from aggregator_server.listening.bounded_listener import Room
from aggregator_server.listening.http_server import HttpServer
from aggregator_server.monitoring.token import TOKEN_FILE, kept_token
from pate.errors import PortInUseError, ProcessError
from pate.runtime.child import LOOPBACK, listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from aggregator_server.identities import Identities
    from aggregator_server.listening.bounded_listener import BoundedListener
    from aggregator_server.listening.http_server import App
    from aggregator_server.monitoring.overview import Overview
    from aggregator_server.monitoring.status import Status
    from pate.runtime.screen import Screen

#: Default port of the page; any free port if it is in use.
DEFAULT_PORT: Final = 9094
#: Most open connections: authenticated ones, and the same number of others.
_CONNECTIONS: Final = 64
_MAX_HEAD: Final = 16 * 1024


@dataclass(frozen=True)
class PageServer:
    """Where the page listens."""

    # an address of this machine; other than loopback needs the server's certificate
    host: str = "127.0.0.1"
    # 0 for any free one; None for :data:`DEFAULT_PORT`, or any free one if that is in use
    port: int | None = None


class Page:
    """A campaign's status on a port; use it as a context manager."""

    def __init__(
        self,
        status: Status,
        door: PageServer,
        home: Path,
        *,
        # the server's, for TLS, needed unless the host is loopback
        identities: Identities | None = None,
        students: Callable[[], int] = lambda: 0,  # returns the number of connected students
        # called with a line for the server's screen and its level
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`."""
        require_identities(door.host, identities)
        outside = door.host not in LOOPBACK
        names = () if identities is None else tuple(identities.hosts)
        self._identities = identities
        self._status, self._home, self._students, self._say = status, home, students, say
        self._token = kept_token(home)
        self._hosts = {*LOOPBACK, door.host, *names}
        files = identities if outside else None
        self._http = HttpServer(
            _listener(door),
            name="page",
            max_head=_MAX_HEAD,
            certificate=None if files is None else (files.certificate, files.certificate_key),
            # The last line of defence: any error may end the page, and nothing else.
            on_fault=self._failed,
        )
        self.port = self._http.port
        shown = names[0] if outside and names else door.host
        self.address = f"{'https' if outside else 'http'}://{joined(shown, self.port)}"
        self._closing = threading.Event()
        self._faults: set[str] = set()

    @property
    def link(self) -> str:
        """The link that opens the page in a browser. It contains the token: secret."""
        return f"{self.address}/?token={self._token}"

    def __enter__(self) -> Self:
        """Start; see :meth:`start`."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def tell(self, screen: Screen) -> None:
        """Report the page's address; the token is shown on a terminal only, never in a log."""
        if screen.live:
            screen.say(f"page: {self.link}")
        else:
            screen.say(
                f"page: {self.address}/ ; to open it the first time add ?token= and what is in "
                f"{self._home / TOKEN_FILE}"
            )

    def start(self) -> None:
        """Start serving; returns when it does."""
        # New connections are always accepted: a supervisor would end the campaign after an unanswered probe.
        try:
            self._http.start(Room(_CONNECTIONS, _CONNECTIONS), self._app)
        except ProcessError as error:
            raise ProcessError(f"{error}; try --no-page") from error

    def _app(self, listener: BoundedListener) -> App:
        from aggregator_server.monitoring.app import make_app

        return make_app(
            self._status,
            token=self._token,
            hosts=self._hosts,
            # Browsers keep cookies by name and host, not by port.
            cookie=f"pate-page-{self.port}",
            secure=self.address.startswith("https"),
            closing=self._closing,
            scrape=self._scrape,
            on_fault=self._failed,
            keep=lambda client: listener.keep(client, "the token"),
        )

    def stop(self) -> None:
        """Stop serving and release the port. Harmless if it never started."""
        self._closing.set()
        self._http.stop()

    def _failed(self, error: BaseException) -> None:
        """Report a failure, each kind once: a retrying browser would fill the screen."""
        kind = type(error).__name__
        if kind not in self._faults:
            self._faults.add(kind)
            self._say(f"the page failed ({kind}); the campaign goes on without it", "warning")

    def _scrape(self, overview: Overview, streams: int) -> bytes:
        from aggregator_server.monitoring import metrics

        return metrics.render(
            replace(overview, made=self._status.time()),
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
            # The file is missing during `pate-server rotate`, or if it was moved.
            with contextlib.suppress(OSError, ValueError):
                end = ends(path.read_bytes())
                found = end if found is None else min(found, end)
        return found


def _listener(door: PageServer) -> socket.socket:
    try:
        return listen(door.host, DEFAULT_PORT if door.port is None else door.port)
    except PortInUseError as error:
        if door.port is None:
            return listen(door.host, 0)
        raise PortInUseError(
            f"port {door.port} of {door.host} is taken; stop what uses it, choose another with "
            "--page-port, or do without the page: --no-page"
        ) from error
