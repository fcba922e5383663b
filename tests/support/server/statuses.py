"""Statuses of real ledgers, and a browser for their pages."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aggregator_server.exchange.presence import Presence
from aggregator_server.monitoring.serving import Page, PageServer
from aggregator_server.monitoring.status import Status
from pate.runtime.log import Line
from tests.support.needs import require
from tests.support.server.campaigns import NAMES, label, make_predictions, make_spec, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from aggregator_server.ledger.ledger import Ledger

INTERACTIVE = make_spec(
    name="chest-xray", aggregator="interactive-gnmax", rounds=2, queries=120, epsilon=6.0
)


def say(status: Status, text: str, level: str = "info") -> None:
    status.line(Line.now("pate-server", text, level))


@contextmanager
def a_campaign(folder: Path) -> Iterator[tuple[Ledger, Status]]:
    """An interactive campaign in its second round, with one of four parties away."""
    with start(folder / "campaign" / "ledger.db", INTERACTIVE) as ledger:
        label(ledger)
        ledger.end_round(wants_predictions=True)
        ledger.record_predictions(2, make_predictions(INTERACTIVE.queries))
        status = Status(ledger, accuracies=lambda: {2: 0.913})
        status.open_doors("127.0.0.1:9092", lambda: True)
        everybody = frozenset(NAMES)
        status.present(
            Presence(everybody - {"derwent"}, "masked votes", everybody, frozenset({"avon"}))
        )
        say(status, "avon joined: 25 teachers")
        yield ledger, status


@contextmanager
def a_page(status: Status, home: Path, port: int = 0) -> Iterator[Page]:
    with Page(status, PageServer(port=port), home) as page:
        yield page


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; the test is skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    require(found is not None, "Chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        require(condition=False, what="the package playwright")
        raise
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            yield browser
        finally:
            browser.close()
