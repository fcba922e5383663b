"""The place of a campaign's ledger: a file in its folder, or a schema of a PostgreSQL database.

The folder of a campaign determines which. With a ledger in a database it has the file
:data:`ANCHOR_FILE` instead, with the address and the last entry that this server has written. A
database may be rolled back (a restored dump, a standby that missed the last seconds), without a
trace that later spending would be repeated; the anchor detects it.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pate.errors import LedgerError, StateError, UsageError
from pate.foreign import json_value
from pate.runtime.child import is_loopback
from pate.runtime.home import exclusive, private_directory, write_file
from pate.storage.durable_file import translated
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The ledger's name in a campaign's folder.
LEDGER_FILE: Final = "ledger.db"
#: The file that replaces it if the ledger is in a database.
ANCHOR_FILE: Final = "ledger.json"
_FORMAT: Final = 1
_LARGEST_ANCHOR: Final = 2**14
_PREFIX: Final = "pate_"
#: Bytes of a name in PostgreSQL, which truncates longer ones.
_LONGEST_NAME: Final = 63

_LONGEST_ADDRESS: Final = 1000
#: The options of libpq that an address may contain, none of them secret. Others belong into a
#: service file.
_NUMBERS: Final = frozenset(
    {"connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
     "tcp_user_timeout"}
)  # fmt: skip
_WORDS: Final = frozenset(
    {"host", "hostaddr", "port", "user", "service", "passfile", "sslmode", "sslrootcert", "sslcert",
     "sslkey", "sslcrl", "sslcrldir", "sslnegotiation", "ssl_min_protocol_version",
     "ssl_max_protocol_version", "channel_binding", "require_auth", "requirepeer", "gssencmode",
     "krbsrvname", "target_session_attrs", "load_balance_hosts"}
)  # fmt: skip
_MODES: Final = frozenset({"disable", "allow", "prefer", "require", "verify-ca", "verify-full"})
#: Values of sslmode that authenticate the server.
PROVEN: Final = frozenset({"verify-ca", "verify-full"})
#: Substrings of the names of secret options.
_SECRET: Final = ("pass", "pwd", "secret", "scram_", "token")


@dataclass(frozen=True)
class Address:
    """Where a database is, as a URI of libpq without a password; :meth:`parse` makes it."""

    url: str

    def __str__(self) -> str:
        return self.url

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; messages never contain it, since it may include a password."""
        found = _parsed(text)
        # libpq would parse such a database name as another address.
        hidden = any(mark in found.get("user", "") for mark in ":=") or any(
            mark in found.get("dbname", "") for mark in ":=@"
        )
        if hidden or any(part in name for name in found.keys() - _WORDS for part in _SECRET):
            raise UsageError(
                "--ledger has a password in it, where every process and log can see it: leave "
                "it out, and put it into ~/.pgpass, or the file that PGPASSFILE names, "
                "readable only by you"
            )
        if (
            found.keys() - _WORDS - _NUMBERS - {"dbname"}
            or any(not re.fullmatch("[0-9]+", found[name]) for name in _NUMBERS & found.keys())
            or found.get("sslmode", "allow") not in _MODES
        ):
            raise UsageError(
                "--ledger has an option that cannot be used: the address may say "
                f"{', '.join(sorted(_WORDS | _NUMBERS))}; put others into a service file"
            )
        made = cls(text)
        made.parameters()
        return made

    def parameters(self) -> dict[str, Any]:
        """The connection parameters by libpq's names; another machine must be authenticated."""
        found: dict[str, Any] = {**_parsed(self.url)}
        # Values of the environment are known before a password is sent; those of a service file,
        # once connected.
        hosts = ",".join(
            found.get(name) or os.environ.get(f"PG{name.upper()}", "")
            for name in ("host", "hostaddr")
        )
        if not all(map(is_here, hosts.split(","))):
            mode = found.setdefault("sslmode", "verify-full")
            if mode not in PROVEN:
                raise UsageError(
                    f"--ledger is on another machine with sslmode={mode}: the sums of votes "
                    "would go to an unauthenticated server; leave sslmode out (default: "
                    "verify-full), or use verify-ca"
                )
        # Detect a server that is gone, and do not wait for one that does not answer.
        return {
            "connect_timeout": 10,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
            **found,
            "client_encoding": "utf8",
            "application_name": "pate-server",
        }


def is_here(host: str) -> bool:
    """Return whether a host, in libpq's sense, is this machine; no host is left to libpq."""
    return not host or host.startswith(("/", "@")) or is_loopback(host)


