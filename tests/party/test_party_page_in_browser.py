"""A party's page in a real browser: an answer, hostile text, another origin, and a real campaign."""

from __future__ import annotations

import http.server
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.data.values import Images, Table
from pate.runtime.home import PAGE_TOKEN
from tests.aggregator_server.monitoring.test_page_in_browser import (
    FOCUSABLE,
    FOCUSED,
    HOSTILE,
    PHONE,
    POOR_CONTRAST,
    SOON_MS,
    WIDE,
    open_tab,
)
from tests.support.party.offers import answer, joining, queries, settled
from tests.support.party.pages import Desk
from tests.support.processes.programs import until
from tests.support.server.statuses import chromium
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser


pytestmark = pytest.mark.slow

OFFER = joining(classes=("no", HOSTILE), schema=f"table {HOSTILE}:number")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.mark.parametrize(("says", "scheme"), [("allow", "light"), ("refuse", "dark")])
def test_a_person_reads_and_answers_by_keyboard(
    browser: Browser, tmp_path: Path, says: str, scheme: str
) -> None:
    desk = Desk(tmp_path)
    desk.inputs = Table(("lab", HOSTILE), (np.array([1.0]), np.array([HOSTILE])))
    answer(desk.ledger, settled(campaign="d2" * 16), queries(0, 3))
    desk.status.trained(3, 10)
    with desk.page() as page, desk.asked(OFFER) as answers:
        tab, complaints = open_tab(browser, page.link, color_scheme=scheme, reduced_motion="reduce")
        assert tab.url == f"{page.address}/", "neither token nor key stays in the address"
        for size in (WIDE, PHONE):
            tab.set_viewport_size(size)  # type: ignore[arg-type]
            assert tab.evaluate("document.documentElement.scrollWidth") == size["width"]
            seen, poor = tab.evaluate(POOR_CONTRAST)
            assert poor == []
            assert seen > 40
        # What the server sent is text.
        assert HOSTILE[:30] in tab.inner_text("#terms")
        assert HOSTILE[:30] in tab.inner_text("#inputs")
        assert tab.evaluate("window.hit") is None
        assert tab.locator("img[src=x]").count() == 0
        assert tab.inner_text("#said") == "A campaign waits for your answer."
        tab.locator("#allow:enabled").wait_for(timeout=SOON_MS)
        reached: list[str] = []
        while True:
            tab.keyboard.press("Tab")
            what, style, _ = tab.evaluate(FOCUSED)
            if not what or what in reached:
                break
            assert style != "none", f"{what} does not show that it is focused"
            reached.append(what)
        assert len(reached) == tab.evaluate(FOCUSABLE)
        tab.focus(f"#{says}")
        tab.keyboard.press("Enter")
        tab.locator("#choice").wait_for(state="hidden", timeout=SOON_MS)
        until(lambda: answers == [says == "allow"], "the party has the answer")
        assert ("You refused" in tab.inner_text("#doing")) == (says == "refuse")
        desk.view.over()
        assert complaints == []
    tab.locator("#lost", has_text="This party has ended").wait_for(timeout=SOON_MS)
    tab.context.close()


