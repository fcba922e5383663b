"""The site builds without warnings, its reference is readable, and its search works from a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import markdown  # type: ignore[import-untyped]
import pytest

from tests.docs.test_options import hooks
from tests.support.pages import DOCS, ROOT
from tests.support.server.statuses import chromium

if TYPE_CHECKING:
    from pathlib import Path


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
    for name in ("SECURITY", "CONTRIBUTING", "CHANGELOG", "reference/options"):
        assert (site / f"{name}.html").is_file()


def test_the_first_page_is_the_readme_with_its_pictures(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert "pate-server --aggregator interactive-gnmax" in re.sub("<[^>]*>", "", first)
    pictures = re.findall(r'<(?:img|source)[^>]*? src(?:set)?="([^"]+)"', first)
    assert {"overview.svg", "images/page.png", "images/page-dark.png"} <= set(pictures)
    assert all((site / each).is_file() for each in pictures)


def test_the_reference_is_made_of_the_docstrings(site: Path) -> None:
    text = (site / "reference" / "mechanisms.html").read_text()
    assert "If max_j n_j + N_Z(0, sigma1^2) &gt;= threshold" in text


def test_examples_are_code_and_roles_are_names(site: Path) -> None:
    examples = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        examples += text.count('<span class="gp">&gt;&gt;&gt; </span>')
        prose = re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r"(<blockquote>\s*){2}|&gt;&gt;&gt;", prose), page.name
        assert not re.search(r":(class|func|meth|mod|data|attr|exc|obj):", prose), page.name
    assert examples > 30


def test_a_formula_is_drawn_without_a_script() -> None:
    name = "pymdownx.arithmatex"
    written = "A cost of $\\delta < 1$, for $12 or less.\n\n$$\n\\int (P - e^E Q)^+\n$$\n"
    made = hooks().on_page_content(
        markdown.markdown(written, extensions=[name], extension_configs={name: {"generic": True}})
    )
    assert re.search(
        r'A cost of <math [^>]*display="inline">.*&#x003B4;.*&#x0003C;.*</math>, for', made
    )
    assert re.search(r'<math [^>]*display="block">.*&#x0222B;', made)
    assert "for $12 or less" in made


def test_every_formula_of_every_page_is_set(site: Path) -> None:
    """A command that the converter does not know would stand in the page with its backslash."""
    formulas = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        prose = re.sub(r"<(pre|code|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        formulas += prose.count("<math ")
        assert "arithmatex" not in prose, page.name
        assert not re.search(r"\\[a-zA-Z]+|\$[^$\n]{1,80}\$", prose), page.name
    assert formulas > 2000


@pytest.mark.slow
def test_the_search_works_in_a_folder(site: Path) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")  # opens the field
        page.locator("input[name=query]").press_sequentially("dropouts")
        page.wait_for_selector(".md-search-result__item", timeout=120_000)


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|link)[^>]*?(?:src|href)="(https?:[^"]+)"')
    for page in site.rglob("*.html"):
        text = page.read_text()
        for url in loads.findall(text):
            assert 'rel="canonical"' in text, url
            raise AssertionError(f"{page.name} fetches {url}")
