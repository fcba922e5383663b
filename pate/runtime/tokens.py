"""Tokens that authenticate clients to a server: one line of text each, in a private file."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final

from pate.errors import StateError
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from pathlib import Path

#: In a server's home: the token of the campaign's student.
STUDENT_TOKEN: Final = "student.token"  # noqa: S105 - a name
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_LARGEST: Final = 1024


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def kept_token(path: Path) -> str:
    """Return the token in a file: 256 random bits, made on first use."""
    if not path.exists():
        private_directory(path.parent)
        write_file(path, f"{new_token()}\n".encode("ascii"))
    return read_token(path)


def read_token(path: Path) -> str:
    """Return the token in an existing file."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        raise StateError(
            f"{path} is damaged: it holds no token; where a server made it, remove it, and a new "
            "one is made"
        )
    return text


def same(given: str, wanted: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8"))
