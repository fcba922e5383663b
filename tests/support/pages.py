"""Code and commands that the documentation shows, taken from its pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROOT = DOCS.parent
#: Every page that describes the project as it is, by its path from the root.
PAGES = [
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    *sorted(str(each.relative_to(ROOT)) for each in DOCS.rglob("*.md")),
]
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
#: Words of the shell around a command.
_AROUND = {
    "do", "done", "then", "else", "fi", "if", "until", "while", "!", "time", "env", "sudo", "--",
}  # fmt: skip
_HEREDOC = re.compile(r"<<(\w+)\n.*?^\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code on a page: its language, its text without indentation, and the line it begins in."""

    page: str
    line: int
    language: str
    code: str


def blocks_of(page: str) -> list[Block]:
    """Return all blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, m.start()) + 1,
            m["language"],
            re.sub(rf"^{m['indent']}", "", m["code"], flags=re.MULTILINE),
        )
        for m in _BLOCK.finditer(text)
    ]


def blocks(page: str, language: str) -> list[str]:
    """Return the code of the blocks of one language on a page, in order."""
    return [each.code for each in blocks_of(page) if each.language == language]


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the words of each command of a block of the shell, without assignments and redirections."""
    code = block.code
    if block.language == "console":  # only what follows a prompt is typed
        code = "\n".join(line[2:] for line in code.splitlines() if line.startswith("$ "))
    code = _HEREDOC.sub("", code).replace("\\\n", " ")
    for line in code.splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        words.whitespace_split = True
        for ends, command in groupby(words, lambda word: set(word) <= set("&|;")):
            found = list(command)
            while found and (found[0] in _AROUND or re.fullmatch(r"\w+=\S*", found[0])):
                del found[0]
            if not ends and found and found[0] != "for":
                yield list(_without_files(found))


def _without_files(words: list[str]) -> Iterator[str]:
    is_file = False
    for word in words:
        if not is_file and not set(word) <= set("<>"):
            yield word
        is_file = set(word) <= set("<>")


def spans(page: str) -> list[str]:
    """Return the pieces of code within the sentences of a page."""
    text = _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return _SPAN.findall(text)
