"""Monitoring of a running campaign: its status, its sources, and the page if there is one."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from aggregator_server.monitoring.overview import Check
from aggregator_server.monitoring.serving import Page, PageServer
from aggregator_server.monitoring.status import Status
from pate.errors import PateError, ProcessError
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator_server.identities import Identities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.student_service import StudentService
    from pate.campaign.choices import Guess
    from pate.runtime.screen import Screen


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
