"""The site builds without warnings: no broken links, no orphan pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.pages import DOCS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

ROOT = DOCS.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # Not --quiet: mkdocs then counts no warnings, and --strict finds nothing to refuse.
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return out


def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS).with_suffix(".html")).is_file(), page
    for name in ("SECURITY", "CONTRIBUTING", "CHANGELOG"):
        assert (site / f"{name}.html").is_file()


def test_the_reference_is_made_of_the_docstrings(site: Path) -> None:
    text = (site / "reference" / "mechanisms.html").read_text()
    assert "If max_j n_j + N_Z(0, sigma1^2) &gt;= threshold" in text


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]+)"')
    for page in site.rglob("*.html"):
        text = page.read_text()
        for url in loads.findall(text):
            assert 'rel="canonical"' in text, url
            raise AssertionError(f"{page.name} fetches {url}")
