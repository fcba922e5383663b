"""The page in a real browser: hostile text, keyboard, contrast, small screens, a lost server."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aggregator_server.exchange.presence import Presence
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.monitoring.overview import Command
from aggregator_server.monitoring.status import Status
from pate.campaign.choices import Guess
from pate.campaign.roster import RosterParty
from pate.planning.forecast import expected
from tests.support.server.campaigns import NAMES, make_spec
from tests.support.server.statuses import a_campaign, a_page, chromium, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

    from aggregator_server.monitoring.overview import Overview

HOSTILE = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>\'"&'
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
SOON_MS = 20_000

#: Contrast of each piece of text with what is behind it, of those below the least that WCAG 2.2 AA
#: asks: 4.5, or 3 for large text.
POOR_CONTRAST = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const linear = (c) => (c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  let seen = 0;
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !element.getClientRects().length) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    const [a, b] = [light(numbers(svg ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    seen += 1;
    if (ratio < (large ? 3 : 4.5)) poor.push(`${element.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return [seen, poor];
}"""

#: Controls and regions that must be reachable by keyboard.
FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, summary, [tabindex='0']")]
  .filter((e) => e.getClientRects().length).length"""
FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const what = e === document.body ? "" : e.outerHTML.slice(0, 90);
  return [what, style.outlineStyle, parseFloat(style.outlineWidth)];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def open_tab(browser: Browser, link: str, **options: Any) -> tuple[Tab, list[str]]:
    """A tab with the page live in it, and a list that gets every complaint of the browser."""
    complaints: list[str] = []
    tab = browser.new_context(**({"viewport": WIDE} | options)).new_page()
    tab.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(link)
    tab.wait_for_selector("#link[data-state=live]", timeout=SOON_MS)
    return tab, complaints


def test_text_of_strangers_is_shown_as_text(browser: Browser, tmp_path: Path) -> None:
    spec = make_spec(name=HOSTILE, parties=2, min_parties=2, aggregator="gnmax")
    with Ledger.create(tmp_path / "campaign" / "ledger.db", spec) as ledger:
        parties = [RosterParty(f"{HOSTILE}{at}", f"{at:064x}", 50, "record") for at in range(2)]
        ledger.record_roster(parties, [HOSTILE, "x" * 5000])
        status = Status(ledger)
        status.present(Presence(frozenset({f"{HOSTILE}0"}), HOSTILE, frozenset({f"{HOSTILE}0"})))
        say(status, HOSTILE, "error")
        with a_page(status, tmp_path) as page:
            tab, complaints = open_tab(browser, page.link, viewport=PHONE)
            assert tab.inner_text("#campaign") == HOSTILE
            assert HOSTILE in tab.inner_text("#parties")
            assert HOSTILE in tab.inner_text("#labels")
            assert HOSTILE in tab.inner_text("#log")
            assert HOSTILE in tab.inner_text("#sentence")
            assert tab.evaluate("window.hit") is None
            assert tab.evaluate("document.querySelectorAll('img[src=x]').length") == 0
            # A name without end is cut, and does not make the page wider than the screen.
            assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
            assert complaints == []
            tab.context.close()


def stored(browser: Browser, folder: Path, overview: Overview) -> Tab:
    """A tab with the page that a server stores."""
    file = folder / "page.html"
    file.write_bytes(overview.to_html())
    tab = browser.new_page()
    tab.goto(file.as_uri())
    return tab


def test_each_delta_is_written_as_elsewhere(browser: Browser, tmp_path: Path) -> None:
    with a_campaign(tmp_path) as (_, status):
        overview = status.overview()
    assert overview.budget is not None
    for delta, words in ((0.0, "0"), (1e-5, "1e-5"), (0.01, "0.01")):
        tab = stored(
            browser, tmp_path, replace(overview, budget=replace(overview.budget, delta=delta))
        )
        for place in ("#budget-words", "#curve-words"):
            assert f"epsilon 6 at delta {words} per record" in tab.inner_text(place)
        tab.close()


def test_votes_in_directions_are_at_no_query_and_give_no_label(
    browser: Browser, tmp_path: Path
) -> None:
    with a_campaign(tmp_path) as (_, status):
        overview = replace(status.overview(), phase="labelling", budget=None)
    without = replace(overview.queries, labelled=False, directions=16, public_set=700)
    for rounds, votes, told, head in (
        (1, 16, "16 of 16 noisy sums released 0 directions; no query gets a label", "Directions"),
        (5, 32, "16 public set of 700 inputs rounds with votes 2 of 5; the first counts classes",
         "Rounds"),
    ):  # fmt: skip
        queries = replace(without, votes_in=votes, voted_on=16 * rounds, asked=16 * (rounds > 1))
        shown = replace(overview, queries=queries, rounds=rounds, round=min(rounds, 2))
        tab = stored(browser, tmp_path, shown)
        assert told in " ".join(tab.inner_text("#figures").lower().split())
        assert tab.text_content("#counted") == f"{head} with its votes"
        assert tab.inner_text("#phases [aria-current=step]") == "Releasing"
        assert "abelling" not in tab.inner_text("main")
        tab.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_reads_well(browser: Browser, tmp_path: Path, scheme: str) -> None:
    with a_campaign(tmp_path) as (_, status), a_page(status, tmp_path) as page:
        say(status, "derwent: not reachable any more; it may come back", "warning")
        say(status, "something failed", "error")
        tab, complaints = open_tab(browser, page.link, color_scheme=scheme)
        tab.wait_for_selector("#plot svg")
        asked_of: set[str] = set()
        tab.on("request", lambda request: asked_of.add(request.url))
        for size in (WIDE, PHONE):
            tab.set_viewport_size(size)  # type: ignore[arg-type]
            assert tab.evaluate("document.documentElement.scrollWidth") == size["width"]
            seen, poor = tab.evaluate(POOR_CONTRAST)
            assert poor == []
            assert seen > 50
        # The other theme, by its button, is as good, and is remembered.
        before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.click("#theme")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert tab.inner_text("#theme") == ("Light mode" if scheme == "light" else "Dark mode")
        assert tab.evaluate(POOR_CONTRAST)[1] == []
        changed = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.reload()
        tab.wait_for_selector("#plot svg")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == changed
        assert {re.split("/api|/page[.]|/campaign[.]", url)[0].rstrip("/") for url in asked_of} == {
            page.address
        }
        headings = tab.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((h) => h.tagName)")
        assert headings[0] == "H1"
        assert set(headings[1:]) == {"H2"}
        assert tab.evaluate("[...document.querySelectorAll('table')].every((t) => t.caption)")
        assert tab.locator("main, header, footer").count() == 3
        assert "epsilon 6 at delta 1e-5 per record, towards the public" in tab.inner_text("main")
        assert "is epsilon 6 at delta 1e-5" in (tab.get_attribute("#plot svg", "aria-label") or "")
        _audit(tab)
        assert complaints == []
        tab.context.close()


def _audit(tab: Tab) -> None:
    """Run axe-core, too, if ``PATE_AXE`` names its script, which we do not distribute."""
    script = os.environ.get("PATE_AXE")
    if not script:
        return
    # The page's policy blocks foreign scripts: this one is injected by the debugger.
    tab.evaluate(Path(script).read_text(encoding="utf-8") + "; undefined")
    found = tab.evaluate("axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))")
    assert found == []


@pytest.mark.slow
def test_it_works_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    with a_campaign(tmp_path) as (_, status), a_page(status, tmp_path) as page:
        tab, complaints = open_tab(browser, page.link, reduced_motion="reduce")
        tab.wait_for_selector("#plot svg")
        reached = []
        while True:
            tab.keyboard.press("Tab")
            what, style, width = tab.evaluate(FOCUSED)
            if not what or what in reached:
                break
            assert style != "none", f"{what} does not show that it is focused"
            assert width >= 2
            reached.append(what)
        assert len(reached) == tab.evaluate(FOCUSABLE) >= 7
        assert reached[0].startswith('<a class="skip"')
        tab.focus(".skip")
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "main"
        tab.focus("details:has(#mechanism) summary")
        tab.keyboard.press("Enter")
        assert "sigma" in tab.inner_text("#mechanism")
        tab.focus("details:has(#curve) summary")
        tab.keyboard.press("Enter")
        assert tab.inner_text("#curve tbody tr:first-child td:first-child") == "0"
        before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.focus("#theme")
        tab.keyboard.press("Space")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
        assert (
            tab.evaluate(
                "getComputedStyle(document.querySelector('.meter div')).transitionDuration"
            )
            == "0s"
        )
        assert complaints == []
        tab.context.close()


@pytest.mark.slow
def test_it_is_live_says_when_the_server_is_lost_and_finds_it_again(
    browser: Browser, tmp_path: Path
) -> None:
    with a_campaign(tmp_path) as (ledger, status):
        with a_page(status, tmp_path) as page:
            tab, complaints = open_tab(browser, page.link)
            tab.evaluate("window.mark = 1")
            assert "token" not in tab.url
            assert tab.inner_text("#link-text") == "live"
            row = tab.locator("#parties tr", has_text="derwent")
            assert "away" in row.inner_text()
            status.present(Presence(frozenset(NAMES)))
            row.locator(".on").wait_for(timeout=SOON_MS)
            say(status, "derwent is back: 25 teachers")
            tab.locator("#log", has_text="derwent is back").wait_for(timeout=SOON_MS)
            assert complaints == []
            assert tab.locator("#lost").is_hidden()
            port = page.port
        tab.locator("#lost", has_text="Connection to the server lost").wait_for(timeout=SOON_MS)
        assert tab.get_attribute("#link", "data-state") == "lost"
        assert tab.get_attribute("#lost", "role") == "alert"
        assert "chest-xray" in tab.inner_text("#campaign")
        with a_page(status, tmp_path, port):
            tab.wait_for_selector("#link[data-state=live]", timeout=SOON_MS)
            assert tab.locator("#lost").is_hidden()
            assert tab.inner_text("#said") == "The connection is back."
            ledger.end_round(wants_predictions=False)
            ledger.finish()
            # The server ends at once: what it said last comes all the same.
        tab.locator("#lost", has_text="The campaign is finished").wait_for(timeout=SOON_MS)
        assert "pate-server resume" in tab.inner_text("#lost")
        assert tab.locator("#phases [aria-current=step]", has_text="Finished").count() == 1
        # Another token: the page says what to do.
        (tmp_path / "page.token").unlink()
        with a_page(status, tmp_path, port):
            tab.locator("#lost", has_text="does not know this browser").wait_for(timeout=SOON_MS)
        assert tab.evaluate("window.mark") == 1, "the page was loaded anew"
        tab.context.close()


@pytest.mark.slow
def test_what_to_expect_what_to_type_and_why_it_failed(browser: Browser, tmp_path: Path) -> None:
    spec = make_spec(name="chest-xray", aggregator="gnmax", epsilon=0.5, classes=("well", "ill"))
    party = "pate-party start --data PATH --server 127.0.0.1:9092"
    with Ledger.create(tmp_path / "campaign" / "ledger.db", spec) as ledger:
        status = Status(ledger, guess=Guess(rarest=0.05))
        status.open_doors("127.0.0.1:9092", lambda: True)
        status.tell_commands(Command("at each party", party))
        with a_page(status, tmp_path) as page:
            tab, complaints = open_tab(browser, page.link, permissions=["clipboard-write"])
            found = expected(spec, Guess(rarest=0.05))
            assert found.few
            assert found.text[1:] in tab.inner_text("#expect.few")
            assert "your rarest class is 1 in 20" in tab.inner_text("#expect")
            assert tab.locator("#helps code", has_text="pate plan --aggregator gnmax").count() == 1
            assert tab.inner_text("#commands code") == party
            tab.get_by_role("button", name="Copy the command at each party").click()
            tab.locator("#commands button", has_text="Copied").wait_for(timeout=SOON_MS)
            assert tab.evaluate("getSelection().toString()") == party
            well = "getComputedStyle(document.querySelector('.checks .mark')).color"
            green = tab.evaluate(well)
            status.fail("avon and brook have different <class> lists")
        # Its last sentence comes before the connection ends.
        tab.locator("#lost", has_text="The server has ended").wait_for(timeout=SOON_MS)
        why = "Failed: avon and brook have different <class> lists"
        assert tab.inner_text("#sentence.failed") == why
        assert tab.title().startswith("Failed")
        assert tab.locator("#commands").is_hidden()
        assert tab.evaluate(well) != green, "a server that is gone is not well"
        assert not [each for each in complaints if "ERR_CONNECTION" not in each]
        tab.context.close()
        file = tmp_path / "page.html"
        file.write_bytes(status.overview().to_html())
    # The stored page needs no server: nothing else is loaded.
    tab = browser.new_page()
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    assert tab.inner_text("#sentence") == why
    assert tab.inner_text("#link-text") == "stored page"
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert tab.locator("#lost").is_hidden()
    tab.context.close()


@pytest.mark.slow
def test_without_the_token_a_browser_is_told_how_to_come_in(
    browser: Browser, tmp_path: Path
) -> None:
    with a_campaign(tmp_path) as (_, status), a_page(status, tmp_path) as page:
        tab = browser.new_context().new_page()
        tab.goto(page.address)
        assert tab.inner_text("h1") == "This page needs its token"
        assert "chest-xray" not in tab.content()
        tab.context.close()
