"""Finding the token that authenticates a student to its server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pate.runtime.environment import is_loopback
from pate.runtime.home import default_home
from pate.runtime.tokens import STUDENT_TOKEN, read_token

if TYPE_CHECKING:
    from pathlib import Path


def token_for(given: Path | None, host: str) -> str | None:
    """Return the token for a server, None if there is none.

    Args:
        given: a named file, None to search for it.
        host: of the server. The user's state directory is searched only for a server on this
            machine: its token belongs to this user's local server and no other.

    Raises:
        StateError: if the named file cannot be read, or a found one is damaged.
    """
    if given is not None:
        return read_token(given)
    found = default_home("server") / STUDENT_TOKEN
    return read_token(found) if is_loopback(host) and os.access(found, os.R_OK) else None
