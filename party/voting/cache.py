"""Cache of votes, so that a repeated query gets the same votes."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DiskError, StateError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.votes import Counts


#: Queries per SQL statement.
_AT_A_TIME: Final = 500


class VoteCache:
    """Vote vectors on disk, by the hash of the query.

    A vote belongs to a query, a class list and an ensemble: ``ensemble`` changes when the
    party's data or settings do, and then a campaign over the same public set gets new votes.
    """

    def __init__(self, path: Path, *, ensemble: bytes, classes: Sequence[str]) -> None:
        private_directory(path.parent)
        self._path = path
        self._classes = len(classes)
        key = hashlib.sha256(ensemble)
        for name in classes:
            key.update(len(name.encode()).to_bytes(4, "big") + name.encode())
        self._key = key.digest()
        try:
            path.touch(mode=0o600)
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        with self._transaction() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS votes (key BLOB NOT NULL, query BLOB NOT NULL, "
                "counts BLOB NOT NULL, PRIMARY KEY (key, query)) WITHOUT ROWID"
            )

    def votes(
        self,
        queries: Sequence[bytes],
        compute: Callable[[NDArray[np.int64]], Counts],
        before_store: Callable[[], None] = lambda: None,
    ) -> Counts:
        """Return (queries, classes) int64 votes, computing and storing missing ones.

        Args:
            queries: row hashes, one per query.
            compute: given the positions that are missing, returns their votes in that order.
            before_store: called between the two.

        Raises:
            DiskError: if the votes cannot be stored; then none leave.
            StateError: if the file is damaged.
        """
        stored = self._load(queries)
        missing = [at for at, query in enumerate(queries) if query not in stored]
        if missing:
            made = compute(np.array(missing, dtype=np.int64)).astype("<i8")
            before_store()
            fresh = {queries[at]: row.tobytes() for at, row in zip(missing, made, strict=True)}
            with self._transaction() as db:
                db.executemany(
                    "INSERT OR IGNORE INTO votes VALUES (?, ?, ?)",
                    [(self._key, query, counts) for query, counts in fresh.items()],
                )
            reach("votes-cached")
            stored |= fresh
        packed = b"".join(stored[query] for query in queries)
        if len(packed) != len(queries) * self._classes * 8:
            raise StateError(f"{self._path} is damaged; remove it, and the votes are recomputed")
        return (
            np.frombuffer(packed, dtype="<i8").reshape(len(queries), self._classes).astype(np.int64)
        )

    def _load(self, queries: Sequence[bytes]) -> dict[bytes, bytes]:
        # By the queries, since the file may have votes on many more.
        stored: dict[bytes, bytes] = {}
        with self._transaction() as db:
            for first in range(0, len(queries), _AT_A_TIME):
                some = queries[first : first + _AT_A_TIME]
                stored.update(
                    db.execute(
                        "SELECT query, counts FROM votes WHERE key = ? AND query IN "  # noqa: S608
                        f"({', '.join('?' * len(some))})",  # question marks alone
                        (self._key, *some),
                    )
                )
        return stored

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One connection, one transaction, with translated errors of SQLite."""
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as db, db:
                yield db
        except sqlite3.OperationalError as error:
            raise DiskError(f"cannot use {self._path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StateError(
                f"{self._path} is damaged ({error}); remove it to recompute the votes"
            ) from error
