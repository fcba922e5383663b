"""The tables of the ledger, the statements that create them, and their layout in a database.

``entries`` is the hash chain, which determines the state. The other three have data derived from
the chain (``releases``), or committed to by digest because it is too large or too private for the
chain (``batches``, ``predictions``). Triggers prevent that a row is ever changed or deleted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError, StateError
from pate.storage.durable_file import LAYOUT, of_another_version
from pate.storage.ledger import append_only, each_row, insert

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pate.storage.ledger import Transaction

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


# --- the layout in a database, and who has access to it -------------------------------------------


_TYPES: Final = {"INTEGER": "integer", "TEXT": "text", "BLOB": "bytea"}
#: Identifies a schema as a ledger of this layout, like the application id and the number of a file.
_MARK: Final = "the privacy ledger of a PATE campaign, layout "
#: The OID of the first schema in the session's path.
_OURS: Final = "quote_ident(current_schema())::regnamespace"
#: All objects in it, a line each: kind, name, and all that matters about it.
_OBJECTS: Final = f"""
SELECT 'relation ' || relname || ' ' || relkind::text || relpersistence::text
       || CASE WHEN relrowsecurity OR relforcerowsecurity THEN ' row security' ELSE '' END
       || CASE WHEN relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits
               WHERE inhrelid = c.oid OR inhparent = c.oid) THEN ' inherits' ELSE '' END
FROM pg_catalog.pg_class c WHERE relnamespace = {_OURS}
UNION ALL
SELECT 'column ' || c.relname || '.' || attname || ' ' || pg_catalog.format_type(atttypid, atttypmod)
       || CASE WHEN attnotnull THEN '' ELSE ' null' END
       || CASE WHEN atthasdef OR attidentity <> '' OR attgenerated <> '' THEN ' default' ELSE '' END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE relnamespace = {_OURS} AND relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'constraint ' || conname || ' ' || pg_catalog.pg_get_constraintdef(oid, true)
       || CASE WHEN convalidated THEN '' ELSE ' not validated' END
FROM pg_catalog.pg_constraint WHERE connamespace = {_OURS} AND contype <> 'n'
UNION ALL
SELECT 'trigger ' || tgname || ' ' || tgenabled::text || ' ' || pg_catalog.pg_get_triggerdef(t.oid, true)
FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = tgrelid
WHERE relnamespace = {_OURS} AND NOT tgisinternal
UNION ALL
SELECT 'function ' || proname || ' ' || lanname || ' ' || btrim(prosrc)
       || CASE WHEN prosecdef OR proconfig IS NOT NULL THEN ' altered' ELSE '' END
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = prolang WHERE pronamespace = {_OURS}
UNION ALL
SELECT 'rule ' || rulename || ' on ' || relname
FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class c ON c.oid = ev_class WHERE relnamespace = {_OURS}
"""  # noqa: S608
#: Privileges of others than the owner of the schema: kind and name of an object, the role. Default
#: privileges of a database may grant them when a table is created.
_OTHERS: Final = f"""
WITH ours AS (SELECT oid, nspname, nspowner, nspacl FROM pg_catalog.pg_namespace WHERE oid = {_OURS}),
     things AS (
        SELECT 'SCHEMA' AS kind, nspname AS name, NULL AS part, nspowner AS owner, nspacl AS acl
        FROM ours
        UNION ALL
        SELECT 'TABLE', relname, NULL, relowner, relacl FROM pg_catalog.pg_class, ours
        WHERE relnamespace = ours.oid AND relkind = 'r'
        UNION ALL
        SELECT 'TABLE', relname, attname, relowner, attacl
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid, ours
        WHERE relnamespace = ours.oid AND relkind = 'r' AND NOT attisdropped
     )
SELECT DISTINCT kind, name::text, part::text, role FROM things, ours, LATERAL (
        SELECT CASE grantee WHEN 0 THEN NULL ELSE pg_catalog.pg_get_userbyid(grantee)::text END
        FROM pg_catalog.aclexplode(acl) WHERE grantee <> nspowner
        UNION ALL
        SELECT pg_catalog.pg_get_userbyid(owner)::text WHERE owner <> nspowner) others(role)
ORDER BY 1, 2, 3, 4
"""  # noqa: S608


def make(db: Transaction, schema: str) -> None:
    """Create the schema of the session, its tables and triggers, for only its owner."""
    db.execute(f"CREATE SCHEMA {quoted(schema)}")
    db.execute(f"COMMENT ON SCHEMA {quoted(schema)} IS '{_MARK}{LAYOUT}'")
    for statement in POSTGRES:
        db.execute(statement)
    for kind, name, part, role in db.execute(_OTHERS).fetchall():
        columns = "" if part is None else f" ({quoted(part)})"
        whom = "PUBLIC" if role is None else quoted(role)
        db.execute(f"REVOKE ALL{columns} ON {kind} {quoted(name)} FROM {whom}")


def is_there(db: Transaction, schema: str) -> bool:
    """Return whether a schema exists."""
    return bool(
        db.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = ?", (schema,)).fetchall()
    )


def check(db: Transaction) -> None:
    """Compare the session's schema with that of a new ledger, and who has access: it has sums of votes."""
    (mark,) = db.execute(f"SELECT pg_catalog.obj_description({_OURS}, 'pg_namespace')").fetchone()
    number = re.fullmatch(rf"{_MARK}([0-9]{{1,9}})", mark or "", re.ASCII)
    if number is None:
        raise LedgerError("the schema is not a ledger of this system")
    if int(number[1]) != LAYOUT:
        raise StateError(of_another_version("the ledger", int(number[1]), LAYOUT))
    found = {str(line) for (line,) in db.execute(_OBJECTS)}
    if odd := sorted({" ".join(line.split()[:2]) for line in frozenset(_wanted()) ^ found}):
        raise LedgerError(f"the ledger's tables or triggers were altered: {', '.join(odd)}")
    if others := db.execute(_OTHERS).fetchall():
        roles = ", ".join(sorted({"PUBLIC" if role is None else role for *_, role in others}))
        names = ", ".join(sorted({f"{kind.lower()} {name}" for kind, name, *_ in others}))
        raise StateError(
            f"the ledger is accessible to other roles ({roles}: {names}), and contains sums of "
            "votes: REVOKE ALL on the schema and its tables from them, and let its owner own "
            "all of it"
        )


def _wanted() -> Iterator[str]:
    for table, columns in TABLES.items():
        yield f"relation {table} rp"
        for name, kind in columns.items():
            yield f"column {table}.{name} {_TYPES[kind]}"
        yield f"relation {table}_pkey ip"
        yield f"constraint {table}_pkey PRIMARY KEY ({KEYS[table]})"
        if table != "entries":
            yield f"constraint {table}_entry_fkey FOREIGN KEY (entry) REFERENCES entries(seq)"
    yield "relation entries_digest_key ip"
    yield "constraint entries_digest_key UNIQUE (digest)"
    for name, _, statement in TRIGGERS:
        yield f"trigger {name} A {statement}"
    for name, body in FUNCTIONS.items():
        yield f"function {name} plpgsql {body}"


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
