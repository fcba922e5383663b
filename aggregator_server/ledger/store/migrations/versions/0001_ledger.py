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
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("written_at", sa.Text, nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "releases",
        sa.Column("query", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("entry", sa.Integer, sa.ForeignKey("entries.seq"), nullable=False),
        sqlite_strict=True,
    )
    op.create_table(
        "batches",
        sa.Column("first", sa.Integer, primary_key=True, autoincrement=False),
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
        sa.Column("round", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("probabilities", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("entry", sa.Integer, sa.ForeignKey("entries.seq"), nullable=False),
        sqlite_strict=True,
    )
    if op.get_bind().dialect.name == "postgresql":
        _postgres_triggers()
        return
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


def _postgres_triggers() -> None:
    op.execute(
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
    )
    # By the table's number and not its name: no other table of a search path can stand in for it.
    op.execute(
        "CREATE FUNCTION in_order() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "DECLARE wanted integer; BEGIN "
        "EXECUTE pg_catalog.format('SELECT coalesce(max(seq), 0) + 1 FROM %s', TG_RELID::regclass) "
        "INTO wanted; "
        "IF NEW.seq IS DISTINCT FROM wanted THEN "
        "RAISE EXCEPTION 'entries are numbered without gaps'; END IF; RETURN NEW; END $$"
    )
    made = [("entries", "entries_in_order", "INSERT", "ROW EXECUTE FUNCTION in_order()")]
    for table in ("entries", *_KEYS):
        for change, each in (("update", "ROW"), ("delete", "ROW"), ("truncate", "STATEMENT")):
            body = f"{each} EXECUTE FUNCTION refuse_change()"
            made.append((table, f"{table}_no_{change}", change.upper(), body))
    for table, name, change, body in made:
        op.execute(f"CREATE TRIGGER {name} BEFORE {change} ON {table} FOR EACH {body}")
        # Also in a session that replicates, where other triggers rest.
        op.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")


def downgrade() -> None:
    raise NotImplementedError("a ledger is never taken back to an older layout")
