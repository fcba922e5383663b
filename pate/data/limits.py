"""Bounds on the memory that reading a file may allocate, and readers that enforce them."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import TYPE_CHECKING, Final

from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

#: Most bytes of one unpacked data set.
MAX_BYTES: Final = 8 << 30
#: Most characters of one cell of a table. In a text array every cell takes the size of the longest.
MAX_CELL: Final = 2**16
#: Bytes of a cell in addition to its text: the string object, and its place in a list.
CELL_BYTES: Final = 64

_PIECE: Final = 1 << 20

#: Deflate never unpacks a byte into more than this many (zlib's technical notes: 1032:1).
_DEFLATE_RATIO: Final = 1032


def require_room(path: Path, wanted: int) -> None:
    """Refuse data that is too large for memory."""
    if wanted > MAX_BYTES:
        # Without the size, which would reveal a table's number of records.
        raise DataError(
            f"{path} needs too many bytes unpacked, at most {MAX_BYTES} are read; "
            "use fewer records, shorter texts or smaller images"
        )


def most_bytes(path: Path) -> int:
    """Return an upper bound on the unpacked size of a file, from its length on disk."""
    length = path.stat().st_size
    return length * _DEFLATE_RATIO if path.suffix.casefold() == ".gz" else length


def read_at_most(path: Path, limit: int) -> bytes:
    """Return the content of a file, unpacked if its name ends in ``.gz``, up to ``limit`` bytes."""
    try:
        held = io.BytesIO()
        with _open(path) as file:
            # In pieces: to read many bytes at once, room for all of them is taken first.
            while (left := limit - held.tell()) > 0 and (piece := file.read(min(left, _PIECE))):
                held.write(piece)
        return held.getvalue()
    except EOFError as error:
        raise DataError(
            f"{path} is truncated: its gzip stream has no end; copy it again"
        ) from error
    except zlib.error as error:
        raise DataError(f"{path} is damaged: its gzip stream breaks; copy it again") from error
    except gzip.BadGzipFile as error:
        raise DataError(f"{path} is not a gzip file or is damaged ({error})") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_whole(path: Path) -> bytes:
    """Return the whole content of a file, unpacked if its name ends in ``.gz``."""
    content = read_at_most(path, MAX_BYTES + 1)
    require_room(path, len(content))
    return content


def _open(path: Path) -> BinaryIO | gzip.GzipFile:
    return gzip.open(path, "rb") if path.suffix.casefold() == ".gz" else path.open("rb")
