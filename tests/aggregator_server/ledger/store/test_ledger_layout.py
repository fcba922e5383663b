from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import layout, tables
from aggregator_server.ledger.store.database import Database
from pate.errors import StateError
from tests.support.server.campaigns import make_spec

if TYPE_CHECKING:
    from pathlib import Path


def test_migrations_make_the_tables_that_the_code_describes() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        layout.upgrade(connection)
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []
    engine.dispose()


def test_ledgers_are_made_in_several_threads_at_a_time() -> None:
    start = Barrier(6)

    def make(_: int) -> bool:
        engine = create_engine("sqlite://")
        start.wait()
        with engine.begin() as connection:
            layout.upgrade(connection)
            made = layout.revision(connection) == layout.known_revisions()[0]
        engine.dispose()
        return made

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(make, range(6)))


def test_migrations_are_a_package_and_so_travel_in_the_wheel() -> None:
    # A folder without __init__.py would be importable too, but is not found when packages are.
    assert import_module("aggregator_server.ledger.store.migrations.versions").__file__ is not None


def test_a_ledger_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger.create(path, make_spec()).close()
    database = Database.open(path)
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(StateError, match="update"):
        Ledger.open(path)
