"""The one engine of every ledger: kinds of entries with their rules, replayed and appended durably.

A kind of entry is one frozen dataclass: its fields are the body, and its ``follow`` is the rule. The
same rule admits an entry before it is written and checks it when the ledger is read, so every ledger
that this code wrote verifies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from pate.errors import LedgerError, PateError, StateError
from pate.exact import read, write
from pate.foreign import shown
from pate.runtime.failpoints import reach
from pate.storage.entries import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import Self

    from pate.storage.entries import Row, Transaction
    from pate.storage.hash_chain import Chain, Entry, Head, Json

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
