"""Who may look at the page: whoever holds the token of the server's home."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final

from pate.errors import StateError
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from pathlib import Path

#: Its name in a server's home; a scraper can read it as its bearer token.
TOKEN_FILE: Final = "page.token"  # noqa: S105 - a name
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


def kept_token(home: Path) -> str:
    """Return the token in a server's home: 256 random bits, made on first use.

    Raises:
        StateError: if the file is damaged.
        DiskError: if it cannot be written.
    """
    path = home / TOKEN_FILE
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        text = secrets.token_urlsafe(32)
        write_file(private_directory(home) / TOKEN_FILE, f"{text}\n".encode("ascii"))
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        raise StateError(f"{path} is damaged; remove it, and a new token is made")
    return text


def cookie_of(token: str) -> str:
    """Return what a browser keeps instead of the token: good for the page, and not for a bearer."""
    return hmac.new(token.encode("ascii"), b"pate page cookie v1", hashlib.sha256).hexdigest()


def same(given: str, wanted: str) -> bool:
    """Compare two secrets in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8"))
