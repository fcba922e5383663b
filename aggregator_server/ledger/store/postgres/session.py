"""A connection to the database, configured so that a commit is durable when it returns.

Requirements on the server are checked on every connection, and on the writing one before every
commit: its configuration may be reloaded at any time.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from aggregator_server.ledger.store.address import PROVEN, is_here
from aggregator_server.ledger.store.postgres.faults import first_line, lost
from aggregator_server.ledger.store.postgres.layout import quoted
from pate.errors import StateError, UnreachableError, UsageError

if TYPE_CHECKING:
    from aggregator_server.ledger.store.place import InDatabase

#: The oldest supported server; tested with 15.
_OLDEST: Final = 130_000
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
}
#: Values of synchronous_commit with which a commit is on the disk when it returns.
_DURABLE: Final = ("on", "remote_apply")
#: Requirements on the server and on the writing session.
_STANDING = """
SELECT current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), pg_catalog.pg_is_in_recovery(),
       EXISTS (SELECT FROM pg_catalog.pg_locks
               WHERE locktype = 'advisory' AND granted AND pid = pg_catalog.pg_backend_pid()
                 AND classid::bigint = %s AND objid::bigint = %s AND objsubid = 1)
"""

_FACTS = """
SELECT current_setting('server_version'), current_user,
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
       current_setting('synchronous_commit'),
       EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
               WHERE locktype = 'advisory' AND granted AND datname = pg_catalog.current_database()
                 AND classid::bigint = %s AND objid::bigint = %s AND objsubid = 1),
       current_setting('log_parameter_max_length_on_error') <> '0'
       OR (current_setting('log_parameter_max_length') <> '0'
           AND (current_setting('log_statement') IN ('mod', 'all')
                OR current_setting('log_min_duration_statement') <> '-1'
                OR current_setting('log_min_duration_sample') <> '-1'))
"""


def connect(place: InDatabase, *, read_only: bool) -> psycopg.Connection[Any]:
    """Connect to the database of a ledger, and check that it is suitable.

    Raises:
        UnreachableError: if it does not answer, or refuses the login.
        UsageError: for an invalid option of the address, or an unprotected connection.
        StateError: if the server is not suitable for a ledger.
    """
    try:
        link = psycopg.connect(autocommit=True, **place.address.parameters())
    except psycopg.OperationalError as error:
        raise UnreachableError(f"cannot connect to {place.address}: {first_line(error)}") from error
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise UsageError(f"--ledger has an option that cannot be used: {said}") from error
    try:
        _require_private_way(link)
        _require_able(link)
        _settle(link, place.schema)
        require_durable(link)
        link.isolation_level = (
            psycopg.IsolationLevel.REPEATABLE_READ
            if read_only
            else psycopg.IsolationLevel.SERIALIZABLE
        )
        link.read_only = read_only
        link.autocommit = False
    except psycopg.OperationalError as error:
        link.close()
        raise UnreachableError(lost(place.address, first_line(error))) from error
    except BaseException:
        link.close()
        raise
    return link


def take_lock(link: psycopg.Connection[Any], place: InDatabase) -> None:
    """Become the only writer of a ledger, as long as this session lives.

    Raises:
        StateError: if another server is.
    """
    ((taken,),) = _ask(link, "SELECT pg_catalog.pg_try_advisory_lock(%s)", lock_key(place.schema))
    link.rollback()  # the lock is the session's, not the transaction's
    if not taken:
        raise StateError(
            f"{place} is in use by another server; stop that one, or choose another --campaign"
        )


def require_durable(link: psycopg.Connection[Any], schema: str | None = None) -> None:
    """Check that commits are durable, and, given a schema, that its lock is ours.

    Raises:
        StateError: if not.
        UnreachableError: if the lock was lost.
    """
    key = 0 if schema is None else lock_key(schema)
    ((fsync, pages, commit, standby, locked),) = _ask(link, _STANDING, key >> 32, key & 0xFFFFFFFF)
    if standby:
        raise StateError("the database is a standby, which cannot be written: name its primary")
    for name, value in (("fsync", fsync), ("full_page_writes", pages)):
        if value != "on":
            raise StateError(
                f"the database has {name} = {value}: a power cut could undo charges whose "
                f"labels were released; set {name} = on in its postgresql.conf and reload it"
            )
    if commit not in _DURABLE:
        raise StateError(
            f"the database has synchronous_commit = {commit}: what it commits may not be on its disk"
        )
    if schema is not None and not locked:
        raise UnreachableError(lost(schema, "the lock of this campaign was lost"))


@dataclass(frozen=True)
class Facts:
    """Facts about a database, for the operator.

    Attributes:
        version: of the server.
        way: of the connection.
        role: of the connection.
        may_create: whether that role may create schemas.
        synchronous_commit: of our sessions.
        in_use: whether a server has the ledger open.
        logs_values: whether its log would contain written values, and so votes.
    """

    version: str
    way: str
    role: str
    may_create: bool
    synchronous_commit: str
    in_use: bool
    logs_values: bool


def facts_of(place: InDatabase) -> Facts:
    """Connect, read the facts, and disconnect; errors as of :func:`connect`."""
    key = lock_key(place.schema)
    with connect(place, read_only=True) as link:
        ((version, role, may_create, commit, in_use, logs),) = _ask(
            link, _FACTS, key >> 32, key & 0xFFFFFFFF
        )
        if link.info.host.startswith("/"):
            way = "over its socket"
        else:
            way = f"at {link.info.host}" + (", TLS" if link.pgconn.ssl_in_use else ", in clear")
    return Facts(
        str(version), way, str(role), bool(may_create), str(commit), bool(in_use), bool(logs)
    )


def lock_key(schema: str) -> int:
    """Return the number of a campaign's lock: 63 bits, the same in every version."""
    digest = hashlib.sha256(b"pate ledger lock\0" + schema.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _require_private_way(link: psycopg.Connection[Any]) -> None:
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


def _require_able(link: psycopg.Connection[Any]) -> None:
    if link.info.server_version < _OLDEST:
        raise StateError("the database is older than PostgreSQL 13")
    ((backend, encoding, role),) = _ask(
        link,
        "SELECT pg_catalog.pg_backend_pid(), current_setting('server_encoding'), "
        "current_setting('session_replication_role')",
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


def _settle(link: psycopg.Connection[Any], schema: str) -> None:
    # No temporary table, and nothing in `public`, precedes our schema.
    path = f"{quoted(schema)}, pg_temp"
    _ask(
        link,
        "SELECT count(pg_catalog.set_config(s.name, w.value, false)) FROM pg_catalog.pg_settings s "
        "JOIN unnest(%s::text[], %s::text[]) w(name, value) ON lower(s.name) = lower(w.name)",
        [*_SETTINGS, "search_path"],
        [*_SETTINGS.values(), path],
    )
    ((commit,),) = _ask(link, "SELECT current_setting('synchronous_commit')")
    if commit not in _DURABLE:
        _ask(link, "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)")


def _ask(link: psycopg.Connection[Any], question: str, *values: object) -> list[tuple[Any, ...]]:
    return link.execute(question, values or None).fetchall()