def test_nothing_is_said_of_the_ledger_before_the_party_has(
    browser: Browser, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    with desk.page() as page:
        tab = browser.new_page()
        tab.route("**/api/stream", lambda route: route.abort())
        tab.goto(page.link)
        assert tab.inner_text("#main").split("\n") == ["Waiting for the party"]
        tab.unroute("**/api/stream")
        tab.locator("#left-none").wait_for(timeout=SOON_MS)
        tab.close()


def test_pictures_are_drawn_and_a_tab_without_the_link_cannot_answer(
    browser: Browser, tmp_path: Path
) -> None:
    desk = Desk(tmp_path)
    desk.inputs = Images(np.full((9, 4, 5, 3), (10, 200, 30), np.uint8))
    with desk.page() as page, desk.asked(OFFER):
        tab, complaints = open_tab(browser, page.link)
        drawn = (
            "[...document.querySelector('canvas').getContext('2d').getImageData(4, 3, 1, 1).data]"
        )
        assert tab.evaluate(drawn) == [10, 200, 30, 255]
        assert tab.locator("canvas").count() == 6
        assert tab.get_attribute("canvas", "aria-label") == "Public input 1 of 9"
        other = tab.context.new_page()
        other.goto(page.address)
        other.locator("#meaning", has_text="open the link").wait_for(timeout=SOON_MS)
        assert other.is_disabled("#allow")
        assert complaints == []
        tab.context.close()


def test_a_second_click_answers_no_question_that_came_under_it(
    browser: Browser, tmp_path: Path
) -> None:
    desk, next_ = Desk(tmp_path), joining(campaign="d2" * 16)
    with desk.page() as page:
        with desk.asked(OFFER):
            tab, _ = open_tab(browser, page.link)
            tab.click("#allow")
        with desk.asked(next_):
            tab.locator("#terms", has_text="d2d2d2d2").wait_for(timeout=SOON_MS)
            tab.evaluate("document.getElementById('allow').click()")
            tab.locator("#allow:enabled").wait_for(timeout=SOON_MS)
            assert desk.operator.asked == (next_, None)
        tab.context.close()


def test_a_page_of_another_origin_answers_nothing(browser: Browser, tmp_path: Path) -> None:
    """Another user's server on this machine gets the browser's cookie, and sends all that it can."""

    class Lies(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("cookie", ""))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    cookies: list[str] = []
    desk = Desk(tmp_path)
    server = http.server.HTTPServer(("127.0.0.1", 0), Lies)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with desk.page() as page, desk.asked(OFFER):
            tab, _ = open_tab(browser, page.link)
            lying = tab.context.new_page()
            lying.goto(f"http://127.0.0.1:{server.server_port}/")
            assert f"pate-page-{page.port}" in cookies[0]
            address = f"{page.address}/api/answer?to={OFFER.digest.hex()}&says=allow"
            send = "(to) => fetch(to, {method: 'POST', mode: 'no-cors', credentials: 'include'})"
            lying.evaluate(f"(to) => ({send})(to).then(() => 1, () => 0)", address)
            form = "(to) => { const f = document.body.appendChild(document.createElement('form')); \
                f.method = 'post'; f.action = to; f.submit(); }"
            with lying.expect_navigation():
                lying.evaluate(form, address)
            assert "not from the page" in lying.content()
            assert desk.operator.asked == (OFFER, None)
            tab.click("#refuse")
            until(lambda: desk.operator.asked == (OFFER, False), "the page itself answers")
            tab.context.close()
    finally:
        server.shutdown()
        server.server_close()


def test_in_a_real_campaign_allow_lets_the_votes_leave(browser: Browser, tmp_path: Path) -> None:
    sites = Sites(tmp_path, names=("north", "south")).deal()
    home = sites.home("north")
    home.mkdir(parents=True, exist_ok=True)
    (home / "policy.toml").write_text(
        'campaigns = "ask"\naggregation = ["plain", "masked"]\nleast_roster = "none"\n'
        'largest_epsilon = "none"\nleast_survivors = 0\nleast_colluders = 0\n'
    )
    with Campaign(tmp_path / "run", sites) as campaign:
        server = campaign.serve(
            sites.public(480, 60), "--aggregator", "gnmax", "--sigma2", "1", "--no-page",
            parties="north,south",
        )  # fmt: skip
        north = campaign.party("north", "--page", "--page-port", "0")
        campaign.party("south")
        north.says("page: http://127.0.0.1:")
        found = re.search(r"page: (http://127\.0\.0\.1:\d+)/", north.text)
        assert found is not None
        token = (home / PAGE_TOKEN).read_text().strip()
        assert token not in north.text, "the token went into a log"
        tab: Any = open_tab(browser, f"{found[1]}/?token={token}")[0]
        tab.locator("#allow").wait_for(timeout=300_000)
        assert not PartyLedger(home / LEDGER_FILE, read_only=True).campaigns()
        tab.click("#allow")
        tab.locator("#lost", has_text="This party has ended").wait_for(timeout=300_000)
        assert "Votes on 60 queries have left" in tab.inner_text("#doing")
        assert "ended" in tab.inner_text("#left")
        assert tab.locator("#inputs canvas").count() == 6
        server.ends(0)
        (record,) = PartyLedger(home / LEDGER_FILE, read_only=True).campaigns()
        assert record.queries == 60
        tab.context.close()
