"""The layout of a ledger: which tables and triggers it must have, and how it gets them."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text

from aggregator_server.ledger.store import postgres_layout as postgres
from pate.errors import LedgerError, StateError

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

#: What identifies our files among all SQLite files ("pate" in ASCII), as ``PRAGMA application_id``.
APPLICATION_ID = 0x70617465

#: Alembic keeps the migration that it runs, and its connection, in variables of the process.
_ONE_MIGRATION = threading.Lock()


def _config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    # As a path: of each package resource Alembic keeps a handle until the process ends.
    scripts = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring a new or older ledger to the present layout, in the transaction of ``connection``.

    From any thread: one migration runs at a time.
    """
    from alembic import command

    with _ONE_MIGRATION:
        command.upgrade(_config(connection), "head")
    if is_postgres(connection):
        postgres.shut_out(connection)


def revision(connection: Connection) -> str | None:
    """Return the layout that the ledger says it has; None for one without any."""
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


@cache
def known_revisions() -> tuple[str, ...]:
    """Return all layouts that this version knows, the newest first."""
    from alembic.script import ScriptDirectory

    return tuple(
        script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()
    )


def ensure(connection: Connection) -> None:
    """Upgrade an older ledger; refuse what is not ours or what a newer version wrote.

    Raises:
        LedgerError: if it is not a ledger.
        StateError: if its layout is unknown here.
    """
    _require_ours(connection)
    held, known = revision(connection), known_revisions()
    if held not in known:
        raise StateError(f"the ledger has layout {held!r}, known are {', '.join(known)}: update")
    if held != known[0]:
        upgrade(connection)


def check(connection: Connection) -> None:
    """Compare tables, indices and triggers with those that the migrations make.

    Raises:
        LedgerError: if one is missing, changed or new: without its triggers a ledger is not
            append-only.
        StateError: if other roles of a database may read or change them.
    """
    _require_ours(connection)
    if (held := revision(connection)) != (newest := known_revisions()[0]):
        raise LedgerError(f"the ledger has layout {held!r}, expected {newest!r}")
    if is_postgres(connection):
        odd = postgres.differences(connection)
    else:
        odd = sorted(name for _, name, _ in _wanted() ^ _objects(connection))
    if odd:
        raise LedgerError(f"the ledger's tables or triggers were altered: {', '.join(odd)}")
    if is_postgres(connection):
        postgres.require_alone(connection)


def is_postgres(connection: Connection) -> bool:
    """Say whether a connection leads to a database, and not to a file."""
    return connection.dialect.name == "postgresql"


def _require_ours(connection: Connection) -> None:
    if is_postgres(connection):
        postgres.require_ours(connection)
        return
    if connection.exec_driver_sql("PRAGMA application_id").scalar_one() != APPLICATION_ID:
        raise LedgerError("the file is not a ledger of this system")


@cache
def _wanted() -> frozenset[tuple[str, str, str | None]]:
    fresh = create_engine("sqlite://")
    try:
        with fresh.begin() as empty:
            upgrade(empty)
            return _objects(empty)
    finally:
        fresh.dispose()


def _objects(connection: Connection) -> frozenset[tuple[str, str, str | None]]:
    rows = connection.execute(text("SELECT type, name, sql FROM sqlite_master"))
    return frozenset((str(kind), str(name), sql) for kind, name, sql in rows)
