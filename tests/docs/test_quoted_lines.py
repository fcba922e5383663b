"""Screen lines quoted in the documentation are lines that a program prints."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.support.pages import DOCS

#: Values that a program fills in, or the page omits.
_FILLED_IN = re.compile(r"…|hospital_\w|-?\d[\d.]*|[()]")
#: Shorter pieces are not significant.
_LEAST = 8


@cache
def _printed() -> tuple[str, ...]:
    """All text of the programs, as it is in one literal each."""
    files = [
        file
        for role in ("aggregator_server", "party", "pate")
        for file in (DOCS.parent / role).rglob("*.py")
    ]
    nodes = (
        node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )
    return tuple(
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _quoted(page: str, column: str) -> list[str]:
    """The text in backticks in one column of a page's tables."""
    quotes: list[str] = []
    at: int | None = None
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split(" | ")] if line.startswith("|") else None
        if cells is None:
            at = None
            continue
        cells[0] = cells[0].lstrip("| ")
        if column in cells:
            at = cells.index(column)
        elif at is not None and at < len(cells):
            quotes += re.findall(r"`([^`]+)`", cells[at])
    return quotes


@pytest.mark.parametrize(
    ("page", "column"), [("identities.md", "its line says"), ("operator.md", "what you see")]
)
def test_a_line_that_a_page_quotes_is_printed(page: str, column: str) -> None:
    quotes = _quoted(page, column)
    assert len(quotes) > 5
    pieces = [piece.strip(" ;:.,") for quote in quotes for piece in _FILLED_IN.split(quote)]
    unknown = [
        piece
        for piece in pieces
        if len(piece) >= _LEAST and not any(piece in text for text in _printed())
    ]
    assert not unknown, f"{page} quotes what no program says: {unknown}"
