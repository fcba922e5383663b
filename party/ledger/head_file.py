"""How far a party's ledger had come, kept beside it: so that one that is gone or older is missed.

A party that goes on with an older copy of its ledger, or with none, has forgotten what it answered,
and could be made to answer twice. The head file has one line, number and digest of the last entry. It
may lag behind the ledger, after a power cut or on a full disk, and then shows less; it is never ahead
of it. Who takes the whole home back to an earlier day takes this file with it.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: A head as text, its number with leading zeros.
_LINE: Final = re.compile(r"0*(?=\d)(\d+:[0-9a-f]{64})\n", re.ASCII)
_LENGTH: Final = 20 + 1 + 64 + 1
#: What a party makes only after its ledger.
_LATER: Final = ("noise.db", "votes.db")
_MEND: Final = (
    "restore the newest backup with `pate-party restore`; if what is missing is lost for good, "
    "`pate-party forget --entries-lost` goes on without it"
)


class HeadFile:
    """The head file of one ledger.

    Args:
        ledger: the ledger's file.
    """

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = ledger.with_suffix(".head")

    def read(self) -> Head | None:
        """Return the last head that was noted; None if there is none.

        One that is empty or torn counts as none: so a power cut may leave it.

        Raises:
            LedgerError: if it is whole and names an entry that no ledger has.
        """
        try:
            text = self._path.read_text("ascii")
        except (OSError, ValueError):
            return None
        if len(text) != _LENGTH or not (found := _LINE.fullmatch(text)):
            return None
        try:
            return Head.parse(found[1])
        except LedgerError as error:
            raise LedgerError(
                f"{self._path} is damaged, or no party wrote it: {error}; {_MEND}"
            ) from (error)

    def note(self, head: Head) -> None:
        """Note a head that is durable in the ledger; if it cannot be, the file lags behind.

        One line of fixed length in one write: a process that is killed leaves the old or the new.
        """
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                line = f"{head.seq:020}:{head.digest.hex()}\n".encode()
                os.ftruncate(file, os.pwrite(file, line, 0))
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

    def require_noted(self, head: Head | None, require: Callable[[Head], object]) -> None:
        """Check that the ledger, or a copy of it, has the entry that this file named before it.

        Args:
            head: as :meth:`read` returned it, before the ledger was read or copied.
            require: raises a LedgerError if an entry is not there.

        Raises:
            LedgerError: if it is not.
        """
        if head is None or not head.seq:
            return
        try:
            require(head)
        except LedgerError as error:
            raise LedgerError(
                f"{self._ledger} is an older copy, or another ledger: this party has written entry "
                f"{head.seq}, {head.digest.hex()[:12]}…, and it is not in there: {_MEND}"
            ) from error
