"""Where a student finds the token by which its server knows it."""

from __future__ import annotations

import ipaddress
import os
from typing import TYPE_CHECKING

from pate.runtime.home import default_home
from pate.runtime.tokens import STUDENT_TOKEN, read_token

if TYPE_CHECKING:
    from pathlib import Path


def token_for(given: Path | None, host: str) -> str | None:
    """Return the token for a server; None if there is none to be found.

    Args:
        given: the file that was named, None to look for it.
        host: of the server. Only for one on this machine the user's own state directory is looked
            into: what is there is the token of a server of this user here, and of no other.

    Raises:
        StateError: if the file that was named cannot be read, or one that was found is damaged.
    """
    if given is not None:
        return read_token(given)
    found = default_home("server") / STUDENT_TOKEN
    return read_token(found) if _is_loopback(host) and os.access(found, os.R_OK) else None


def _is_loopback(host: str) -> bool:
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"
