"""Monitoring of a running campaign: its status, its sources, and the page if there is one."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aggregator_server.monitoring.overview import Check
from aggregator_server.monitoring.serving import Page, PageServer
from aggregator_server.monitoring.status import Status
from pate.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aggregator_server.identities import Identities
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.student_service import StudentService
    from pate.runtime.screen import Screen


@contextmanager
def watched(
    ledger: Ledger,
    home: Path,
    door: PageServer | None,
    *,
    identities: Identities | None,
    service: StudentService,
    screen: Screen,
) -> Iterator[Status]:
    """Show a campaign while the block runs; yields the status that the campaign updates.

    Args:
        ledger: of the campaign.
        home: of the server.
        door: where the page listens; None: no page, and the status is unused.
        identities: the server's.
        service: of the student.
        screen: its lines are also shown on the page.

    Raises:
        PortInUseError: if a requested port is in use.
        UsageError, StateError, DiskError: if the page may not or cannot listen there.
    """
    status = Status(ledger, accuracies=lambda: service.accuracies)
    status.check(lambda: Check("ledger", ok=True, text="open; all of it was checked on opening"))
    status.check(lambda: _student(service))
    if identities is not None:
        status.check(lambda: _certificates(identities))
    if door is None:
        yield status
        return
    page = Page(
        status,
        door,
        home,
        identities=identities,
        students=lambda: service.followers,
        say=screen.say,
    )
    try:
        page.start()
    except ProcessError as error:
        screen.say(f"{error}; the campaign goes on", "warning")
        yield status
        return
    page.tell(screen)
    # Only now, so that the page's log does not contain its secret link.
    end = screen.listen(status.line)
    try:
        yield status
    finally:
        end()
        page.stop()


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
