"""The page of a real server with real parties, followed in a browser from its start to its end.

In the end it is photographed as the README's picture is.
"""

from __future__ import annotations

import importlib.util
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from pate.runtime.home import PAGE_TOKEN
from tests.support.server.statuses import chromium
from tests.support.world.commands import Campaign
from tests.support.world.sites import Sites

pytestmark = pytest.mark.slow

SOON_MS = 120_000
IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
#: Bytes: it is in every clone, and on the first page that people see.
MOST = 300_000


def colour_of_the_ground(path: Path) -> tuple[int, int, int]:
    with Image.open(path) as picture:
        red, green, blue, *_ = picture.convert("RGB").getpixel((5, picture.height - 5))  # type: ignore[misc]
    return red, green, blue


def check_photographs(tab: Any, folder: Path) -> None:
    """Photograph a tab in light and dark, and check these pictures and those of the README."""
    spec = importlib.util.spec_from_file_location("make", IMAGES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    for scheme, name in (("light", "page.png"), ("dark", "page-dark.png")):
        tab.emulate_media(color_scheme=scheme)
        make.photograph(tab, folder / name)
        for path in (folder / name, IMAGES / name):
            assert path.stat().st_size < MOST
            with Image.open(path) as picture:
                assert picture.width == make.WIDTH
                assert 1000 < picture.height < 2000
                assert len(picture.convert("L").getcolors() or ()) > 20, "nothing is in it"
            assert (sum(colour_of_the_ground(path)) > 384) == (scheme == "light")


def test_a_campaign_is_followed_from_its_start_to_its_end(tmp_path: Path) -> None:
    sites = Sites(tmp_path, names=("north", "south")).deal()
    with chromium() as browser, Campaign(tmp_path / "run", sites) as campaign:
        server = campaign.serve(
            sites.public(480, 60), "--aggregator", "gnmax", "--sigma2", "1", "--page-port", "0",
            "--linger", "-1", parties="north,south",
        )  # fmt: skip
        server.says("page: http://127.0.0.1:")
        found = re.search(r"page: (http://127\.0\.0\.1:\d+)/", server.text)
        assert found is not None
        address = found[1]
        token = (campaign.home / PAGE_TOKEN).read_text().strip()
        assert token not in server.text, "the token went into a log"

        tab = browser.new_context(viewport={"width": 1300, "height": 900}).new_page()
        complaints: list[str] = []
        urls: list[str] = []
        weights: list[int] = []
        tab.on("console", lambda said: complaints.append(said.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: urls.append(request.url))
        tab.on(
            "requestfinished",
            lambda request: weights.append(request.sizes()["responseBodySize"]),
        )
        tab.goto(f"{address}/?token={token}")
        tab.evaluate("window.mark = 1")
        step = tab.locator("#phases [aria-current=step]")
        step.filter(has_text="Gathering").wait_for(timeout=SOON_MS)
        rows = tab.locator("#parties tbody tr")
        assert [text.split()[0] for text in rows.all_inner_texts()] == ["north", "south"]

        campaign.party("north")
        rows.filter(has_text="north").locator(".on").wait_for(timeout=SOON_MS)
        assert rows.filter(has_text="south").locator(".off").count() == 1
        ready = httpx.get(f"{address}/readyz")
        assert (ready.status_code, ready.text) == (200, "ready\n")

        campaign.party("south")
        step.filter(has_text="Finished").wait_for(timeout=SOON_MS)
        tab.locator("#checks", has_text="closed: the campaign is over").wait_for(timeout=SOON_MS)
        headers = {"authorization": f"Bearer {token}"}
        seen = httpx.get(f"{address}/api/overview", headers=headers).json()
        assert f"Finished · {seen['campaign']}" in tab.title()
        assert sum(each["labels"] for each in seen["labels"]) == 60
        told = tab.locator("#labels tbody td.number").all_inner_texts()
        assert told == [str(each["labels"]) for each in seen["labels"]]
        assert {row["done"] for row in seen["parties"]} == {60}
        assert "60 of 60" in rows.first.inner_text()
        assert "votes on 60 queries from north, south" in tab.inner_text("#log")
        assert seen["ledger_entries"] == campaign.verified()["entries"]
        tab.locator("#plot circle").wait_for(timeout=SOON_MS)
        check_photographs(tab, tmp_path)

        assert tab.evaluate("window.mark") == 1, "the page was loaded anew"
        assert complaints == []
        assert all(url.startswith(f"{address}/") for url in urls)
        assert 0 < sum(weights) < 200_000
        # It stays while the server does, and then says that the server has ended.
        server.send(signal.SIGINT)
        tab.locator("#lost", has_text="The campaign is finished").wait_for(timeout=SOON_MS)
        server.ends(130)
        # Its last state is stored beside the ledger.
        (stored,) = campaign.home.rglob("page.html")
        tab.goto(stored.as_uri())
        assert told == tab.locator("#labels tbody td.number").all_inner_texts()
        assert "pate-server ledger verify" in tab.inner_text("#commands")
