"""The layout of a ledger in a database: the exact content of its schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aggregator_server.ledger.store.tables import IN_ORDER, REFUSE_CHANGE, TABLES
from pate.errors import LedgerError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pate.storage.entries import Transaction

_TYPES: Final = {"INTEGER": "integer", "TEXT": "text", "BLOB": "bytea"}

#: Identifies a schema as a ledger, like the application id of a file.
COMMENT: Final = "the privacy ledger of a PATE campaign"

#: Bits of pg_trigger.tgtype: for each row, before, on insert, delete, update, truncate.
_ROW, _BEFORE, _INSERT, _DELETE, _UPDATE, _TRUNCATE = 1, 2, 4, 8, 16, 32
#: Each returns lines about the first schema in the session's path.
_OBJECTS: Final = (
    """SELECT 'relation ' || relname || ' ' || relkind::text || relpersistence::text
               || CASE WHEN relrowsecurity OR relforcerowsecurity THEN ' row security' ELSE '' END
               || CASE WHEN relispartition OR EXISTS (SELECT FROM pg_catalog.pg_inherits
                       WHERE inhrelid = c.oid OR inhparent = c.oid) THEN ' inherits' ELSE '' END
        FROM pg_catalog.pg_class c WHERE relnamespace = quote_ident(current_schema())::regnamespace""",
    """SELECT 'column ' || c.relname || '.' || attname || ' ' || pg_catalog.format_type(atttypid, -1)
               || CASE WHEN atttypmod > 4 THEN '(' || atttypmod - 4 || ')' ELSE '' END
               || CASE WHEN attnotnull THEN '' ELSE ' null' END
               || CASE WHEN atthasdef OR attidentity <> '' OR attgenerated <> '' THEN ' default'
                       ELSE '' END
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
        WHERE relnamespace = quote_ident(current_schema())::regnamespace
              AND relkind = 'r' AND attnum > 0 AND NOT attisdropped""",
    """SELECT 'constraint ' || conname || ' ' || pg_catalog.pg_get_constraintdef(k.oid, true)
               || CASE WHEN convalidated THEN '' ELSE ' not validated' END
        FROM pg_catalog.pg_constraint k WHERE connamespace = quote_ident(current_schema())::regnamespace
              AND contype <> 'n'""",
    """SELECT 'trigger ' || tgname || ' on ' || relname || ' ' || tgtype::text || tgenabled::text
               || ' ' || proname
               || CASE WHEN tgqual IS NULL AND tgattr = '' AND pronamespace = relnamespace
                       THEN '' ELSE ' altered' END
        FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = tgrelid
        JOIN pg_catalog.pg_proc p ON p.oid = tgfoid
        WHERE relnamespace = quote_ident(current_schema())::regnamespace AND NOT tgisinternal""",
    """SELECT 'function ' || proname || ' ' || lanname || ' ' || btrim(prosrc)
               || CASE WHEN prosecdef OR proconfig IS NOT NULL THEN ' altered' ELSE '' END
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid = prolang
        WHERE pronamespace = quote_ident(current_schema())::regnamespace""",
    """SELECT 'rule ' || rulename || ' on ' || relname
        FROM pg_catalog.pg_rewrite w JOIN pg_catalog.pg_class c ON c.oid = ev_class
        WHERE relnamespace = quote_ident(current_schema())::regnamespace""",
)  # fmt: skip
#: Privileges of others than the owner of the schema: kind and name of an object, the role. Default
#: privileges of a database may grant them when a table is created.
_OTHERS: Final = """
WITH ours AS (SELECT oid, nspname, nspowner, nspacl FROM pg_catalog.pg_namespace
              WHERE oid = quote_ident(current_schema())::regnamespace),
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
"""


def require_ours(db: Transaction) -> None:
    """Check that the session's schema is a ledger's.

    Raises:
        LedgerError: if it is not.
    """
    (found,) = db.execute(
        "SELECT pg_catalog.obj_description(quote_ident(current_schema())::regnamespace, 'pg_namespace')"
    ).fetchone()
    if found != COMMENT:
        raise LedgerError("the schema is not a ledger of this system")


def shut_out(db: Transaction) -> None:
    """Revoke all privileges of others than the owner in the session's schema."""
    for kind, name, part, role in db.execute(_OTHERS).fetchall():
        columns = "" if part is None else f" ({quoted(part)})"
        whom = "PUBLIC" if role is None else quoted(role)
        db.execute(f"REVOKE ALL{columns} ON {kind} {quoted(name)} FROM {whom}")


def require_alone(db: Transaction) -> None:
    """Check that only the owner of the session's schema has privileges in it.

    Raises:
        StateError: if others have: its tables contain sums of votes.
    """
    found = db.execute(_OTHERS).fetchall()
    if found:
        roles = ", ".join(sorted({"PUBLIC" if role is None else role for *_, role in found}))
        names = ", ".join(sorted({f"{kind.lower()} {name}" for kind, name, *_ in found}))
        raise StateError(
            f"the ledger is accessible to other roles ({roles}: {names}), and contains sums of "
            "votes: REVOKE ALL on the schema and its tables from them, and let its owner own "
            "all of it"
        )


def differences(db: Transaction) -> list[str]:
    """Compare the session's schema with the layout of the migrations.

    Returns:
        Kinds and names of missing, changed or new objects.
    """
    found = {str(line) for question in _OBJECTS for (line,) in db.execute(question)}
    return sorted({" ".join(line.split()[:2]) for line in frozenset(_wanted()) ^ found})


def _wanted() -> Iterator[str]:
    yield "relation alembic_version rp"
    yield "column alembic_version.version_num character varying(32)"
    for table, columns in TABLES.items():
        key = next(iter(columns))
        yield f"relation {table} rp"
        for name, kind in columns.items():
            yield f"column {table}.{name} {_TYPES[kind]}"
        yield f"relation {table}_pkey ip"
        yield f"constraint {table}_pkey PRIMARY KEY ({key})"
        if table != "entries":
            yield f"constraint {table}_entry_fkey FOREIGN KEY (entry) REFERENCES entries(seq)"
        for change, bit in (("update", _UPDATE), ("delete", _DELETE)):
            yield f"trigger {table}_no_{change} on {table} {_ROW | _BEFORE | bit}A refuse_change"
        yield f"trigger {table}_no_truncate on {table} {_BEFORE | _TRUNCATE}A refuse_change"
    yield f"trigger entries_in_order on entries {_ROW | _BEFORE | _INSERT}A in_order"
    yield "relation entries_digest_key ip"
    yield "constraint entries_digest_key UNIQUE (digest)"
    yield "relation alembic_version_pkc ip"
    yield "constraint alembic_version_pkc PRIMARY KEY (version_num)"
    yield f"function refuse_change plpgsql {REFUSE_CHANGE}"
    yield f"function in_order plpgsql {IN_ORDER}"


def quoted(name: str) -> str:
    """Return a name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'
