"""Envelopes on the page: what is out and in, by party, with dates; and no digest, name or vote more."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

import httpx
import pytest

from aggregator_server.exchange.by_envelope import last_envelopes
from aggregator_server.exchange.presence import Out, Presence
from aggregator_server.exchange.store import EARLY, FILE, Store
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.monitoring.status import LISTED, Status
from pate.campaign.settings import make_gate
from pate.storage import durable_file as storage
from tests.aggregator_server.monitoring.test_page_in_browser import (
    HOSTILE,
    PHONE,
    POOR_CONTRAST,
    WIDE,
    open_tab,
)
from tests.support.server.campaigns import make_spec, start
from tests.support.server.statuses import a_page, chromium

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

NOW = datetime(2026, 11, 1, 12, 0, 7, tzinfo=UTC)
#: What became of the last envelope of each party.
FATES = {
    "a": "answered", "b": "waiting", "c": "lost", "d": "late", "e": "closing", "f": "end",
}  # fmt: skip


def an_envelope(party: str, state: str, **changes: object) -> Out:
    out = Out(
        party, 2, "2026-11-15T12:00:07Z", "2026-11-01T12:00:07Z", b"digest".ljust(32), None,
        late=False, over=False, asks="ask", closing=False,
    )  # fmt: skip
    fates: dict[str, dict[str, object]] = {
        "answered": {"answered": "2026-11-03T09:30:15Z", "over": True},
        "late": {"answered": "2026-11-20T09:30:15Z", "over": True, "late": True},
        "lost": {"over": True},
        "closing": {"closing": True},
        "end": {"asks": "finish", "until": ""},
        "waiting": {},
    }
    made = replace(out, **(fates[state] | changes))  # type: ignore[arg-type]
    assert made.state == state
    return made


@pytest.fixture
def status(tmp_path: Path) -> Iterator[Status]:
    """A campaign whose parties take part by envelope, each with another fate."""
    spec = make_spec(parties=tuple(FATES), min_parties=3, aggregator="gnmax")
    with Ledger.create(tmp_path / "campaign" / "ledger.db", spec) as ledger:
        made = Status(ledger)
        made.open_doors("", lambda: True, listens="post")
        everybody = frozenset(FATES)
        made.present(Presence(everybody - {"b"}, "votes", everybody, frozenset({"a"})))
        made.envelopes([an_envelope(*each) for each in FATES.items()])
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def test_an_overview_has_the_last_envelope_of_each_party(status: Status) -> None:
    seen = status.overview()
    assert {row.party: row.state for row in seen.envelopes} == FATES
    assert {row.asks for row in seen.envelopes} == {"votes", "nothing: the end"}
    (late,) = [row for row in seen.envelopes if row.state == "late"]
    assert (late.made, late.answered) == ("2026-11-01T12:00:07Z", "2026-11-20T09:30:15Z")
    assert seen.by_envelope == len(FATES)
    rows = {row.name: (row.by_envelope, row.doing, row.trouble) for row in seen.parties}
    assert rows["a"] == (True, "has sent votes", False)
    assert rows["b"] == (True, "has not answered yet", True)
    assert rows["c"] == (True, "did not answer in time", True)
    assert rows["d"] == (True, "answered too late", True)
    told = json.dumps(seen.to_json())
    assert b"digest".hex() not in told
    assert "digest" not in told
    assert [each.text for each in seen.checks if each.name in ("doors", "link")] == [
        "all by envelope; no port is open to them",
        "files for parties in post/out, their answers in post/in",
    ]


def test_a_first_envelope_says_that_it_asks_for_keys_ahead(status: Status) -> None:
    status.envelopes([an_envelope("a", "waiting", asks=EARLY)])
    (row,) = status.overview().envelopes
    assert row.asks == "a description and keys ahead"


def test_the_same_envelopes_are_no_news(status: Status) -> None:
    before = status.overview()
    status.envelopes([an_envelope(*each) for each in FATES.items()])
    assert status.overview() is before
    status.envelopes([an_envelope("a", "answered")])
    assert len(status.overview().envelopes) == 1


def test_of_a_gated_batch_they_tell_times_to_the_minute(tmp_path: Path) -> None:
    """When the end was sent tells how long the private test took."""
    gate = make_gate("gated", 2.0, 1e-5, 10.0, 0.15)
    assert gate is not None
    spec = make_spec(
        aggregator="gnmax", epsilon=2.0, sigma2=Fraction(40), publish="gated",
        gate_order=gate.order, gate_target=gate.target, gate_test=gate.test,
        gate_failure=gate.failure,
    )  # fmt: skip
    with start(tmp_path / "ledger.db", spec) as ledger:
        status = Status(ledger)
        status.envelopes([an_envelope("a", "answered")])
        (row,) = status.overview().envelopes
    assert (row.made, row.until, row.answered) == (
        "2026-11-01T12:00Z",
        "2026-11-15T12:00Z",
        "2026-11-03T09:30Z",
    )


def test_of_many_those_that_are_awaited_come_first(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger.db", make_spec(parties=1000)) as ledger:
        status = Status(ledger)
        names = [f"party_{at:04d}" for at in range(LISTED + 50)]
        status.envelopes([
            *(an_envelope(name, "answered") for name in names[:-2]),
            *(an_envelope(name, "waiting") for name in names[-2:]),
        ])  # fmt: skip
        seen = status.overview()
    assert len(seen.envelopes) == LISTED
    assert [row.party for row in seen.envelopes[:2]] == names[-2:]


@pytest.mark.slow
def test_a_browser_shows_them_wide_and_narrow(
    browser: Browser, status: Status, tmp_path: Path
) -> None:
    with a_page(status, tmp_path) as page:
        tab, complaints = open_tab(browser, page.link, timezone_id="UTC")
        rows = [
            " ".join(each.split()) for each in tab.locator("#envelopes tbody tr").all_inner_texts()
        ]
        assert rows == [
            "a 2: votes 1 Nov 2026, 12:00 3 Nov 2026, 09:30",
            "b 2: votes 1 Nov 2026, 12:00 awaited until 15 Nov 2026, 12:00",
            "c 2: votes 1 Nov 2026, 12:00 none, and none is awaited any more",
            "d 2: votes 1 Nov 2026, 12:00 20 Nov 2026, 09:30, too late: it is refused",
            "e 2: votes 1 Nov 2026, 12:00 awaited until the server has looked into its inbox",
            "f 2: nothing: the end 1 Nov 2026, 12:00 needs none",
        ]
        assert tab.inner_text("#envelopes-caption").endswith("2 answers are awaited.")
        marked = tab.locator("#envelopes td.trouble").all_inner_texts()
        assert [text.split(",")[0] for text in marked] == ["none", "20 Nov 2026"]
        assert tab.locator("#parties .carried").all_inner_texts() == ["by envelope"] * len(FATES)
        assert "5 parties joined of 6, 6 by envelope" in tab.inner_text("#parties-caption")
        for size in (WIDE, PHONE):
            tab.set_viewport_size(size)  # type: ignore[arg-type]
            assert tab.evaluate("document.documentElement.scrollWidth") == size["width"]
            assert tab.evaluate(POOR_CONTRAST)[1] == []
        # No row of a narrow screen is wider than its card.
        wider = "(e) => e.scrollWidth > e.clientWidth"
        assert not tab.locator(".scroll:has(#envelopes)").evaluate(wider)
        assert complaints == []
        tab.context.close()


@pytest.mark.slow
def test_a_name_with_markup_is_text(browser: Browser, status: Status, tmp_path: Path) -> None:
    status.envelopes([an_envelope(HOSTILE, "late"), an_envelope("x" * 5000, "waiting")])
    with a_page(status, tmp_path) as page:
        tab, complaints = open_tab(browser, page.link, viewport=PHONE)
        assert HOSTILE in tab.inner_text("#envelopes")
        assert tab.evaluate("window.hit") is None
        assert tab.evaluate("document.querySelectorAll('img[src=x]').length") == 0
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        assert complaints == []
        tab.context.close()


def test_the_page_answers_while_the_file_of_the_envelopes_is_locked(
    status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made from what the campaign has said, and reads no such file."""
    monkeypatch.setattr(storage, "_WAIT_SECONDS", 0.05)
    Store(tmp_path / FILE, clock=lambda: NOW + timedelta(days=1))
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert last_envelopes(tmp_path) == []  # they are shown, and nothing depends on them
        with a_page(status, tmp_path) as page:
            token = page.link.partition("token=")[2]
            found = httpx.get(
                f"{page.address}/api/overview",
                headers={"authorization": f"Bearer {token}"},
                timeout=10,
            )
        assert {each["party"]: each["state"] for each in found.json()["envelopes"]} == FATES
    assert last_envelopes(tmp_path / "elsewhere") == []
