"""An altered ledger does not verify, even if the chain was recomputed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.verify import read_campaign, verify
from pate.errors import LedgerError
from pate.mechanisms import Outcome
from pate.storage.hash_chain import Head
from tests.support.server.campaigns import make_predictions, make_spec, start
from tests.support.tampering import Body, forged, repeated, tamper


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished interactive campaign: every kind of entry, every table, every kind of answer."""
    path = tmp_path_factory.mktemp("finished") / "ledger.sqlite"
    spec = make_spec(
        aggregator="interactive-gnmax", rounds=2, queries=20, max_queries=10, sigma1=Fraction(50)
    )
    with start(path, spec) as ledger:
        for round_ in (1, 2):
            charge = ledger.charge([5 * round_, 1, 2] if round_ == 2 else [5, 1])
            check = charge.events[:1]
            answers = [Outcome(2, "teachers", charge.events), Outcome(None, None, check)]
            if round_ == 2:
                answers.append(Outcome(2, "reinforced", check))
            ledger.release(charge, answers)
            ledger.end_round(wants_predictions=round_ == 1)
            if round_ == 1:
                ledger.record_predictions(2, make_predictions(20))
        ledger.finish()
    verify(path)
    return path


@pytest.fixture
def path(finished: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "ledger.sqlite"
    shutil.copy(finished, copy)
    return copy


def flipped(value: int | str | bytes, at: int) -> int | str | bytes:
    """The value with one bit of one byte changed."""
    if isinstance(value, int):
        return value ^ 1
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    raw[at % len(raw)] ^= 1
    return raw.decode() if isinstance(value, str) else bytes(raw)


COLUMNS = [
    (table, column)
    for table, columns in {
        "entries": "seq kind body previous digest written_at",
        "releases": "query label round source entry",
        "batches": "first count teachers responders salt counts entry",
        "predictions": "round probabilities digest entry",
    }.items()
    for column in columns.split()
]


@pytest.mark.parametrize(("table", "column"), COLUMNS)
@pytest.mark.parametrize("where", ["first row", "last row"])
def test_one_flipped_bit_in_any_column_is_found(
    path: Path, table: str, column: str, where: str
) -> None:
    side = "max" if where == "last row" else "min"
    with closing(sqlite3.connect(path)) as link:
        row, value = link.execute(
            f"SELECT rowid, {column} FROM {table} WHERE rowid = (SELECT {side}(rowid) FROM {table})"  # noqa: S608
        ).fetchone()
    tamper(path, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", flipped(value, 17), row)  # noqa: S608
    with pytest.raises(LedgerError):
        verify(path)


@pytest.mark.parametrize("table", ["entries", "releases", "batches", "predictions"])
def test_a_row_that_is_gone_is_found(path: Path, table: str) -> None:
    with closing(sqlite3.connect(path)) as link:
        (row,) = link.execute(f"SELECT min(rowid) FROM {table}").fetchone()  # noqa: S608
    tamper(path, f"DELETE FROM {table} WHERE rowid = ?", row)  # noqa: S608
    with pytest.raises(LedgerError):
        verify(path)


def test_a_label_that_was_slipped_in_is_found(path: Path) -> None:
    tamper(path, "INSERT INTO releases VALUES (19, 0, 1, 'teachers', 1)")
    with pytest.raises(LedgerError, match="query 19"):
        verify(path)


def test_a_byte_flipped_in_the_file_itself_is_found(path: Path) -> None:
    whole = path.read_bytes()
    for mark in (b'"labels_released":3', b'"classes":["cat","dog","owl"]', b'"cap":"'):
        at = whole.index(mark) + len(mark) - 3
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LedgerError):
            verify(path)
    path.write_bytes(whole)
    verify(path)


def test_a_file_cut_short_is_found(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 4096 // 2 * 4096])
    with pytest.raises(LedgerError):
        verify(path)


def test_a_tail_cut_off_is_found_with_a_head_kept_elsewhere(path: Path) -> None:
    head = verify(path).head
    earlier = read_campaign(path)[1][3].head
    tamper(path, "DELETE FROM entries WHERE seq = ?", head.seq)
    assert verify(path).head.seq == head.seq - 1  # by itself the rest is a sound ledger
    verify(path, earlier)
    with pytest.raises(LedgerError, match="is missing"):
        verify(path, head)
    with pytest.raises(LedgerError, match="differs from the expected"):
        verify(path, Head(earlier.seq, head.digest))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET written_at = 'never' WHERE seq = 1",
        "DELETE FROM entries WHERE seq = (SELECT max(seq) FROM entries)",
        "DELETE FROM releases",
        "UPDATE releases SET label = 0",
        "INSERT OR REPLACE INTO releases VALUES (5, 0, 1, 'teachers', 1)",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 1",
        "INSERT INTO entries SELECT 99, kind, body, previous, x'00', written_at FROM entries LIMIT 1",
        "UPDATE batches SET teachers = 1",
        "DELETE FROM predictions",
    ],
)
def test_the_tables_themselves_are_append_only(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as link, pytest.raises(sqlite3.IntegrityError):
        link.execute(statement)


def test_a_tampered_ledger_is_not_taken_up(path: Path) -> None:
    tamper(path, "UPDATE releases SET label = 1 - label / 2 WHERE query = 5")
    with pytest.raises(LedgerError, match="query 5"):
        Ledger.open(path)


# Forgers who know the format: the chain is recomputed after the change, so every digest matches.

# 1 open, 2 roster, 3 and 4 votes, 5 charge, 6 release, 7 round-end, 8 predictions, 9 charge,
# 10 release, 11 round-end, 12 close
FORGERIES: dict[str, tuple[int, Callable[[Body], object]]] = {
    "a larger budget": (2, lambda b: b.update(cap="100")),
    "another sensitivity": (2, lambda b: [m.update(votes_per_unit=2) for m in b["mechanisms"]]),
    "another noise than was stated": (2, lambda b: b["mechanisms"][0].update(sigma1="1/10")),
    "another way to add up": (2, lambda b: b.update(composition="none")),
    "a gate where there is none": (2, lambda b: b.update(composition="gate")),
    "a student's label in a round without one": (
        6,
        lambda b: (b["answers"][0].__setitem__(2, "reinforced"), b["answers"][0].__setitem__(3, 1)),
    ),
    "another mechanism after the roster": (5, lambda b: b["mechanism"].update(sigma2="1000")),
    "cheaper events": (5, lambda b: b["events"][1].update(sigma="1000")),
    "an event left out": (5, lambda b: b["events"].pop()),
    "a cheaper charge": (5, lambda b: b.update(cost="1/1000000")),
    "a query without votes": (5, lambda b: b.update(queries=[5, 20])),
    "a query twice": (5, lambda b: b.update(queries=[5, 5])),
    "another round": (5, lambda b: b.update(round=2)),
    "unknown noise": (5, lambda b: b.update(noise="none")),
    "another charge": (6, lambda b: b.update(charge=4)),
    "an answer to another query": (6, lambda b: b["answers"][0].__setitem__(0, 7)),
    "an answer too few": (6, lambda b: b["answers"].pop()),
    "a label for the price of a check": (6, lambda b: b["answers"][0].__setitem__(3, 1)),
    "a label where there was no answer": (6, lambda b: b["answers"][1].__setitem__(1, 0)),
    "a label beyond the classes": (6, lambda b: b["answers"][0].__setitem__(1, 3)),
    "a label that is no number": (6, lambda b: b["answers"][0].__setitem__(1, True)),
    "more given back": (6, lambda b: b.update(cost="0")),
    "another number": (6, lambda b: b.update(cost="2/4")),
    "one label more": (9, lambda b: b.update(queries=[5, 1, 2])),
    "fewer labels at the end": (12, lambda b: b.update(labels_released=2)),
    "less spent at the end": (12, lambda b: b.update(spent="0")),
    "a field more": (12, lambda b: b.update(note="")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_chain_breaks_a_rule(finished: Path, name: str) -> None:
    with pytest.raises(LedgerError, match=rf"entry {FORGERIES[name][0]} "):
        replay(forged(CHAIN, read_campaign(finished)[1], *FORGERIES[name]))


@pytest.mark.parametrize("left_out", range(1, 11))
def test_a_step_left_out_breaks_a_rule(finished: Path, left_out: int) -> None:
    with pytest.raises(LedgerError):
        replay(repeated(CHAIN, read_campaign(finished)[1], left_out, 0))


@pytest.mark.parametrize("again", range(1, 13))
def test_a_step_done_twice_breaks_a_rule(finished: Path, again: int) -> None:
    with pytest.raises(LedgerError):
        replay(repeated(CHAIN, read_campaign(finished)[1], again, 2))


def test_a_campaign_is_opened_once(finished: Path) -> None:
    with pytest.raises(LedgerError, match="opens the campaign a second time"):
        replay(repeated(CHAIN, read_campaign(finished)[1][:1], 1, 2))


def test_a_charge_is_of_its_round_and_a_students_label_of_a_round_with_one(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.sqlite", make_spec(rounds=2, queries=20)) as ledger:
        charge = ledger.charge([5])
        with pytest.raises(LedgerError, match="no student was asked"):
            ledger.release(charge, [Outcome(2, "reinforced", charge.events[:1])])
        entries = ledger.entries()
    with pytest.raises(LedgerError, match="a charge for round 2 in round 1"):
        replay(forged(CHAIN, entries, entries[-1].seq, lambda body: body.update(round=2)))


def test_an_untouched_copy_of_the_chain_holds(finished: Path) -> None:
    """The control: forgeries are refused only for their change."""
    state, entries = read_campaign(finished)
    assert replay(forged(CHAIN, entries, 1, lambda _: None)) == state


def test_a_students_label_is_the_one_that_the_student_was_sure_of(tmp_path: Path) -> None:
    """A teachers' label, recorded as the student's, would be charged as less than it is."""
    for label, holds in ((1, True), (2, False)):
        path = tmp_path / f"{label}.sqlite"
        with start(path, make_spec(aggregator="interactive-gnmax", rounds=2, queries=20)) as ledger:
            ledger.end_round(wants_predictions=True)
            ledger.record_predictions(2, make_predictions(20))
            charge = ledger.charge([1])
            ledger.release(charge, [Outcome(label, "reinforced", charge.events[:1])])
        if holds:
            verify(path)
        else:
            with pytest.raises(
                LedgerError, match="query 1 is not the student's confident prediction"
            ):
                verify(path)
