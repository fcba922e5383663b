"""Bounded reads of the files of an encoder's folder."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def read_at_most(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; a larger one is not read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(handle, "rb") as file:  # noqa: PTH123  (of a descriptor)
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise DataError(f"{path} is no file")
            if found.st_size > most:
                raise DataError(f"{path} has {found.st_size} bytes, at most {most} are read")
            return file.read(most + 1)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
