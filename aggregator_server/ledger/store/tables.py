"""The tables of the ledger, and the statements that create them.

``entries`` is the hash chain, which determines the state. The other three have data derived from
the chain (``releases``), or committed to by digest because it is too large or too private for the
chain (``batches``, ``predictions``). Triggers prevent that a row is ever changed or deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.storage.entries import append_only, each_row, insert

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pate.storage.entries import Transaction

#: Identifies our SQLite files ("pate" in ASCII), as ``PRAGMA application_id``.
APPLICATION_ID: Final = 0x70617465

#: By table, its columns and their types; the first is its key.
#:
#: * ``entries``: one row per step of the campaign. ``body`` is canonical JSON; digests are SHA-256.
#: * ``releases``: one per query that has a label. Its primary key prevents a second one.
#: * ``batches``: summed votes, the private part. ``counts`` is (count, classes) int32, little endian,
#:   and ``salt`` hides them in the chain, whose head is published.
#: * ``predictions``: the student's predictions for a round: (queries, classes) float32.
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "entries": {
        "seq": "INTEGER", "kind": "TEXT", "body": "TEXT", "previous": "BLOB", "digest": "BLOB",
        "written_at": "TEXT",
    },
    "releases": {
        "query": "INTEGER", "label": "INTEGER", "round": "INTEGER", "source": "TEXT",
        "entry": "INTEGER",
    },
    "batches": {
        "first": "INTEGER", "count": "INTEGER", "teachers": "INTEGER", "responders": "TEXT",
        "salt": "BLOB", "counts": "BLOB", "entry": "INTEGER",
    },
    "predictions": {
        "round": "INTEGER", "probabilities": "BLOB", "digest": "BLOB", "entry": "INTEGER",
    },
}  # fmt: skip
#: By table, its key.
KEYS: Final = {table: next(iter(columns)) for table, columns in TABLES.items()}


def _tables(blob: str, table_end: str) -> Iterator[str]:
    for table, columns in TABLES.items():
        lines = [
            f"{name} {blob if kind == 'BLOB' else kind} NOT NULL" for name, kind in columns.items()
        ]
        lines.append(f"PRIMARY KEY ({KEYS[table]})")
        lines.append(
            "UNIQUE (digest)"
            if table == "entries"
            else "FOREIGN KEY(entry) REFERENCES entries (seq)"
        )
        yield f"CREATE TABLE {table} ( {', '.join(lines)} ){table_end}"


def _sqlite_triggers() -> Iterator[str]:
    for table in TABLES:
        yield from append_only(table, f"{table} is append-only")
    yield (
        "CREATE TRIGGER entries_in_order BEFORE INSERT ON entries "
        "WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries) "
        "BEGIN SELECT RAISE(ABORT, 'entries are numbered without gaps'); END"
    )
    # INSERT OR REPLACE deletes the old row, and without PRAGMA recursive_triggers the trigger on
    # DELETE does not fire.
    for table, key in KEYS.items():
        if table != "entries":
            yield (
                f"CREATE TRIGGER {table}_once BEFORE INSERT ON {table} "  # noqa: S608
                f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key}) "
                f"BEGIN SELECT RAISE(ABORT, '{table} holds that {key} already'); END"
            )


#: PostgreSQL's trigger functions and their bodies. The order is that of the trigger's table, by its
#: OID and not its name: no other table of a search path can replace it.
FUNCTIONS: Final = {
    "refuse_change": "BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END",
    "in_order": (
        "DECLARE wanted integer; BEGIN EXECUTE "
        "pg_catalog.format('SELECT coalesce(max(seq), 0) + 1 FROM %s', TG_RELID::regclass) "
        "INTO wanted; IF NEW.seq IS DISTINCT FROM wanted THEN "
        "RAISE EXCEPTION 'entries are numbered without gaps'; END IF; RETURN NEW; END"
    ),
}
#: PostgreSQL's triggers: name, table, and the statement in its own words.
TRIGGERS: Final = tuple(
    (name, table, f"CREATE TRIGGER {name} BEFORE {change} ON {table} FOR EACH {each}()")
    for name, table, change, each in (
        ("entries_in_order", "entries", "INSERT", "ROW EXECUTE FUNCTION in_order"),
        *(
            (
                f"{table}_no_{change}",
                table,
                change.upper(),
                f"{each} EXECUTE FUNCTION refuse_change",
            )
            for table in TABLES
            for change, each in (("update", "ROW"), ("delete", "ROW"), ("truncate", "STATEMENT"))
        ),
    )
)


def _postgres_triggers() -> Iterator[str]:
    for name, body in FUNCTIONS.items():
        yield f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
    for name, table, statement in TRIGGERS:
        yield statement
        # Also in a replication session, where other triggers do not fire.
        yield f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"


#: The statements for tables and triggers, in a file and in a database.
SQLITE: Final = (*_tables("BLOB", " STRICT"), *_sqlite_triggers())
POSTGRES: Final = (*_tables("BYTEA", ""), *_postgres_triggers())


def carry_over(source: Transaction, target: Transaction) -> None:
    """Copy all rows of a ledger into a new one, unchecked."""
    for table, columns in TABLES.items():
        for row in each_row(source, table, tuple(columns)):
            insert(target, table, dict(zip(columns, row, strict=True)))
