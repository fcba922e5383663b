"""The notebook of first steps: each cell runs, what it shows is what is stored, and pages lead to it."""

from __future__ import annotations

import json
import re

from tests.support.notebook import cells_of, shown_by
from tests.support.pages import DOCS

BOOK = DOCS / "first-steps.ipynb"


def test_it_runs_and_shows_pictures() -> None:
    """How good its students are is chance, and tested elsewhere."""
    shown = shown_by(BOOK)
    texts = [each.get("text/plain", "") for each in shown]
    assert sum("image/png" in each for each in shown) == 2
    shares = [
        float(share) for text in texts for share in re.findall(r"([\d.]+)% (?:of|right)", text)
    ]
    assert len(shares) == 2
    assert "per record, towards the public" in "".join(texts)
    assert "Name: label, dtype: Int64" in texts[-1]


def test_what_it_shows_is_stored() -> None:
    book = json.loads(BOOK.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code)
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    assert BOOK.stat().st_size < 400_000


def test_pages_and_the_notebook_lead_to_each_other() -> None:
    assert f"({BOOK.name})" in (DOCS / "library.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]+)\)", "".join(cells_of(BOOK, "markdown")))
    assert links
    assert all((DOCS / link).is_file() for link in links)
