"""Pages of real campaigns in a real browser, one of them with odd names."""

from __future__ import annotations

import importlib.util
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import numpy as np
import pytest
from PIL import Image

from pate.data.cells import clean_name
from pate.runtime.home import PAGE_TOKEN
from tests.support.processes.programs import until
from tests.support.server.statuses import chromium
from tests.support.world.commands import Campaign, Play
from tests.support.world.sites import NAMES, Sites

if TYPE_CHECKING:
    import pandas as pd


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


#: As far as the protocol lets them: one line of text, nothing that turns the direction of others.
CLASSES: Final = (
    '<img src=x onerror="window.hit=1">',
    "</title><script>window.hit=1</script>",
    "\u05d0\u05d1\u05d2 12 (\u05d3)",  # from right to left, with a number
    "\u0645\u0631\u062d\u0628\u0627 5",
    "Z" + "\u0351\u036b\u0343\u0302\u0334\u0319" * 20,  # marks that pile up
    "\ufdfd" * 20,  # one sign as wide as a word
    "x" * 256,
    "&lt;b&gt; ${7*7} {{7*7}} javascript:alert(1)",
)
COLUMNS: Final = ('<img src=x onerror="window.hit=1">', "\u05d2\u05d5\u05d1\u05d4", "c" * 200)
_QUERIES: Final = 60
_SOON_MS: Final = 60_000
_SIZES: Final = ((1280, 900), (360, 740))
#: Right edges of the numbers of labels, and of the box in which their table is scrolled.
_PLACES: Final = """() => {
  const right = (element) => element.getBoundingClientRect().right;
  const rows = [...document.querySelectorAll("#labels tbody tr")];
  return [rows.map((row) => right(row.querySelector("td.number"))), right(rows[0].closest(".scroll"))];
}"""


def _table(rng: np.random.Generator, rows: int) -> pd.DataFrame:
    import pandas as pd

    values = rng.normal(size=(rows, len(COLUMNS))).round(3)
    at = ((np.arctan2(values[:, 1], values[:, 0]) / np.pi + 1) / 2 * len(CLASSES)).astype(int)
    made = pd.DataFrame(dict(zip(COLUMNS, values.T, strict=True)))
    made["class"] = np.array(CLASSES)[at % len(CLASSES)]
    return made


def test_odd_names_are_shown_as_text_and_break_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in NAMES:
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        _table(rng, 400).to_parquet(folder / "records.parquet")
    public = tmp_path / "public.parquet"
    _table(rng, _QUERIES).drop(columns="class").to_parquet(public)
    with (
        chromium() as browser,
        Play(tmp_path / "play", Sites(tmp_path, NAMES), public=public) as play,
    ):
        server = play.run(
            "server", "aggregator_server", "--public", public, "--parties", ",".join(NAMES),
            "--epsilon", "1000", "--delta", "1e-4", "--aggregator", "gnmax", "--sigma2", "1",
            "--colluders", "0", "--port", str(play.port), "--student-port", str(play.student_port),
            "--page-port", "0", "--home", play.home, "--linger", "-1", "--json",
        )  # fmt: skip
        server.says("page: ")
        address = re.findall(r"page: (http://[\w.]+:\d+)", server.text)[0]
        parties = [
            play.run(
                "party", "party", "start", "--data", tmp_path / "data" / name, "--label", "class",
                "--model", "logistic", "--server", f"127.0.0.1:{play.port}", "--teachers", "3",
                "--home", tmp_path / name, "--json",
            )
            for name in NAMES
        ]  # fmt: skip
        for party in parties:
            party.ends(0)
        token = (play.home / "page.token").read_text().strip()
        complaints: list[str] = []
        tab = browser.new_context().new_page()
        tab.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(f"{address}/?token={token}")
        tab.wait_for_selector("#link[data-state=live]", timeout=_SOON_MS)
        until(lambda: "finished" in tab.inner_text("main"), "the page says that it is over")
        shown = tab.inner_text("#labels")
        for name in map(clean_name, CLASSES):
            assert name[:60] in shown, name
        assert tab.evaluate("window.hit") is None
        assert tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert tab.title().count("<") == 0
        for width, height in _SIZES:
            tab.set_viewport_size({"width": width, "height": height})
            tab.screenshot(path=tmp_path / f"page-{width}.png", full_page=True)
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            # Every number is in sight, and where the others are, whatever the name next to it.
            places, edge = tab.evaluate(_PLACES)
            assert len(places) == len(CLASSES)
            assert len(set(places)) == 1
            assert places[0] < edge
        assert complaints == []
        metrics = httpx.get(
            f"{address}/metrics", headers={"Authorization": f"Bearer {token}"}, trust_env=False
        ).text
        assert all(len(line.splitlines()) <= 1 for line in metrics.split("\n"))
        tab.context.close()
        server.send(signal.SIGTERM)
        server.ends(130)
