"""A session with the database, configured so that a commit is durable when it returns.

Requirements on the server are checked on every connection, and on the writing one before every
commit: its configuration may be reloaded at any time.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from aggregator_server.ledger.store.place import PROVEN, is_here
from aggregator_server.ledger.store.tables import quoted
from pate.errors import DiskError, LedgerError, StateError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator_server.ledger.store.place import InDatabase

#: The oldest supported server; tested with 15.
_OLDEST: Final = 140_000
#: Settings of a session: names and values.
_SETTINGS: Final = {
    "lock_timeout": "10s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # The lock of a campaign lives as long as its session, which waits for parties for days.
    "idle_session_timeout": "0",
    # A dead server must not keep its lock for hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "row_security": "off",  # hidden rows are an error
    "DateStyle": "ISO",
    "bytea_output": "hex",
    "synchronous_commit": "on",  # or a stronger one
}
_SETTLE: Final = (
    "SELECT pg_catalog.set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) w(name, value) "
    "WHERE name <> 'synchronous_commit' OR current_setting(name) <> 'remote_apply'"
)
_LOCKED: Final = (
    "EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database "
    "WHERE locktype = 'advisory' AND granted AND datname = pg_catalog.current_database() "
    "AND (classid::bigint << 32) + objid::bigint = %s AND objsubid = 1"
)
#: Requirements on the server and on the writing session.
_STANDING: Final = (
    "SELECT pg_catalog.pg_backend_pid(), current_setting('server_encoding'), "
    "current_setting('session_replication_role'), pg_catalog.pg_is_in_recovery(), "
    "current_setting('fsync'), current_setting('full_page_writes'), "
    f"current_setting('synchronous_commit'), {_LOCKED} AND pid = pg_catalog.pg_backend_pid())"
)
_FACTS: Final = (
    "SELECT current_setting('server_version'), current_user::text, "
    "pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), "
    f"current_setting('synchronous_commit'), {_LOCKED}), "
    "current_setting('log_parameter_max_length_on_error') <> '0' "
    "OR (current_setting('log_parameter_max_length') <> '0' "
    "AND (current_setting('log_statement') IN ('mod', 'all') "
    "OR current_setting('log_min_duration_statement') <> '-1' "
    "OR current_setting('log_min_duration_sample') <> '-1'))"
)
_LONGEST: Final = 300


def connect(place: InDatabase, *, read_only: bool) -> psycopg.Connection[Any]:
    """Connect to the database of a ledger, and check that it is suitable."""
    try:
        link = psycopg.connect(autocommit=True, **place.address.parameters())
    except psycopg.Error as error:
        raise UnreachableError(f"cannot connect to {place.address}: {_said(error)}") from error
    try:
        require_private_way(link)
        if link.info.server_version < _OLDEST:
            raise StateError("the database is older than PostgreSQL 14")
        # No temporary table, and nothing in `public`, precedes our schema.
        settings = {**_SETTINGS, "search_path": f"{quoted(place.schema)}, pg_temp"}
        link.execute(_SETTLE, [[*settings], [*settings.values()]])
        require_fit(link)
        link.isolation_level = (
            psycopg.IsolationLevel.REPEATABLE_READ
            if read_only
            else psycopg.IsolationLevel.SERIALIZABLE
        )
        link.read_only = read_only
        link.autocommit = False
    except psycopg.OperationalError as error:
        link.close()
        raise UnreachableError(lost(place.address, _said(error))) from error
    except BaseException:
        link.close()
        raise
    return link


def take_lock(link: psycopg.Connection[Any], place: InDatabase) -> None:
    """Become the only writer of a ledger, as long as this session lives."""
    (taken,) = _ask(link, "SELECT pg_catalog.pg_try_advisory_lock(%s)", lock_key(place.schema))
    link.rollback()  # the lock is the session's, not the transaction's
    if not taken:
        raise StateError(
            f"{place} is in use by another server; stop that one, or choose another --campaign"
        )


def require_fit(link: psycopg.Connection[Any], schema: str | None = None) -> None:
    """Check that a ledger can be served durably, and, given a schema, that its lock is ours."""
    backend, encoding, role, standby, fsync, pages, commit, locked = _ask(
        link, _STANDING, 0 if schema is None else lock_key(schema)
    )
    if backend != link.info.backend_pid:
        # It would share one session, and its locks, between several clients.
        raise StateError(
            "--ledger leads to a connection pooler: name the database server itself, since the "
            "lock of a campaign belongs to its session"
        )
    if encoding != "UTF8":
        raise StateError(f"the database has the encoding {encoding}: create one with UTF8")
    if role != "origin":
        raise StateError(f"the role has session_replication_role = {role}: it must be origin")
    if standby:
        raise StateError("the database is a standby, which cannot be written: name its primary")
    for name, value in (("fsync", fsync), ("full_page_writes", pages)):
        if value != "on":
            raise StateError(
                f"the database has {name} = {value}: a power cut could undo charges whose "
                f"labels were released; set {name} = on in its postgresql.conf and reload it"
            )
    if commit not in ("on", "remote_apply"):
        raise StateError(
            f"the database has synchronous_commit = {commit}: what it commits may not be on its disk"
        )
    if schema is not None and not locked:
        raise UnreachableError(lost(schema, "the lock of this campaign was lost"))


@dataclass(frozen=True)
class Facts:
    """Facts about a database, for the operator."""

    #: The connection.
    way: str
    version: str
    role: str
    #: Whether the role may create schemas.
    may_create: bool
    synchronous_commit: str
    #: Whether a server has the ledger open.
    in_use: bool
    #: Whether the database's log would contain written values, and so votes.
    logs_values: bool


def facts_of(place: InDatabase) -> Facts:
    """Connect as for opening a ledger, read the facts, and disconnect; nothing is written."""
    with translated(place), connect(place, read_only=True) as link:
        way = "over its socket"
        if not link.info.host.startswith("/"):
            way = f"at {link.info.host}, {'TLS' if link.pgconn.ssl_in_use else 'in clear'}"
        return Facts(way, *_ask(link, _FACTS, lock_key(place.schema)))


def lock_key(schema: str) -> int:
    """Return the number of a campaign's lock: 63 bits, the same in every version."""
    digest = hashlib.sha256(b"pate ledger lock\0" + schema.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def require_private_way(link: psycopg.Connection[Any]) -> None:
    """Check the connection to a server from a service file or the environment."""
    info = {option.keyword.decode(): option.val for option in link.pgconn.info}
    mode = (info.get("sslmode") or b"").decode()
    host, address = link.info.host, link.info.hostaddr
    # By the IP address: a name, even `localhost`, may be another machine.
    if host.startswith(("/", "@")) or (address and is_here(address)) or mode in PROVEN:
        return
    raise UsageError(
        f"the database is on another machine, and sslmode={mode} does not authenticate it: set "
        "sslmode=verify-full in the service file, PGSSLMODE or --ledger"
    )


def _ask(link: psycopg.Connection[Any], question: str, *values: object) -> tuple[Any, ...]:
    (row,) = link.execute(question.encode(), values or None).fetchall()
    return tuple(row)


@contextmanager
def translated(where: object) -> Iterator[None]:
    """Translate errors of the database at ``where``: unreachable, disk, state, or a damaged ledger.

    Only the first line of a server's error is passed on: its details show the row, and rows contain
    votes.
    """
    try:
        yield
    except psycopg.Error as error:
        # https://www.postgresql.org/docs/current/errcodes-appendix.html
        state, said = error.sqlstate or "", _said(error)
        of_libpq = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if state.startswith(("08", "57P0", "53200", "53300", "53400")) or (not state and of_libpq):
            raise UnreachableError(lost(where, said)) from error
        if state.startswith(("53100", "58", "25006")):
            raise DiskError(
                f"{where} cannot be written ({said}); make room on the database's disk, then "
                "`pate-server resume`"
            ) from error
        if state.startswith(("55P03", "57014", "40")):
            raise StateError(f"{where} is in use by another process ({said})") from error
        if state == "42501":
            raise StateError(
                f"{where}: the role of --ledger lacks the permission ({said})"
            ) from error
        raise LedgerError(f"{where} is damaged: {said}") from error


def lost(where: object, said: str) -> str:
    """Return the message for a lost connection."""
    return (
        f"{where}: the database does not answer ({said}); committed entries are safe, and "
        "nothing more is written: `pate-server resume` once it is available"
    )


def _said(error: psycopg.Error) -> str:
    text = error.diag.message_primary or type(error).__name__
    if not error.sqlstate and isinstance(error, psycopg.OperationalError):
        text = str(error)  # of libpq itself, which knows no rows
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
