"""The layout of a ledger file: which tables and triggers it must have, and how it gets them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, text

from pate.errors import LedgerError, StateError

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

#: What identifies our files among all SQLite files ("pate" in ASCII), as ``PRAGMA application_id``.
APPLICATION_ID = 0x70617465


def _config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    # As a package resource, so that it is found in an installed wheel as in a checkout.
    config.set_main_option("script_location", "aggregator_server.store:migrations")
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring a new or older file to the present layout, in the transaction of ``connection``."""
    from alembic import command

    command.upgrade(_config(connection), "head")


def revision(connection: Connection) -> str | None:
    """Return the layout that the file says it has; None for a file without any."""
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
    """Upgrade an older file; refuse one that is not ours or that a newer version wrote.

    Raises:
        LedgerError: if the file is not a ledger.
        StateError: if its layout is unknown here.
    """
    if connection.exec_driver_sql("PRAGMA application_id").scalar_one() != APPLICATION_ID:
        raise LedgerError("the file is not a ledger of this system")
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
    """
    if connection.exec_driver_sql("PRAGMA application_id").scalar_one() != APPLICATION_ID:
        raise LedgerError("the file is not a ledger of this system")
    if (held := revision(connection)) != (newest := known_revisions()[0]):
        raise LedgerError(f"the ledger has layout {held!r}, expected {newest!r}")
    if odd := sorted(name for _, name, _ in _wanted() ^ _objects(connection)):
        raise LedgerError(f"the ledger's tables or triggers were altered: {', '.join(odd)}")


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
