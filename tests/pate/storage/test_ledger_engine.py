"""The engine of every ledger, on one with two kinds of entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from pate.errors import DiskError, LedgerError, RefusedError, StateError
from pate.exact import in_text
from pate.storage.hash_chain import Chain, Entry, Head
from pate.storage.ledger import Log, Row, Rules, Step, Transaction, each_entry

CHAIN = Chain(b"test entry\0", b"test")


@dataclass(frozen=True)
class Add(Step[int]):
    kind, aside = "add", ("why",)
    number: int
    why: bytes = field(default=b"", metadata=in_text(absent=True))

    def other_rows(self) -> Iterable[Row]:
        yield "reasons", {"why": self.why}

    def loaded(self, db: Transaction, state: int, seq: int) -> Add:
        del state
        (why,) = db.execute("SELECT why FROM reasons WHERE entry = ?", (seq,)).fetchone()
        return Add(self.number, why)

    def follow(self, state: int, at: Entry) -> int:
        if not self.why or state + self.number > 10:
            raise RefusedError(f"entry {at.seq}: no reason, or too much")
        return state + self.number


@dataclass(frozen=True)
class Clear(Step[int]):
    kind = "clear"

    def follow(self, state: int, at: Entry) -> int:
        del state, at
        return 0


RULES: Rules[int] = Rules(CHAIN, Add, Clear)


class Memory:
    """A store in memory; ``fails`` is raised at the next commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.db.execute(
            "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind, body, previous, digest, written_at)"
        )
        self.db.execute("CREATE TABLE reasons (entry, why)")
        self.fails: BaseException | None = None
        self.noted: list[Head] = []

    @contextmanager
    def writing(self) -> Iterator[Any]:
        self.db.execute("BEGIN")
        try:
            yield self.db
            if self.fails is not None:
                raise self.fails
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[Any]:
        yield self.db

    def remember(self, head: Head) -> None:
        self.noted.append(head)

    def read(self) -> tuple[int, Head]:
        return RULES.replay(0, each_entry(self.db), self.db)


@pytest.fixture
def store() -> Iterator[Memory]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        yield Memory(db)


def opened(store: Memory, *, again: bool = False) -> Log[int]:
    reads: Callable[[], tuple[int, Head]] | None = store.read if again else None
    return Log(store, RULES, store.read(), now=lambda: "now", written="entry-written", again=reads)


def test_what_was_appended_is_replayed(store: Memory) -> None:
    log = opened(store)
    assert [log.append(Add(4, b"a")), log.append(Add(6, b"b")), log.append(Clear())] == [4, 10, 0]
    assert log.append(Add(1, b"c")) == 1
    assert store.read() == (1, log.head) == (log.state, store.noted[-1])
    assert [entry.body for entry in each_entry(store.db)][:3] == [
        '{"number":4}',
        '{"number":6}',
        "{}",
    ]
    assert [head.seq for head in store.noted] == [1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [Add(11, b"a"), Add(1), Add(True, b"a"), Add("1", b"a")])  # type: ignore[arg-type]
def test_what_the_rule_or_the_form_refuses_is_not_written(store: Memory, wrong: Add) -> None:
    log = opened(store)
    with pytest.raises((RefusedError, LedgerError)):
        log.append(wrong)
    assert (log.state, log.head, store.noted) == (0, CHAIN.start, [])
    assert log.append(Add(1, b"a")) == 1  # a refusal is no failure


def test_after_a_failed_write_it_is_read_again_or_closed(store: Memory) -> None:
    for again in (True, False):
        log = opened(store, again=again)
        before = log.state
        store.fails = DiskError("full")
        with pytest.raises(DiskError):
            log.append(Add(1, b"a"))
        store.fails = None
        assert (log.state, store.read()[0]) == (before, before)
        if again:
            assert log.append(Add(1, b"a")) == before + 1
            continue
        with pytest.raises(StateError, match="open it again"):
            log.append(Add(1, b"a"))
    log = opened(store, again=True)
    log.close()
    with pytest.raises(StateError, match="open it again"):
        log.append(Clear())


def test_two_writers_do_not_fork_the_chain(store: Memory) -> None:
    one, other = opened(store), opened(store, again=True)
    one.append(Add(3, b"a"))
    with pytest.raises(StateError, match="another process"):
        other.append(Clear())
    assert other.append(Add(2, b"b")) == 5  # it has read what the other wrote


def test_a_rule_is_checked_again_when_the_ledger_is_read(store: Memory) -> None:
    log = opened(store)
    for number in (4, 5):
        log.append(Add(number, b"a"))
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        ("add", {"number": 7}), ("add", {}), ("add", {"number": 1, "more": 1}), ("more", {}),
    )  # fmt: skip
    for kind, body in bodies:
        forged = CHAIN.after(Head(1, store.noted[0].digest), kind, body, "now")
        with pytest.raises(LedgerError, match=r"entry 2 \('(add|more)'\) is invalid"):
            RULES.replay(0, [*list(each_entry(store.db))[:1], forged], store.db)
    store.db.execute("UPDATE reasons SET why = x'' WHERE entry = 2")
    with pytest.raises(LedgerError, match=r"entry 2 .* no reason"):
        store.read()
