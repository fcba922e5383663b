"""The engine of every ledger, and its properties for any kind of entries."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from aggregator_server.exchange import store
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN as SERVER_CHAIN
from aggregator_server.ledger.store import tables
from aggregator_server.ledger.verify import verify
from party.ledger import file
from party.ledger.entries import CHAIN as PARTY_CHAIN
from party.ledger.ledger import PartyLedger
from party.voting import ahead, casting
from pate.errors import DiskError, LedgerError, RefusedError, StateError, UsageError
from pate.exact import in_text
from pate.storage.durable_file import LAYOUT
from pate.storage.hash_chain import Chain, Entry, Head
from pate.storage.ledger import (
    Log,
    Row,
    Rules,
    Step,
    Transaction,
    append,
    each_entry,
    each_row,
    last_head,
)
from tests.support.party.offers import answer_and_open, joining, queries, settled
from tests.support.server.campaigns import label, make_spec, start
from tests.support.tampering import tamper


@dataclass(frozen=True)
class Kind:
    """How one role's ledger is made, checked, and opened for writing."""

    chain: Chain
    make: Callable[[Path], object]
    check: Callable[[Path, list[Head]], Head]
    open: Callable[[Path], object]


def _make_server(path: Path) -> None:
    with start(path, make_spec(queries=20)) as ledger:
        label(ledger)


def _make_party(path: Path) -> None:
    ledger = PartyLedger(path)
    ledger.join(joining())
    for first in (0, 3, 6):
        answer_and_open(ledger, settled(), queries(first, 3))


def _open_server(path: Path) -> None:
    Ledger.open(path).close()


def _check_party(path: Path, heads: list[Head]) -> Head:
    ledger = PartyLedger(path, read_only=True)
    for head in heads:
        ledger.require(head)
    return Head.parse(ledger.head)


KINDS = {
    "server": Kind(
        SERVER_CHAIN, _make_server, lambda path, heads: verify(path, *heads).head, _open_server
    ),
    "party": Kind(PARTY_CHAIN, _make_party, _check_party, PartyLedger),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def path(kind: Kind, tmp_path: Path) -> Path:
    path = tmp_path / "home" / "ledger.db"
    kind.make(path)
    return path


def test_its_chain_leads_from_its_genesis_to_its_head(kind: Kind, path: Path) -> None:
    head = kind.chain.start
    with closing(sqlite3.connect(path)) as db:
        first, *_ = entries = list(each_entry(db))
        assert last_head(db) == entries[-1].head == kind.check(path, [])
    for entry in entries:
        assert kind.chain.check(entry, head)
        head = entry.head
    (other,) = (each for each in KINDS.values() if each is not kind)
    with pytest.raises(LedgerError, match="does not follow"):
        other.chain.check(first, other.chain.start)
    with pytest.raises(LedgerError, match="does not match"):  # nor with another tag
        other.chain.check(first, kind.chain.start)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = body || ' ' WHERE seq = (SELECT max(seq) FROM entries)",
        "UPDATE entries SET kind = 'offered' WHERE seq = 1",
        "UPDATE entries SET written_at = '2001-01-01T00:00:00+00:00' WHERE seq = 2",
        "UPDATE entries SET previous = zeroblob(32) WHERE seq = 3",
        "UPDATE entries SET digest = zeroblob(32) WHERE seq = 3",
        "UPDATE entries SET seq = 99 WHERE seq = 2",
        "UPDATE entries SET seq = -1 WHERE seq = 1",
        "DELETE FROM entries WHERE seq = 1",
        "DELETE FROM entries WHERE seq = 2",
        "DELETE FROM entries",
        "CREATE TABLE more (a)",
        "CREATE INDEX more ON entries (kind)",
        "CREATE TRIGGER more AFTER INSERT ON entries BEGIN SELECT 1; END",
        "CREATE VIEW more AS SELECT * FROM entries",
        "PRAGMA application_id = 7",
    ],
)
def test_an_altered_one_does_not_hold(kind: Kind, path: Path, statement: str) -> None:
    known = kind.check(path, [])
    tamper(path, statement)
    with pytest.raises(LedgerError):
        kind.check(path, [known])


