"""The server's page, with metrics and two probes, served in a thread in parallel to a campaign.

The campaign never waits for it: a failure here is reported once, and the campaign continues.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from fastapi import Response
from fastapi.responses import PlainTextResponse

from aggregator_server.identities import require_identities
from aggregator_server.identities.authority import ends
from aggregator_server.monitoring.overview import FILES, Check
from aggregator_server.monitoring.status import Status
from pate.errors import PateError, ProcessError
from pate.page.serving import TokenPage, page_app
from pate.runtime.child import LOOPBACK
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from aggregator_server.identities import Identities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.monitoring.overview import Overview
    from aggregator_server.student_service import StudentService
    from pate.campaign.choices import Guess
    from pate.listening.http_server import App
    from pate.runtime.screen import Screen

#: Default port of the page; any free port if it is in use.
DEFAULT_PORT: Final = 9094


@dataclass(frozen=True)
class PageServer:
    """Where the page listens."""

    # an address of this machine; other than loopback needs the server's certificate
    host: str = "127.0.0.1"
    # 0 for any free one; None for :data:`DEFAULT_PORT`, or any free one if that is in use
    port: int | None = None


class Page(TokenPage):
    """A campaign's status on a port; use it as a context manager."""

    default_port = DEFAULT_PORT
    without = "do without the page: --no-page"
    what = "the campaign"

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
        files = None if door.host in LOOPBACK else identities
        super().__init__(
            home,
            host=door.host,
            port=door.port,
            certificate=None if files is None else (files.certificate, files.certificate_key),
            names=() if identities is None else tuple(identities.hosts),
            say=say,
        )
        self._identities, self._status, self._students = identities, status, students

    def make_app(self, **access: Any) -> App:
        """Return the application, with metrics of this process."""
        return make_app(self._status, scrape=self._scrape, **access)

    def _scrape(self, overview: Overview, streams: int) -> bytes:
        from aggregator_server.monitoring import metrics

        return metrics.render(
            replace(overview, made=self._status.time()),
            home=self.home,
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
    return Check("student", ok=True, text=f"results are served on port {service.port}; {who}")


def _certificates(identities: Identities) -> Check:
    try:
        lines = identities.warnings(datetime.now(UTC))
    except (OSError, ValueError) as error:
        return Check("certificates", ok=False, text=f"cannot be read: {error}")
    return Check("certificates", not lines, "; ".join(lines) or "good for 30 days or more")


FAILED: Final = "the page failed; the campaign goes on"


class _Told:
    """The current overview and its JSON text, computed once for all readers."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._last: tuple[Overview, str] | None = None

    def __call__(self) -> tuple[Overview, str]:
        found = self._status.overview()
        last = self._last
        if last is None or last[0] is not found:
            last = self._last = found, json.dumps(found.to_json(), allow_nan=False)
        return last


def make_app(
    status: Status,
    *,
    token: str,  # authorises reading
    hosts: Collection[str],  # host names and addresses that requests may name
    cookie: str = "pate-page",
    secure: bool = False,
    closing: threading.Event | None = None,
    # renders metrics from an overview and the number of following browsers
    scrape: Callable[[Overview, int], bytes] | None = None,
    on_fault: Callable[[BaseException], None] = lambda _: None,
    **access: Any,  # see :class:`pate.page.access.PageAccess`
) -> FastAPI:
    """Return the application that shows a campaign's status."""
    from aggregator_server.monitoring import metrics

    told, following = _Told(status), set[int]()
    app = page_app(
        lambda: told()[1],
        FILES,
        closing=closing or threading.Event(),
        following=following,
        on_fault=on_fault,
        failed=FAILED,
        token=token,
        hosts=hosts,
        cookie=cookie,
        secure=secure,
        program="pate-server",
        **access,
    )

    @app.get("/metrics")
    def measured() -> Response:
        found = told()[0]
        content = metrics.render(found) if scrape is None else scrape(found, len(following))
        return Response(content, media_type=metrics.CONTENT_TYPE)

    @app.get("/healthz")
    async def alive() -> Response:
        return PlainTextResponse("alive\n")

    @app.get("/readyz")
    def ready() -> Response:
        fit = status.ready()
        return PlainTextResponse("ready\n" if fit else "not ready\n", 200 if fit else 503)

    return app
