"""Run by Alembic inside the connection and the transaction that the caller holds."""

from __future__ import annotations

from alembic import context

from aggregator_server.ledger.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite can roll back DDL; a half-made layout must not survive a crash.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
