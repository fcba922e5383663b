"""MkDocs hooks: add the pages of the repository's root, and adapt links to and from them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_ROOT: Final = Path(__file__).resolve().parents[1]
_PAGES: Final = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
_LINK: Final = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root; on the site they are next to those of docs/."""
    for name in _PAGES:
        text = (_ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_LINK.sub(_from_root, text)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Rewrite links out of docs/ to the same pages on the site, or to their name only."""
    return _LINK.sub(_from_docs, markdown)


def _from_root(link: re.Match[str]) -> str:
    target = link["target"].removeprefix("docs/")
    return f"]({target}{link['anchor'] or ''})"


def _from_docs(link: re.Match[str]) -> str:
    target = link["target"]
    for name in _PAGES:
        if target.startswith("..") and target.endswith("/" + name):
            up = target.removesuffix(name).removeprefix("../")
            return f"]({up}{name}{link['anchor'] or ''})"
    return link[0]
