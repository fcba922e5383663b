"""Photograph the server's page for the README: a real campaign, as it waits for the student.

Run it as ``python docs/images/make.py``. It needs the extra ``dev``, and Chromium. Four
hospitals with the example data train teachers and vote, in processes of their own. The picture is
taken when the labels of the first round are out.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.data.files.pictures import opened
from pate.errors import ProcessError
from pate.runtime.child import free_port
from pate.runtime.home import PAGE_TOKEN, default_home, kept_token
from pate.runtime.screen import Screen
from simulation.datasets import deal, digits, write_split
from simulation.demo import DELTA, HOSPITALS, PUBLIC, TEACHERS, TEST
from simulation.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page as Tab

HERE: Final = Path(__file__).resolve().parent
WIDTH: Final = 1300
_DEADLINE_MS: Final = 300_000


@contextmanager
def campaign(place: Path, screen: Screen) -> Iterator[str]:
    """Run a campaign without a student; yields the link of its page, which opens it in a browser.

    Args:
        place: gets the data, the homes of server and parties, and what they print.
        screen: for their lines.
    """
    write_split(place, deal(digits(), len(HOSPITALS), public=PUBLIC, test=TEST), HOSPITALS)
    # The default homes, so that the page's commands name none.
    os.environ["XDG_STATE_HOME"] = str(place)
    home, port, page = default_home("server"), free_port(), free_port()
    with Programs(screen, place) as programs:
        programs.start(
            "server", "aggregator_server", "--public", place / "public.npz", "--parties",
            ",".join(HOSPITALS), "--aggregator", "interactive-gnmax", "--epsilon", 8, "--delta", DELTA,
            "--campaign", "digits", "--port", port, "--student-port", 0,
            "--page-port", page, "--linger", -1,
        )  # fmt: skip
        for name in HOSPITALS:
            programs.start(
                name, "party", "start", "--data", place / name, "--server", f"127.0.0.1:{port}",
                "--teachers", TEACHERS,
            )  # fmt: skip
        programs.wait_for_port(page)
        yield f"http://127.0.0.1:{page}/?token={kept_token(home / PAGE_TOKEN)}"


@contextmanager
def browser_tab() -> Iterator[Tab]:
    """Open an empty tab of a headless Chromium as wide as the pictures.

    Raises:
        ProcessError: if there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise ProcessError("there is no Chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        size = {"width": WIDTH, "height": 900}
        yield browser.new_context(viewport=size, timezone_id="UTC").new_page()
        browser.close()


def photograph(tab: Tab, file: Path) -> None:
    """Write the page from its head to the curve as a PNG of few colours: it is in every clone."""
    from PIL import Image

    box = tab.locator("section", has=tab.locator("#plot")).bounding_box()
    if box is None:
        raise ProcessError("the page shows no curve")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 16}
    taken = tab.screenshot(full_page=True, animations="disabled", clip=clip)  # type: ignore[arg-type]
    with opened(io.BytesIO(taken)) as picture:
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def main() -> None:
    """Make ``page.png`` and ``page-dark.png``."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--out", type=Path, default=HERE, help="folder; default: this one")
    out = asked.parse_args().out
    with (
        tempfile.TemporaryDirectory(prefix="pate-page-") as scratch,
        campaign(Path(scratch), Screen("pictures")) as link,
        browser_tab() as tab,
    ):
        tab.goto(link)
        tab.locator("#phases [aria-current=step]", has_text="Predicting").wait_for(
            timeout=_DEADLINE_MS
        )
        for scheme, name in (("light", "page.png"), ("dark", "page-dark.png")):
            tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            photograph(tab, out / name)


if __name__ == "__main__":
    main()
