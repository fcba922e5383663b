"""Environment variables that restrict Flower to the connection between server and parties."""

from __future__ import annotations

from typing import Final

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
