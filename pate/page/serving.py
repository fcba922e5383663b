"""Serves a page in a thread, in parallel to the work that it shows.

The work never waits for it: a failure here is reported once, and the work continues.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Self

from pate.errors import PortInUseError, ProcessError
from pate.listening.bounded_listener import Room
from pate.listening.http_server import HttpServer
from pate.runtime.child import LOOPBACK, joined, listen
from pate.runtime.home import PAGE_TOKEN, kept_token

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from pate.listening.bounded_listener import BoundedListener
    from pate.listening.http_server import App
    from pate.runtime.screen import Screen

#: Most open connections: authenticated ones, and the same number of others.
_CONNECTIONS: Final = 64
_MAX_HEAD: Final = 16 * 1024


class TokenPage(ABC):
    """A page on a port, for whoever has the token in ``page.token``; use it as a context manager."""

    #: Default port; any free one if it is in use.
    default_port: int
    #: How to do without the page, and what continues without it.
    without: str
    what: str

    def __init__(
        self,
        home: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,  # 0 for any free one; None for the default
        certificate: tuple[Path, Path] | None = None,  # for TLS; needed unless the host is loopback
        names: tuple[str, ...] = (),  # of the certificate
        # called with a line for the screen and its level
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`."""
        self.home, self._say = home, say
        self._token = kept_token(home / PAGE_TOKEN)
        self._hosts = {*LOOPBACK, host, *names}
        self._http = HttpServer(
            self._listener(host, port),
            name="page",
            max_head=_MAX_HEAD,
            certificate=certificate,
            # The last line of defence: any error may end the page, and nothing else.
            on_fault=self._failed,
        )
        self.port = self._http.port
        self._secure = certificate is not None
        shown = names[0] if self._secure and names else host
        self.address = f"{'https' if self._secure else 'http'}://{joined(shown, self.port)}"
        self._closing = threading.Event()
        self._faults: set[str] = set()

    @abstractmethod
    def make_app(self, **access: Any) -> App:
        """Return the application; ``access``: most arguments of :func:`pate.page.app.page_app`."""

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
                f"{self.home / PAGE_TOKEN}"
            )

    def start(self) -> None:
        """Start serving; returns when it does."""
        # New connections are always accepted: a supervisor would end a campaign after an unanswered probe.
        try:
            self._http.start(Room(_CONNECTIONS, _CONNECTIONS), self._app)
        except ProcessError as error:
            raise ProcessError(f"{error}; {self.without}") from error

    def stop(self) -> None:
        """Stop serving and release the port. Harmless if it never started."""
        self._closing.set()
        self._http.stop()

    def _app(self, listener: BoundedListener) -> App:
        return self.make_app(
            token=self._token,
            hosts=self._hosts,
            # Browsers keep cookies by name and host, not by port.
            cookie=f"pate-page-{self.port}",
            secure=self._secure,
            closing=self._closing,
            on_fault=self._failed,
            keep=lambda client: listener.keep(client, "the token"),
        )

    def _listener(self, host: str, port: int | None) -> socket.socket:
        try:
            return listen(host, self.default_port if port is None else port)
        except PortInUseError as error:
            if port is None:
                return listen(host, 0)
            raise PortInUseError(
                f"port {port} of {host} is taken; stop what uses it, choose another with "
                f"--page-port, or {self.without}"
            ) from error

    def _failed(self, error: BaseException) -> None:
        """Report a failure, each kind once: a retrying browser would fill the screen."""
        kind = type(error).__name__
        if kind not in self._faults:
            self._faults.add(kind)
            self._say(f"the page failed ({kind}); {self.what} goes on without it", "warning")
