"""The README's picture can be made again, from a real campaign."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.support.server.statuses import chromium

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
#: Bytes: it is in every clone, and on the first page that people see.
MOST = 300_000


def colour_of_the_ground(path: Path) -> tuple[int, int, int]:
    with Image.open(path) as picture:
        red, green, blue, *_ = picture.convert("RGB").getpixel((5, picture.height - 5))  # type: ignore[misc]
    return red, green, blue


def test_a_campaign_is_photographed_in_light_and_dark(tmp_path: Path) -> None:
    with chromium():
        pass  # skips where there is no browser
    subprocess.run([sys.executable, IMAGES / "make.py", "--out", tmp_path], check=True, timeout=500)
    for name, is_light in (("page.png", True), ("page-dark.png", False)):
        for path in (tmp_path / name, IMAGES / name):
            assert path.stat().st_size < MOST
            with Image.open(path) as picture:
                assert picture.width == 1300
                assert 1000 < picture.height < 2000
                assert len(picture.convert("L").getcolors() or ()) > 20, "nothing is in it"
            assert (sum(colour_of_the_ground(path)) > 384) == is_light