def _parsed(text: str) -> dict[str, str]:
    """Return what libpq reads in an address."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise UsageError(
            "a ledger in a database needs psycopg: pip install 'federated-pate[postgres]'"
        ) from error
    try:
        if not text.startswith("postgresql://") or not text.isprintable():
            raise ValueError("no URI, or characters that cannot be shown")
        if len(text) > _LONGEST_ADDRESS:
            raise ValueError("too long")
        return {name: str(value) for name, value in conninfo_to_dict(text).items()}
    except (ValueError, ProgrammingError) as error:
        raise UsageError(
            "--ledger is not the address of a database: postgresql://USER@HOST/DATABASE, with "
            f"options of {', '.join(sorted(_WORDS | _NUMBERS))}"
        ) from error


@dataclass(frozen=True)
class InDatabase:
    """The place of a ledger in a PostgreSQL database: a schema (namespace) with only its tables.

    ``head`` is the last entry known to be there, which the file ``anchor`` notes.
    """

    address: Address
    schema: str
    anchor: Path
    head: Head | None = None

    def __str__(self) -> str:
        return f"{self.schema} in {self.address}"

    def at(self, head: Head) -> InDatabase:
        """Return this place with another last entry."""
        return replace(self, head=head)


#: A SQLite file, or a schema of a database.
Place: TypeAlias = Path | InDatabase


def place_of(folder: Path, wanted: str | None = None) -> Place:
    """Return the present or future place of the ledger of the campaign in ``folder``.

    ``wanted`` is the address of the requested database; None: according to the folder, else a file.
    """
    file, path = folder / LEDGER_FILE, folder / ANCHOR_FILE
    address = None if wanted is None else Address.parse(wanted)
    found = read_anchor(path)
    if found is not None and file.exists():
        raise StateError(
            f"{folder} has a ledger in {LEDGER_FILE} and names another in {ANCHOR_FILE}: keep "
            "both, and find out which one is newer"
        )
    if found is not None:
        if address not in (None, found.address):
            raise StateError(
                f"the campaign in {folder} has its ledger at {found.address}, but another place "
                "was given: leave --ledger and PATE_LEDGER out (did the database move? Then "
                f"change its address in {path})"
            )
        return found
    if address is None:
        return file
    if file.exists():
        raise StateError(
            f"the campaign in {folder} has its ledger in {LEDGER_FILE} there, and not in a database: "
            "leave --ledger and PATE_LEDGER out, or choose another --campaign"
        )
    return InDatabase(address, schema_of(folder.name), path)


def schema_of(campaign: str) -> str:
    """Return the name of the schema for a campaign."""
    name = _PREFIX + campaign
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{campaign!r} cannot be the name of a campaign in a database: it is not UTF-8"
        ) from error
    if size > _LONGEST_NAME:
        raise UsageError(
            f"{campaign!r} is too long for a campaign in a database: at most "
            f"{_LONGEST_NAME - len(_PREFIX)} bytes"
        )
    return name


def write_anchor(place: InDatabase) -> None:
    """Record the place of the ledger and its last known entry, durably."""
    private_directory(place.anchor.parent)
    body = {
        "format": _FORMAT,
        "ledger": place.address.url,
        "schema": place.schema,
        "head": None if place.head is None else str(place.head),
    }
    write_file(place.anchor, json.dumps(body, indent=2).encode() + b"\n")


def require_closed_folder(folder: Path) -> None:
    """Check that no other user may write to the folder of the ledger or its anchor."""
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise StateError(f"others may write to {folder}: chmod 700 it")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a ledger file, or an anchor, for one server at a time."""
    said = f"{path} is in use by another server; stop that one, or choose another --campaign"
    with ExitStack() as held:
        with translated(path, StateError):
            held.enter_context(exclusive(path.with_name(path.name + ".lock"), said))
        yield


def read_anchor(path: Path) -> InDatabase | None:
    """Return a folder's anchor, None if it has none."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_ANCHOR + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    try:
        body = json_value(text) if len(text) <= _LARGEST_ANCHOR else None
        if not isinstance(body, dict) or body.pop("format", None) != _FORMAT:
            raise ValueError("of another form; a newer version may know it")
        url, schema, head = body.pop("ledger"), body.pop("schema"), body.pop("head")
        if body or not isinstance(url, str) or not isinstance(schema, str):
            raise ValueError("invalid fields")
        if not schema.startswith(_PREFIX) or len(schema.encode()) > _LONGEST_NAME or "\0" in schema:
            raise ValueError("not a schema of this program")
        known = None if head is None else Head.parse(str(head))
        return InDatabase(Address.parse(url), schema, path, known)
    except (ValueError, KeyError, LedgerError, UsageError) as error:
        if isinstance(error.__cause__, ImportError):  # the driver is missing
            raise
        raise StateError(f"{path} is not a valid anchor of a ledger: {error}") from error
