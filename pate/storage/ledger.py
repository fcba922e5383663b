"""The one engine of every ledger: kinds of entries with their rules, replayed and appended durably.

A kind of entry is one frozen dataclass: its fields are the body, and its ``follow`` is the rule. The
same rule admits an entry before it is written and checks it when the ledger is read, so every ledger
that this code wrote verifies.

A ledger has the table ``entries``, its chain, and further tables that the chain commits to; all are
append-only, in a SQLite file or a PostgreSQL database. The SQL is common to both, with ``?`` for values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from pate.errors import LedgerError, PateError, StateError
from pate.exact import read, write
from pate.foreign import shown
from pate.runtime.failpoints import reach
from pate.storage.hash_chain import Entry, Head

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from pate.storage.hash_chain import Chain, Json

#: A row outside the chain: the name of its table, and its values by column.
Row: TypeAlias = tuple[str, Mapping[str, object]]

_COLUMNS: Final = ("seq", "kind", "body", "previous", "digest", "written_at")
#: Rows in memory at a time while a table is read; one may be a batch of votes.
_AT_A_TIME: Final = 64


class Found(Protocol):
    """The result of a query."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all further rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """One transaction on a ledger; a connection of :mod:`sqlite3` is one."""

    def execute(self, question: str, values: Sequence[Any] = ..., /) -> Found:
        """Run a query, or write a row."""


def append(db: Transaction, entry: Entry, rows: Iterable[Row] = ()) -> None:
    """Write an entry, and the rows of other tables that belong to it.

    ``db``: the transaction; once it is committed, the entry is durable; ``rows``: that the chain
    commits to; their column ``entry`` is filled in.
    """
    if (last_head(db) or Head(0, entry.previous)) != Head(entry.seq - 1, entry.previous):
        raise StateError("the ledger was written by another process; stop that one")
    insert(db, "entries", {name: getattr(entry, name) for name in _COLUMNS})
    for table, row in rows:
        insert(db, table, {"entry": entry.seq, **row})


def insert(db: Transaction, table: str, row: Mapping[str, object]) -> None:
    """Write one row, given by column."""
    places = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))  # noqa: S608


def each_row(
    db: Transaction, table: str, columns: Sequence[str], where: str = "", values: Sequence[Any] = ()
) -> Iterator[Any]:
    """Yield the rows of a table, a few in memory at a time.

    ``columns``: wanted; the first is the table's key, a number, by which rows come in order.
    """
    key, after = columns[0], tuple[Any, ...]()
    while True:
        wanted = [each for each in (where, f"{key} > ?" if after else "") if each]
        some = db.execute(
            f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608
            + (f" WHERE {' AND '.join(wanted)}" if wanted else "")
            + f" ORDER BY {key} LIMIT {_AT_A_TIME}",
            (*values, *after),
        ).fetchall()
        yield from some
        if len(some) < _AT_A_TIME:
            return
        if after and some[-1][0] <= after[0]:
            raise LedgerError(f"the file is damaged: rows of {table} are out of order")
        after = (some[-1][0],)


def each_entry(
    db: Transaction, least: int = 1, kinds: Sequence[str] | None = None
) -> Iterator[Entry]:
    """Yield the stored entries of a chain, unchecked, a few at a time.

    ``least``: number of the first entry wanted; at 1 all are, whatever their numbers.
    """
    conditions, values = [], list[Any]()
    if least > 1:
        conditions.append("seq >= ?")
        values.append(least)
    if kinds is not None:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values.extend(kinds)
    for row in each_row(db, "entries", _COLUMNS, " AND ".join(conditions), values):
        yield Entry(*row)


def last_head(db: Transaction) -> Head | None:
    """Return the stored head of the chain, None if it is empty."""
    row = db.execute("SELECT seq, digest FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    return None if row is None else Head(*row)


def require_entry(db: Transaction, head: Head) -> None:
    """Check that a verified chain has an entry that is known from elsewhere."""
    row = db.execute("SELECT digest FROM entries WHERE seq = ?", (head.seq,)).fetchone()
    if row is None:
        last = last_head(db)
        raise LedgerError(
            f"entry {head.seq} was in this ledger and is missing: it ends at {last.seq if last else 0}"
        )
    if row[0] != head.digest:
        raise LedgerError(f"entry {head.seq} differs from the expected {head}")


def append_only(table: str, said: str) -> tuple[str, ...]:
    """Return triggers that make a SQLite table append-only."""
    return tuple(
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
        for verb in ("UPDATE", "DELETE")
    )


def check_schema(db: Transaction, wanted: Collection[str]) -> None:
    """Check that a SQLite file has exactly the tables and triggers of an append-only ledger."""
    rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = {(name.casefold(), _named(sql)[1]) for name, sql in rows}
    if odd := found ^ set(map(_named, wanted)):
        names = ", ".join(sorted({name for name, _ in odd}))
        raise LedgerError(f"the ledger's tables or triggers were altered: {names}")


def _named(statement: str) -> tuple[str, str]:
    """Return the name that a statement creates, and its normalised text."""
    text = " ".join(statement.split()).casefold()
    return text.split()[2], text


State = TypeVar("State")


class Step(ABC, Generic[State]):
    """What one entry records; its fields are the body, in their text form."""

    kind: ClassVar[str]
    # fields that are not in the body but in rows of other tables, to which the body commits
    aside: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def follow(self, state: State, at: Entry) -> State:
        """Return the state after this step; where the rule refuses it, the state is unchanged."""

    def body(self) -> dict[str, Json]:
        """Return the body of its entry."""
        made: dict[str, Json] = write(self)
        return made

    @classmethod
    def of_body(cls, body: Mapping[str, Json]) -> Self:
        """Read back what :meth:`body` made; LedgerError for anything else."""
        return read(cls, body, error=LedgerError, what=f"an entry {cls.kind!r}")

    def other_rows(self) -> Iterable[Row]:
        """Return its rows in other tables."""
        return ()

    def loaded(self, db: Transaction, state: State, seq: int) -> Self:  # noqa: ARG002
        """Return the step with the fields ``aside``, from the rows of its entry ``seq``."""
        return self


class Rules(Generic[State]):
    """The rules of one sort of ledger."""

    def __init__(self, chain: Chain, *kinds: type[Step[Any]]) -> None:
        self.chain = chain
        self._kinds: dict[str, type[Step[Any]]] = {each.kind: each for each in kinds}

    def read(self, entry: Entry, head: Head) -> Step[Any]:
        """Return what an entry records; LedgerError if it does not follow ``head``."""
        body = self.chain.check(entry, head)
        if entry.kind not in self._kinds:
            raise LedgerError(f"it has the unknown kind {shown(entry.kind)}")
        return self._kinds[entry.kind].of_body(body)

    def admitted(
        self, state: State, head: Head, step: Step[Any], written_at: str
    ) -> tuple[Entry, State]:
        """Return the entry of a step after ``head``, and the state after it; an error if refused."""
        entry = self.chain.after(head, step.kind, step.body(), written_at)
        # As a reader will find it.
        found = replace(
            self.read(entry, head), **{name: getattr(step, name) for name in step.aside}
        )  # type: ignore[type-var]
        return entry, found.follow(state, entry)

    def replay(
        self, state: State, entries: Iterable[Entry], db: Transaction | None = None
    ) -> tuple[State, Head]:
        """Return the state after all entries of a ledger, and its head.

        ``db``: with the rows of other tables; None if no rule reads them.
        """
        head = self.chain.start
        for entry in entries:
            try:
                step = self.read(entry, head)
                if db is not None:
                    step = step.loaded(db, state, entry.seq)
                state = step.follow(state, entry)
            except (PateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                # Whatever the bytes of a file make a rule say: they are no ledger.
                raise LedgerError(
                    f"entry {entry.seq} ({shown(entry.kind)}) is invalid: {error}"
                ) from error
            head = entry.head
        return state, head


class Store(Protocol):
    """Where a ledger is: a file, or a schema of a database."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """One durable transaction: committed when the block ends, undone if it raises."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """A consistent view of the committed state."""

    def remember(self, head: Head) -> None:
        """Note outside of the store that it has this entry."""


class Log(Generic[State]):
    """An open ledger: its state, and its next entry. The caller sees to one thread at a time."""

    def __init__(
        self,
        store: Store,
        rules: Rules[State],
        found: tuple[State, Head],  # its state and its head, as read from the store
        *,
        now: Callable[[], str],
        written: str,  # the failpoint between an entry and its commit
        # reads state and head once more; None: after a failed write nothing more is written
        again: Callable[[], tuple[State, Head]] | None = None,
    ) -> None:
        self._store, self._rules = store, rules
        self._state, self.head = found
        self._now, self._written, self._again = now, written, again
        #: After a failed write it is unknown whether the entry is on the disk.
        self._unknown = False

    @property
    def state(self) -> State:
        """The state as of the last entry."""
        if self._unknown and self._again is not None:
            self._state, self.head = self._again()
            self._unknown = False
        return self._state

    def append(self, step: Step[Any]) -> State:
        """Write the entry of a step durably if the rules allow it, and return the state after it."""
        before = self.state
        if self._unknown:
            raise StateError("the ledger is closed, or a write has failed: open it again")
        self._unknown = True
        try:
            entry, after = self._rules.admitted(before, self.head, step, self._now())
        except PateError:
            self._unknown = False
            raise
        with self._store.writing() as db:
            append(db, entry, step.other_rows())
            reach(self._written)
        self._store.remember(entry.head)
        self._state, self.head, self._unknown = after, entry.head, False
        return after

    def close(self) -> None:
        """Write nothing more."""
        self._unknown, self._again = True, None
