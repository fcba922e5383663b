"""The ledger: four append-only tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEYS = {"releases": "query", "batches": "first", "predictions": "round"}


def upgrade() -> None:
    op.create_table(
        "entries",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("written_at", sa.Text, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "releases",
        sa.Column("query", sa.Integer, primary_key=True),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("entry", sa.Integer, sa.ForeignKey("entries.seq"), nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "batches",
        sa.Column("first", sa.Integer, primary_key=True),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("teachers", sa.Integer, nullable=False),
        sa.Column("responders", sa.Text, nullable=False),
        sa.Column("salt", sa.LargeBinary, nullable=False),
        sa.Column("counts", sa.LargeBinary, nullable=False),
        sa.Column("entry", sa.Integer, sa.ForeignKey("entries.seq"), nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "predictions",
        sa.Column("round", sa.Integer, primary_key=True),
        sa.Column("probabilities", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("entry", sa.Integer, sa.ForeignKey("entries.seq"), nullable=False),
        sqlite_strict=True,
    )
    for table in ("entries", *_KEYS):
        for change in ("update", "delete"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{change} BEFORE {change.upper()} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
    op.execute(
        "CREATE TRIGGER entries_in_order BEFORE INSERT ON entries "
        "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries) "
        "BEGIN SELECT RAISE(ABORT, 'entries are numbered without gaps'); END"
    )
    # INSERT OR REPLACE deletes the old row, and without PRAGMA recursive_triggers the trigger on
    # DELETE does not see that.
    for table, key in _KEYS.items():
        op.execute(
            f"CREATE TRIGGER {table}_once BEFORE INSERT ON {table} "  # noqa: S608  (constants)
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key}) "
            f"BEGIN SELECT RAISE(ABORT, '{table} holds that {key} already'); END"
        )


def downgrade() -> None:
    raise NotImplementedError("a ledger is never taken back to an older layout")
