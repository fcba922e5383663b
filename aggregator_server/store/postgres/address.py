"""The address of a database, as somebody types it: no password, and no way on which others listen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from pate.errors import UsageError

_LONGEST: Final = 1000
_DRIVERS: Final = ("postgresql", "postgresql+psycopg")
_SECRETS: Final = frozenset({"password", "sslpassword", "oauth_client_secret"})
#: Ways of libpq that check whose server answers.
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

        What was typed is in no message: somebody may have put a password into it.

        Raises:
            UsageError: if it is none, has a password, or leads over a network unprotected.
        """
        try:
            if not text.isprintable() or len(text) > _LONGEST:
                raise ValueError("characters that cannot be shown, or too many")
            url = make_url(text)
            if url.drivername not in _DRIVERS:
                raise ValueError("another kind of database")
        except (ArgumentError, ValueError) as error:
            raise UsageError(f"--ledger is not the address of a database: {_FORM}") from error
        if url.password is not None or _SECRETS & url.query.keys():
            raise UsageError(
                "--ledger has a password in it, where every process and log can see it: leave it "
                "out, and put it into ~/.pgpass, or the file that PGPASSFILE names, for your eyes "
                "alone"
            )
        made = cls(url.set(drivername=_DRIVERS[-1]).render_as_string(hide_password=False))
        made.parameters()
        return made

    def parameters(self) -> dict[str, Any]:
        """Return what to connect with, by libpq's names.

        Raises:
            UsageError: if a host is named that is another machine, without a proof of whose it is.
        """
        url = make_url(self.url)
        _, found = url.get_dialect()().create_connect_args(url)
        # What the environment names is known before a password is sent; what a service file names,
        # once we are connected.
        hosts = ",".join(
            str(found.get(name) or os.environ.get(f"PG{name.upper()}", ""))
            for name in ("host", "hostaddr")
        )
        if not all(map(is_here, hosts.split(","))):
            mode = found.setdefault("sslmode", "verify-full")
            if mode not in PROVEN:
                raise UsageError(
                    f"--ledger leads to another machine with sslmode={mode}: the sums of votes would "
                    "go to whoever answers; leave it out (then it is verify-full), or verify-ca"
                )
        # A server that is gone is noticed, and one that does not answer is not waited for.
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
    """Say whether a host, as libpq takes it, is this machine; none at all is left to libpq."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host.split("%", maxsplit=1)[0]).is_loopback
    except ValueError:
        return False
