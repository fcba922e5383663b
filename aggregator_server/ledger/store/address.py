"""The address of a database: without a password, and only over protected connections."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pate.errors import UsageError
from pate.runtime.environment import is_loopback

if TYPE_CHECKING:
    from sqlalchemy import URL

_LONGEST: Final = 1000
_DRIVERS: Final = ("postgresql", "postgresql+psycopg")
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
#: Substrings of the names of secret options.
_SECRET: Final = ("pass", "pwd", "secret", "scram_", "token")
#: Values of sslmode that authenticate the server.
PROVEN: Final = frozenset({"verify-ca", "verify-full"})
_FORM: Final = "postgresql+psycopg://USER@HOST/DATABASE"


@dataclass(frozen=True)
class Address:
    """Where a database is; :meth:`parse` makes it.

    Attributes:
        url: in SQLAlchemy's form, without a password.
    """

    url: str

    def __str__(self) -> str:
        return self.url

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address.

        Messages never contain the input, which may include a password.

        Raises:
            UsageError: if it is invalid, has a password, or uses an unprotected network connection.
        """
        from sqlalchemy import make_url
        from sqlalchemy.exc import ArgumentError

        try:
            if not text.isprintable() or len(text) > _LONGEST:
                raise ValueError("characters that cannot be shown, or too many")
            url = make_url(text)
            if url.drivername not in _DRIVERS:
                raise ValueError("another kind of database")
        except (ArgumentError, ValueError) as error:
            raise UsageError(f"--ledger is not the address of a database: {_FORM}") from error
        if url.password is not None or _hides_a_password(url):
            raise UsageError(
                "--ledger has a password in it, where every process and log can see it: leave "
                "it out, and put it into ~/.pgpass, or the file that PGPASSFILE names, "
                "readable by you "
                "alone"
            )
        _require_known(url)
        made = cls(url.set(drivername=_DRIVERS[-1]).render_as_string(hide_password=False))
        made.parameters()
        return made

    def parameters(self) -> dict[str, Any]:
        """Return the connection parameters by libpq's names.

        Raises:
            UsageError: for a host on another machine that is not authenticated.
        """
        from sqlalchemy import make_url

        url = make_url(self.url)
        _, found = url.get_dialect()().create_connect_args(url)
        # Values of the environment are known before a password is sent; those of a service file,
        # once connected.
        hosts = ",".join(
            str(found.get(name) or os.environ.get(f"PG{name.upper()}", ""))
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


def _hides_a_password(url: URL) -> bool:
    """Return whether a part of an address contains a secret."""
    if any(mark in (url.username or "") for mark in ":="):
        return True
    # libpq would parse such a database name as another address.
    if any(mark in (url.database or "") for mark in ":=@"):
        return True
    names = (name.lower() for name in url.query if name not in _WORDS)
    return any(part in name for name in names for part in _SECRET)


def _require_known(url: URL) -> None:
    for name, found in url.query.items():
        values = (found,) if isinstance(found, str) else found
        if name in _NUMBERS:
            fits = all(value.isdecimal() and value.isascii() for value in values)
        elif name == "sslmode":
            fits = _MODES.issuperset(values)
        else:
            fits = name in _WORDS
        if not fits:
            raise UsageError(
                "--ledger has an option that cannot be used: the address may say "
                f"{', '.join(sorted(_WORDS | _NUMBERS))}; put others into a service file, and leave "
                "the name of the database to the path"
            )


def is_here(host: str) -> bool:
    """Return whether a host, in libpq's sense, is this machine; no host is left to libpq."""
    return not host or host.startswith(("/", "@")) or is_loopback(host)
