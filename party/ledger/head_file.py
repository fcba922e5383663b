"""How far a party's ledger had come, kept beside it: so that books that are gone or older are missed.

A party that goes on with an older copy of its ledger, or with none, has forgotten what it answered,
and could be made to answer twice. The mark is a file of one line, number and digest of the last
entry. It may lag behind the ledger, after a power cut or on a full disk, and then shows less; it is
never ahead of it. Who takes the whole home back to an earlier day takes the mark with it.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_HEAD: Final = re.compile(r"([0-9]{20}):([0-9a-f]{64})\n", re.ASCII)
#: The largest number that a ledger's file can give an entry, and that a head may have.
_MOST_ENTRIES: Final = 10**18 - 1
#: What a party makes only after its ledger.
_LATER: Final = ("noise.db", "votes.db")
_MEND: Final = (
    "restore the newest backup with `pate-party restore`; if what is missing is lost for good, "
    "`pate-party forget --entries-lost` goes on without it"
)


class Mark:
    """The mark of one ledger.

    Args:
        ledger: the ledger's file.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = ledger.with_suffix(".head")

    def read(self) -> str | None:
        """Return the last head that was noted, ``number:digest``; None if there is none.

        One that is empty or torn counts as none: so a power cut may leave it.

        Raises:
            LedgerError: if it is whole and names an entry that no ledger has.
        """
        try:
            found = _HEAD.fullmatch(self._path.read_text("ascii"))
        except (OSError, ValueError):
            return None
        if found is None:
            return None
        if int(found[1]) > _MOST_ENTRIES:
            raise LedgerError(
                f"{self._path} is damaged, or no party wrote it: it names entry {found[1]}, which no "
                f"ledger has; {_MEND}"
            )
        return f"{int(found[1])}:{found[2]}"

    def note(self, head: str) -> None:
        """Note a head that is durable in the ledger; if it cannot be, the mark lags behind.

        One line of fixed length in one write: a process that is killed leaves the old or the new.
        """
        number, digest = head.split(":")
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.ftruncate(file, os.pwrite(file, f"{int(number):020}:{digest}\n".encode(), 0))
            finally:
                os.close(file)

    def require_ledger(self) -> None:
        """Check that a ledger that was there is there.

        Raises:
            LedgerError: if it is gone.
        """
        if self._ledger.exists():
            return
        signs = [
            path for path in (self._path, *map(self._ledger.with_name, _LATER)) if path.exists()
        ]
        if signs:
            raise LedgerError(
                f"{self._ledger} is gone, though this party had one ({signs[0].name} is there): {_MEND}"
            )

    def require_within(self, db: sqlite3.Connection, head: str | None) -> None:
        """Check that a ledger has the entry of a mark that was read before it.

        Args:
            db: the ledger.
            head: as :meth:`read` returned it.

        Raises:
            LedgerError: if it has not.
        """
        if head is None:
            return
        number, digest = int(head.partition(":")[0]), head.partition(":")[2]
        row = db.execute("SELECT digest FROM entries WHERE seq = ?", (number,)).fetchone()
        if number and (row is None or row[0].hex() != digest):
            raise LedgerError(
                f"{self._ledger} is an older copy, or another ledger: this party has written entry "
                f"{number}, {digest[:12]}…, and it is not in there: {_MEND}"
            )
