"""Every file of ours that a page names exists: tests, modules, other pages."""

from __future__ import annotations

import re

from tests.support.pages import DOCS

ROOT = DOCS.parent
PAGES = sorted(
    [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
)

#: Folders at the root of which pages name files by their path.
FOLDERS = (
    "aggregator_server", "benchmarks", "deploy", "docs", "party", "pate", "protos", "simulation", "student",
    "tests",
)  # fmt: skip
_PATH = re.compile(
    r"(?:^|[\s`(\[])"
    r"((?:" + "|".join(FOLDERS) + r")(?:/[\w.-]+)+/?)"
    r"(?:::\w+)?(?=[`\s),.;:\]]|$)"
)
#: `test_x.py` by itself, after the folder was named.
_TEST = re.compile(r"`(test_\w+\.py)`")


def named(text: str) -> list[str]:
    """Paths, from the root, that a text names; what has a wildcard or a place to fill in is none."""
    return [path.rstrip(".") for path in _PATH.findall(text)]


def test_every_file_that_a_page_names_exists() -> None:
    tests = {each.name for each in (ROOT / "tests").rglob("test_*.py")}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        gone = [path for path in named(text) if not (ROOT / path).exists()]
        gone += [name for name in _TEST.findall(text) if name not in tests]
        assert not gone, f"{page.relative_to(ROOT)} names {', '.join(sorted(set(gone)))}"


def test_names_are_found() -> None:
    text = "see `tests/pate/test_x.py`, party/voting/voter.py; `pate/accounting/` (docs/a.md) `test_a.py`"
    assert named(text) == [
        "tests/pate/test_x.py", "party/voting/voter.py", "pate/accounting/", "docs/a.md",
    ]  # fmt: skip
    assert _TEST.findall(text) == ["test_a.py"]
    assert named("https://example.org/docs/x.md and hospital/pate/x") == []
    assert sum(len(named(page.read_text(encoding="utf-8"))) for page in PAGES) > 50
