"""Files that only their owner may read."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError

if TYPE_CHECKING:
    from pathlib import Path

_SECRET_BYTES: Final = 32


def new_secret(path: Path) -> bytes:
    """Write 32 fresh random bytes to ``path``, replacing what was there, and return them.

    The file is never readable by others, not even for an instant.

    Raises:
        DiskError: if it cannot be written.
    """
    secret = secrets.token_bytes(_SECRET_BYTES)
    write_privately(path, secret)
    return secret


def write_privately(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, replacing what was there, for its owner alone.

    Raises:
        DiskError: if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Removed and made anew: an existing file would keep the permissions that it has.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror}") from error
