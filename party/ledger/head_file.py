"""The last head of a party's ledger, stored next to it to detect a missing or older ledger.

A party that continues with an older copy of its ledger, or with none, does not know its later
answers, and could be made to answer twice. The head file has one line, number and digest of the
last entry. It may lag behind the ledger after a power cut or on a full disk, and then detects less;
it is never ahead of it. Rolling back the whole home rolls back this file, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError
from pate.runtime.home import write_file
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: A head as text, its number with leading zeros.
_LINE: Final = re.compile(r"0*(?=\d)(\d+:[0-9a-f]{64})\n", re.ASCII)
_LENGTH: Final = 20 + 1 + 64 + 1
#: Files that a party creates only after its ledger.
_LATER: Final = ("noise.db", "votes.db", "bundles.db")
_REMEDY: Final = (
    "restore the newest backup with `pate-party restore`; if the missing entries are lost, "
    "`pate-party forget --entries-lost` continues without them"
)


class HeadFile:
    """The head file of one ledger, and the note that entries of it were lost."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = ledger.with_suffix(".head")
        self._lost = ledger.with_suffix(".lost")

    def note_loss(self) -> None:
        """Note, durably, that entries of the ledger may be lost; its next writer records it."""
        write_file(self._lost, b"")

    @property
    def loss_noted(self) -> bool:
        """Whether a loss is noted that the ledger may not have recorded."""
        return self._lost.exists()

    def loss_recorded(self) -> None:
        """Remove the note: the ledger has it. If that fails, it is recorded again, without harm."""
        with contextlib.suppress(OSError):
            self._lost.unlink(missing_ok=True)

    def read(self) -> Head | None:
        """Return the last noted head; None if there is none.

        An empty or incomplete line counts as none: a power cut may leave one.
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
            raise LedgerError(f"{self._path} is damaged or foreign: {error}; {_REMEDY}") from (
                error
            )

    def note(self, head: Head) -> None:
        """Note a head that is durable in the ledger; on failure the file lags behind.

        One line of fixed length in one write: a killed process leaves the old or the new line.
        """
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                line = f"{head.seq:020}:{head.digest.hex()}\n".encode()
                os.ftruncate(file, os.pwrite(file, line, 0))
            finally:
                os.close(file)

    def require_ledger(self) -> None:
        """Check that a ledger that existed still exists."""
        if self._ledger.exists():
            return
        signs = [
            path for path in (self._path, *map(self._ledger.with_name, _LATER)) if path.exists()
        ]
        if signs:
            raise LedgerError(
                f"{self._ledger} is missing, though this party had one ({signs[0].name} exists): {_REMEDY}"
            )

    def require_noted(self, head: Head | None, require: Callable[[Head], object]) -> None:
        """Check that the ledger, or a copy of it, has the head that was read before; ``require`` looks."""
        if head is None or not head.seq:
            return
        try:
            require(head)
        except LedgerError as error:
            raise LedgerError(
                f"{self._ledger} is an older copy, or another ledger: it lacks entry "
                f"{head.seq}, {head.digest.hex()[:12]}…, which this party has written: {_REMEDY}"
            ) from error
