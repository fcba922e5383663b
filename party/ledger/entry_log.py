"""The entries of a party's ledger: read from its file, and appended to it durably.

One SQLite file, append-only and hash-chained. ``entries`` is the chain; ``queries`` has the hashes
of each batch, and ``units`` those of the units that vote in a series, to which the chain commits by
digest. None contains a vote.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from party.ledger.campaigns import Entry
from party.ledger.chain import APPLICATION_ID, CHAIN, SCHEMA, check_tables, replayed
from party.ledger.head_file import HeadFile
from party.ledger.history import History
from party.ledger.series import LOST
from pate.errors import LedgerError, RefusedError
from pate.foreign import json_value
from pate.runtime.failpoints import reach
from pate.storage.durable_file import DurableFile
from pate.storage.entries import append, require_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from party.ledger.rules import LedgerState
    from pate.storage.hash_chain import Head, Json


class EntryLog:
    """A party's entries and the resulting state; arguments and errors as of the ledger.

    Attributes:
        head: the last entry.
        history: earlier entries, queried from the file.
    """

    def __init__(self, path: Path, now: Callable[[], datetime], *, read_only: bool) -> None:
        self._head_file = None if read_only else HeadFile(path)
        noted = None
        if self._head_file is not None:
            self._head_file.require_ledger()
            noted = self._head_file.read()  # before the ledger, which may grow meanwhile
        self._file = DurableFile(
            path, SCHEMA, APPLICATION_ID, damaged=LedgerError, read_only=read_only
        )
        self._now = now
        #: None if the file must be read again.
        self._state: LedgerState | None = None
        self.history = History(self._file.reading)
        self._state, self.head = self._read()
        if self._head_file is not None:
            self._head_file.require_noted(noted, self.require)
            self._head_file.note(self.head)
            if self._head_file.loss_noted:
                if self._state.in_series:
                    self.append(LOST, {})
                self._head_file.loss_recorded()

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def state(self) -> LedgerState:
        """Return the ledger as of its last entry."""
        if self._state is None:
            self._state, self.head = self._read()
        return self._state

    def append(
        self,
        kind: str,
        body: Mapping[str, Json],
        hashes: Sequence[bytes] = (),
        tags: Sequence[bytes] = (),
        units: Sequence[bytes] = (),
        *,
        store: bool = False,
    ) -> None:
        """Write the next entry durably if the rules allow it.

        Args:
            kind: of the entry.
            body: of the entry.
            hashes: of the queries of its batch.
            tags: of the votes on them.
            units: that vote in it, in a series.
            store: whether hashes, tags and units are written, too, for a first answer.
        """
        state = self.state()
        at = self._now().astimezone(UTC).isoformat(timespec="seconds")
        made = CHAIN.after(self.head, kind, body, at)
        entry = Entry(made.seq, kind, json_value(made.body), at, hashes, tags, units)
        tables = (("queries", "query", hashes), ("tags", "tag", tags), ("units", "unit", units))
        rows = (
            # Units ascend, so that they say nothing of the order in the file.
            (table, {column: value} | ({} if table == "units" else {"position": position}))
            for table, column, values in tables
            for position, value in enumerate(values)
            if store
        )
        # From here to the commit the state may be ahead of the file: on failure it is read again.
        self._state = None
        try:
            with self._file.writing() as db:
                append(db, made, rows)
                if check_tables(db) != self._schema:
                    raise LedgerError(f"{self.path} was altered by another process; stop that one")
                state.follow(entry, History.within(db))
                reach("party-entry-written")
        except RefusedError:
            self._state = state  # refused before anything was changed
            raise
        self._state, self.head = state, made.head
        if self._head_file is not None:
            self._head_file.note(self.head)

    def verify(self) -> None:
        """Read the file again and verify every entry."""
        self.state()
        if self._read()[1] != self.head:
            raise LedgerError(f"{self.path} has other entries than this process wrote")

    def require(self, head: Head) -> None:
        """Check that the ledger has an entry known from elsewhere."""
        with self._file.reading() as db:
            require_entry(db, head)

    def _read(self) -> tuple[LedgerState, Head]:
        with self._file.reading() as db:
            self._schema = check_tables(db)
            return replayed(db)
