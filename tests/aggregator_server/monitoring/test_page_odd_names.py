"""A real campaign whose classes and columns have odd names, and its page in a real browser."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Final

import httpx
import numpy as np
import pytest

from pate.data.labels import clean_name
from simulation.programs import until
from tests.support.server.statuses import chromium
from tests.support.world.commands import Play
from tests.support.world.sites import NAMES, Sites

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

pytestmark = pytest.mark.slow

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
