"""Environment variables: those that restrict Flower, and those that name a proxy."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from typing import Final
from urllib.parse import urlsplit

#: No telemetry, no update check, no package installation at run time; nor does the library by which
#: it reads JSON look through all installed packages for plugins, of which none is ours. Must be set
#: before the first import of flwr, and in every child process.
QUIET_FLOWER: Final[dict[str, str]] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; an address of IPv6 may be in brackets.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "[::1]", "10.0.0.1", "pate.example.org")]
    [True, True, True, False, False]
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(bare.split("%", maxsplit=1)[0]).is_loopback
    except ValueError:
        return bare == "localhost"


def proxy_variable(*names: str) -> tuple[str, str] | None:
    """Return the first of these variables that names a proxy, and ``host:port`` without a password."""
    for name in names:
        if value := os.environ.get(name):
            with contextlib.suppress(ValueError):
                parts = urlsplit(value if "://" in value else f"http://{value}")
                return name, f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return None
