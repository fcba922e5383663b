"""A party's ledger to look at, refused if a start would refuse it: for whoever acts on what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.ledger.chain import APPLICATION_ID
from party.ledger.head_file import Mark
from party.ledger.ledger import PartyLedger
from pate.errors import LedgerError
from pate.storage.durable_file import DurableFile

if TYPE_CHECKING:
    from pathlib import Path


def newest_ledger(path: Path) -> PartyLedger | None:
    """Return the ledger at ``path``, read only; None if this party never had one.

    Nothing is written, and a party may run meanwhile.

    Raises:
        LedgerError: if it does not hold, or is gone or older than this party left it.
        StateError, DiskError: if it cannot be read.
    """
    mark = Mark(path)
    mark.require_ledger()
    if not path.exists():
        return None
    noted = mark.read()  # before the ledger, which may be written to meanwhile
    books = PartyLedger(path, read_only=True)
    require_noted(path, mark, noted)
    return books


def require_noted(path: Path, mark: Mark, noted: str | None) -> None:
    """Check that the ledger, or a copy of it, at ``path`` has the entry that its mark names.

    Args:
        path: of the file.
        mark: of the ledger.
        noted: what the mark said before the file was read or copied.

    Raises:
        LedgerError: if it has not.
    """
    file = DurableFile(path, (), APPLICATION_ID, damaged=LedgerError, read_only=True)
    with file.reading() as db:
        mark.require_within(db, noted)
