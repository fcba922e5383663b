"""The code that the documentation shows, taken from its pages."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of one language on a page, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [m["code"] for m in _BLOCK.finditer(text) if m["language"] == language]