def test_one_without_a_trigger_does_not_hold(kind: Kind, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        names = [n for (n,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    assert {"entries_no_update", "entries_no_delete"} <= set(names)
    for name in names:
        with closing(sqlite3.connect(path)) as db:
            (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
            db.execute(f"DROP TRIGGER {name}")
            with pytest.raises(LedgerError, match=f"altered: .*{name}"):
                kind.check(path, [])
            db.execute(sql.replace("ABORT", "FAIL"))
            with pytest.raises(LedgerError, match=f"altered: {name}"):
                kind.check(path, [])
            db.execute(f"DROP TRIGGER {name}")
            db.execute(" ".join(sql.split()).replace("BEFORE", "before"))  # says the same
            db.commit()
        kind.check(path, [])


@pytest.mark.parametrize(
    "statement",
    ["UPDATE entries SET kind = kind", "DELETE FROM entries", ("INSERT OR REPLACE INTO entries "
     "SELECT * FROM entries WHERE seq = 1")],
)  # fmt: skip
def test_its_entries_are_append_only(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA recursive_triggers = ON")
        with pytest.raises(sqlite3.IntegrityError, match=r"append-only|without gaps"):
            db.execute(statement)


def test_a_tail_that_was_cut_off_is_found_by_a_head_kept_elsewhere(kind: Kind, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        heads = [entry.head for entry in each_entry(db)]
    assert kind.check(path, heads) == heads[-1]
    for wrong in (Head(heads[-1].seq, bytes(32)), Head(1, heads[-1].digest)):
        with pytest.raises(LedgerError, match="differs from the expected"):
            kind.check(path, [wrong])
    for beyond in (Head(heads[-1].seq + 1, bytes(32)), Head(0, bytes(32)), kind.chain.start):
        with pytest.raises(LedgerError, match="was in this ledger and is missing"):
            kind.check(path, [beyond])


def test_only_the_next_entry_can_be_written(kind: Kind, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        head = last_head(db)
        assert head is not None
        for wrong in (Head(head.seq - 1, head.digest), Head(head.seq, bytes(32)), kind.chain.start):
            with pytest.raises(StateError, match="written by another process"):
                append(db, kind.chain.after(wrong, "close", {}, "now"))
        assert last_head(db) == head


def test_long_tables_are_read_in_order_a_few_rows_at_a_time() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT)")
        keys = [-(2**63), -5, 0, *range(3, 1000, 7), 2**63 - 1]
        db.executemany("INSERT INTO t VALUES (?, ?)", ((key, str(key)) for key in reversed(keys)))
        assert list(each_row(db, "t", ("k", "v"))) == [(key, str(key)) for key in keys]
        assert [k for (k,) in each_row(db, "t", ("k",), "v <> ?", ("0",))] == [
            key for key in keys if key
        ]


@pytest.mark.parametrize(
    "text", ["", "1", "x:00", "1:zz", "1:00", " 1:" + "00" * 32, "01:" + "00" * 32,
             "1:" + "AB" * 32, "-1:" + "00" * 32, "9" * 19 + ":" + "00" * 32, "1:" + "00" * 32 + "\n"]
)  # fmt: skip
def test_a_head_has_one_text(text: str) -> None:
    with pytest.raises(LedgerError, match="not a ledger head"):
        Head.parse(text)
    if text != text.strip():
        return  # at a command line it may have spaces around it
    with pytest.raises(UsageError, match="--head"):
        Head.given(text)


def test_a_head_comes_back_from_its_text() -> None:
    head = Head(17, bytes(range(32)))
    assert Head.parse(str(head)) == head == Head.given(f" {head}\n")
    assert Head.given(None) is None


@pytest.mark.parametrize(("more", "age"), [(1, "newer"), (-1, "older")])
def test_a_ledger_of_another_version_is_called_that_and_not_altered(
    kind: Kind, path: Path, more: int, age: str
) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (LAYOUT,)
        db.execute("CREATE TABLE later (at INTEGER)")
        db.execute(f"PRAGMA user_version = {LAYOUT + more}")
    with pytest.raises(StateError, match=f"written by an? {age} version"):
        kind.check(path, [])
    with pytest.raises(StateError, match=f"written by an? {age} version"):
        kind.open(path)
    with closing(sqlite3.connect(path)) as db:  # with this version's number they are altered
        db.execute(f"PRAGMA user_version = {LAYOUT}")
    with pytest.raises(LedgerError, match="altered: later"):
        kind.check(path, [])


def test_a_change_of_tables_changes_the_number_of_the_layout() -> None:
    """From the first release on whoever changes tables raises the number, and both here."""
    layouts = {
        "server": tables.SQLITE,
        "party": file.SCHEMA,
        "keys ahead": ahead._SCHEMA,
        "noise shares": casting._SCHEMA,
        "envelopes": store.SCHEMA,
    }
    digests = {
        name: hashlib.sha256("\n".join(made).encode()).hexdigest()[:16]
        for name, made in layouts.items()
    }
    assert (LAYOUT, digests) == (
        1,
        {
            "server": "5e04f13f9dde625d",
            "party": "3047277672043d52",
            "keys ahead": "2f7e0bc97ae50e15",
            "noise shares": "8a02335666770499",
            "envelopes": "1e86939025da57c3",
        },
    )


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
def marks() -> Iterator[Memory]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        yield Memory(db)


def opened(marks: Memory, *, again: bool = False) -> Log[int]:
    reads: Callable[[], tuple[int, Head]] | None = marks.read if again else None
    return Log(marks, RULES, marks.read(), now=lambda: "now", written="entry-written", again=reads)


def test_what_was_appended_is_replayed(marks: Memory) -> None:
    log = opened(marks)
    assert [log.append(Add(4, b"a")), log.append(Add(6, b"b")), log.append(Clear())] == [4, 10, 0]
    assert log.append(Add(1, b"c")) == 1
    assert marks.read() == (1, log.head) == (log.state, marks.noted[-1])
    assert [entry.body for entry in each_entry(marks.db)][:3] == [
        '{"number":4}',
        '{"number":6}',
        "{}",
    ]
    assert [head.seq for head in marks.noted] == [1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [Add(11, b"a"), Add(1), Add(True, b"a"), Add("1", b"a")])  # type: ignore[arg-type]
def test_what_the_rule_or_the_form_refuses_is_not_written(marks: Memory, wrong: Add) -> None:
    log = opened(marks)
    with pytest.raises((RefusedError, LedgerError)):
        log.append(wrong)
    assert (log.state, log.head, marks.noted) == (0, CHAIN.start, [])
    assert log.append(Add(1, b"a")) == 1  # a refusal is no failure


def test_after_a_failed_write_it_is_read_again_or_closed(marks: Memory) -> None:
    for again in (True, False):
        log = opened(marks, again=again)
        before = log.state
        marks.fails = DiskError("full")
        with pytest.raises(DiskError):
            log.append(Add(1, b"a"))
        marks.fails = None
        assert (log.state, marks.read()[0]) == (before, before)
        if again:
            assert log.append(Add(1, b"a")) == before + 1
            continue
        with pytest.raises(StateError, match="open it again"):
            log.append(Add(1, b"a"))
    log = opened(marks, again=True)
    log.close()
    with pytest.raises(StateError, match="open it again"):
        log.append(Clear())


def test_two_writers_do_not_fork_the_chain(marks: Memory) -> None:
    one, other = opened(marks), opened(marks, again=True)
    one.append(Add(3, b"a"))
    with pytest.raises(StateError, match="another process"):
        other.append(Clear())
    assert other.append(Add(2, b"b")) == 5  # it has read what the other wrote


def test_a_rule_is_checked_again_when_the_ledger_is_read(marks: Memory) -> None:
    log = opened(marks)
    for number in (4, 5):
        log.append(Add(number, b"a"))
    bodies: tuple[tuple[str, dict[str, Any]], ...] = (
        ("add", {"number": 7}), ("add", {}), ("add", {"number": 1, "more": 1}), ("more", {}),
    )  # fmt: skip
    for kind, body in bodies:
        forged = CHAIN.after(Head(1, marks.noted[0].digest), kind, body, "now")
        with pytest.raises(LedgerError, match=r"entry 2 \('(add|more)'\) is invalid"):
            RULES.replay(0, [*list(each_entry(marks.db))[:1], forged], marks.db)
    marks.db.execute("UPDATE reasons SET why = x'' WHERE entry = 2")
    with pytest.raises(LedgerError, match=r"entry 2 .* no reason"):
        marks.read()
