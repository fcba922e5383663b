"""The page's token, which authorises reading it, stored in the server's home."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from pate.runtime import tokens

if TYPE_CHECKING:
    from pathlib import Path

#: Its name in a server's home; a scraper can read it as its bearer token.
TOKEN_FILE: Final = "page.token"  # noqa: S105 - a name


def kept_token(home: Path) -> str:
    """Return the page's token in a server's home, made on first use."""
    return tokens.kept_token(home / TOKEN_FILE)


def cookie_of(token: str) -> str:
    """Return the browser's cookie, derived from the token; it is not valid as a bearer token."""
    return hmac.new(token.encode("ascii"), b"pate page cookie v1", hashlib.sha256).hexdigest()
