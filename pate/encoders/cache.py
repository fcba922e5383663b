"""Embeddings of earlier runs in a file of the party's own home, so that a restart does not make them again.

A row is found by the SHA-256 of the record as it was read, in a file for one encoder. Each row has a digest
over encoder, record and row: what does not match is made again. A file that is damaged is begun anew, and one
that cannot be written costs time, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from pate.errors import DiskError, StateError
from pate.runtime.home import open_private, private_directory
from pate.storage.durable_file import connect

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

#: Largest file of rows, in bytes; what is beyond it is made again.
MOST_BYTES: Final = 4 << 30
#: Encoders whose rows are kept, the latest ones.
_KEPT: Final = 4
#: Bytes of a row beside its numbers: key, digest, and what SQLite needs.
_BESIDE: Final = 120
#: In place of the row of a record for which the encoder took too long. Of no other unusable record
#: anything is kept: it is unusable whenever it is read.
TOO_SLOW: Final[NDArray[np.int16]] = np.zeros(0, dtype=np.int16)
#: Seconds between two commits.
_EVERY: Final = 2.0


class Memory(dict[bytes, "NDArray[np.int16]"]):
    """The rows of one encoder, for as long as this process reads the same records again."""

    def put(self, key: bytes, values: NDArray[np.int16]) -> None:
        """Store the row of a record."""
        self[key] = values


class Cache:
    """The rows of one encoder, safe for several threads."""

    def __init__(self, folder: Path, encoder: str, width: int) -> None:
        self._path = folder / f"{encoder}.sqlite"
        self._encoder, self._width = bytes.fromhex(encoder), width
        self._lock = threading.Lock()
        self._link: sqlite3.Connection | None = None
        self._count, self._due = 0, 0.0
        with contextlib.suppress(OSError, DiskError, StateError):
            private_directory(folder)
            self._drop_old(folder)
        self._open()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Commit and close."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._link is not None:
                if self._link.in_transaction:
                    self._link.execute("COMMIT")
                self._link.close()
            self._link = None

    def get(self, key: bytes) -> NDArray[np.int16] | None:
        """Return the row of a record by its hash, None if there is none that is whole."""
        with self._lock:
            if self._link is None:
                return None
            try:
                found = self._link.execute(
                    "SELECT row, digest FROM rows WHERE key = ?", (key,)
                ).fetchone()
            except sqlite3.Error:
                self._begin_anew()
                return None
        if found is None:
            return None
        row, digest = found
        whole = isinstance(row, bytes) and len(row) in (0, 2 * self._width)
        if not whole or digest != self._digest(key, row):
            return None
        return np.frombuffer(row, dtype="<i2").astype(np.int16)

    def put(self, key: bytes, values: NDArray[np.int16]) -> None:
        """Store the row of a record."""
        row = values.astype("<i2").tobytes()
        with self._lock:
            if self._link is None or self._count * (len(row) + _BESIDE) > MOST_BYTES:
                return
            try:
                if not self._link.in_transaction:
                    self._link.execute("BEGIN")
                self._link.execute(
                    "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                    (key, row, self._digest(key, row)),
                )
                self._count += 1
                if time.monotonic() >= self._due:
                    self._link.execute("COMMIT")
                    self._due = time.monotonic() + _EVERY
            except sqlite3.Error:
                self._begin_anew()

    def _digest(self, key: bytes, row: bytes) -> bytes:
        return hashlib.sha256(b"pate embedding\0" + self._encoder + key + row).digest()

    def _open(self, *, again: bool = True) -> None:
        """Connect; a damaged file is removed once, then the cache does without."""
        link = None
        try:
            open_private(self._path).close()
            link = connect(self._path)
            # Damage is noticed, so nothing waits for the disk.
            for pragma in ("journal_mode = WAL", "synchronous = OFF", "trusted_schema = OFF"):
                link.execute(f"PRAGMA {pragma}").fetchone()
            link.execute(
                "CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, row BLOB, digest BLOB) "
                "WITHOUT ROWID"
            )
            (self._count,) = link.execute("SELECT COUNT(key) FROM rows").fetchone()
            self._link = link
        except (sqlite3.Error, OSError):
            if link is not None:
                link.close()
            if again:
                self._remove(self._path)
                self._open(again=False)

    def _begin_anew(self) -> None:
        """Remove a file that cannot be used and open an empty one."""
        if self._link is not None:
            with contextlib.suppress(sqlite3.Error):
                self._link.close()
        self._link, self._count = None, 0
        self._remove(self._path)
        self._open(again=False)

    @staticmethod
    def _remove(path: Path) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            with contextlib.suppress(OSError):
                path.with_name(path.name + suffix).unlink(missing_ok=True)

    def _drop_old(self, folder: Path) -> None:
        """Remove the files of encoders that were used longest ago."""
        others = [path for path in folder.glob("*.sqlite") if path != self._path]
        others.sort(key=lambda path: path.stat().st_mtime)
        for path in others[: max(0, len(others) - _KEPT + 1)]:
            self._remove(path)
