"""What a party remembers of its bundles and rounds, on disk.

The file is as secret as the votes themselves: with the shares in it, and those of others, votes can be
unmasked. It is not in a backup: a restored party would use a bundle a second time. Without it a
party makes new bundles, and takes part in new campaigns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.errors import RefusedError
from pate.masking.ahead.store import REMOVED
from pate.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pate.masking.ahead.store import Kind, Place

#: Name of the file in a party's home.
BUNDLES_FILE: Final = "bundles.db"
#: "patb" in ASCII.
_APPLICATION_ID: Final = 0x70617462
_SCHEMA: Final = (
    (
        "CREATE TABLE entries (kind TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, "
        "PRIMARY KEY (kind, key)) STRICT"
    ),
    (
        "CREATE TRIGGER entries_no_update BEFORE UPDATE ON entries "
        "BEGIN SELECT RAISE(ABORT, 'entries are kept as they are'); END"
    ),
    (
        "CREATE TRIGGER entries_no_delete BEFORE DELETE ON entries "
        f"WHEN OLD.kind NOT IN ({', '.join(repr(each.value) for each in REMOVED)}) "
        "BEGIN SELECT RAISE(ABORT, 'what was bound or answered is not removed'); END"
    ),
)


class AheadFile:
    """Entries of a party's bundles and rounds; a :class:`pate.masking.ahead.store.Store`.

    Args:
        path: the file; created if absent, readable only by its owner.

    Raises:
        StateError: if the file is damaged.
        DiskError: if it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._file = DurableFile(path, _SCHEMA, _APPLICATION_ID)

    def get(self, kind: Kind, key: bytes) -> bytes | None:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.reading() as db:
            found = db.execute(
                "SELECT value FROM entries WHERE kind = ? AND key = ?", (kind.value, key)
            ).fetchone()
        return None if found is None else bytes(found[0])

    def find(self, kind: Kind, prefix: bytes = b"") -> dict[bytes, bytes]:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.reading() as db:
            return dict(
                db.execute(
                    "SELECT key, value FROM entries WHERE kind = ? AND substr(key, 1, ?) = ?",
                    (kind.value, len(prefix), prefix),
                ).fetchall()
            )

    def change(self, add: Mapping[Place, bytes], remove: Collection[Place] = ()) -> None:
        """See :class:`pate.masking.ahead.store.Store`."""
        with self._file.writing() as db:
            db.execute("PRAGMA secure_delete = ON")
            for (kind, key), value in add.items():
                db.execute(
                    "INSERT INTO entries VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                    (kind.value, key, value),
                )
                (stored,) = db.execute(
                    "SELECT value FROM entries WHERE kind = ? AND key = ?", (kind.value, key)
                ).fetchone()
                if stored != value:
                    raise RefusedError(
                        f"{self._file.path} has another entry ({kind.value}) for the same key: what "
                        "was answered once is not answered otherwise"
                    )
            for kind, key in remove:
                db.execute("DELETE FROM entries WHERE kind = ? AND key = ?", (kind.value, key))
