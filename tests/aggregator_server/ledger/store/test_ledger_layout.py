from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store.database import Database
from aggregator_server.ledger.store.tables import TABLES
from pate.errors import LedgerError
from tests.support.server.campaigns import make_spec

if TYPE_CHECKING:
    from pathlib import Path


def test_a_new_ledger_has_the_tables_that_the_code_describes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path, make_spec()).close()
    with closing(sqlite3.connect(path)) as db:
        for table, columns in TABLES.items():
            found = db.execute(f"PRAGMA table_info({table})").fetchall()
            assert {name: kind for _, name, kind, *_ in found} == columns
            assert [name for _, name, *_, key in found if key] == [next(iter(columns))]
            assert all(not_null for *_, not_null, _, _ in found)


def test_a_file_whose_number_and_tables_differ_was_altered(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path, make_spec()).close()
    database = Database.open(path)
    with database.writing() as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(LedgerError, match="layout was altered"):
        Ledger.open(path)
