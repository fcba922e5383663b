"""Serves the page in a thread, in parallel to a campaign.

The campaign never waits for it: a failure here is reported once, and the campaign continues.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

from aggregator_server.identities import require_identities
from aggregator_server.identities.authority import ends
from aggregator_server.identities.store import joined
from aggregator_server.listening.bounded_listener import Room
from aggregator_server.listening.http_server import HttpServer
from aggregator_server.monitoring.overview import Check
from aggregator_server.monitoring.status import Status
from pate.errors import PateError, PortInUseError, ProcessError
from pate.runtime.child import LOOPBACK, listen
from pate.runtime.home import PAGE_TOKEN, kept_token, write_file

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aggregator_server.identities import Identities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.listening.bounded_listener import BoundedListener
    from aggregator_server.listening.http_server import App
    from aggregator_server.monitoring.overview import Overview
    from aggregator_server.student_service import StudentService
    from pate.campaign.choices import Guess
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
        self._token = kept_token(home / PAGE_TOKEN)
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
                f"{self._home / PAGE_TOKEN}"
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
            with suppress(OSError, ValueError):
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


#: The page's last state, in the campaign's folder.
LAST_PAGE: Final = "page.html"


@contextmanager
def watched(
    ledger: Ledger,
    folder: Path,  # of the campaign, in the server's home
    door: PageServer | None,  # where the page listens; None: no page
    *,
    guess: Guess,  # the coordinator's, for what to expect
    identities: Identities | None,
    service: StudentService,
    screen: Screen,  # its lines are also shown on the page
) -> Iterator[Status]:
    """Show a campaign while the block runs; yields the status that the campaign updates.

    However the block ends, the page's last state is stored as a file in the campaign's folder, and browsers
    that follow it are told why it ends early.
    """
    status = Status(ledger, accuracies=lambda: service.accuracies, guess=guess)
    status.check(lambda: Check("ledger", ok=True, text="open; all of it was checked on opening"))
    status.check(lambda: _student(service))
    if identities is not None:
        status.check(lambda: _certificates(identities))
    page = None
    if door is not None:
        page = Page(
            status,
            door,
            folder.parent,
            identities=identities,
            students=lambda: service.followers,
            say=screen.say,
        )
        try:
            page.start()
        except ProcessError as error:
            screen.say(f"{error}; the campaign goes on", "warning")
            page = None
        else:
            page.tell(screen)
    # Only now, so that the page's log does not contain its secret link.
    end = screen.listen(status.line)
    try:
        yield status
    except BaseException as error:
        if ledger.state().phase != "finished":
            status.fail(_last_words(error))
        raise
    finally:
        end()
        if page is not None:
            page.stop()
        with suppress(PateError):  # the campaign's own error is the one that counts
            found = status.overview()
            write_file(folder / LAST_PAGE, found.to_html())
            if found.phase == "finished":
                screen.say(f"the page is stored in {folder / LAST_PAGE}")


def _last_words(error: BaseException) -> str:
    """Return why a run ended, for the page."""
    if isinstance(error, PateError):
        return str(error)
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "the server was stopped; `pate-server resume` continues the campaign"
    return f"{PateError.public}; `pate-server resume` continues the campaign"


def _student(service: StudentService) -> Check:
    count = service.followers
    who = {0: "no student follows", 1: "one student follows"}.get(count, f"{count} students follow")
    return Check("student", ok=True, text=f"labels are served on port {service.port}; {who}")


def _certificates(identities: Identities) -> Check:
    try:
        lines = identities.warnings(datetime.now(UTC))
    except (OSError, ValueError) as error:
        return Check("certificates", ok=False, text=f"cannot be read: {error}")
    return Check("certificates", not lines, "; ".join(lines) or "good for 30 days or more")
