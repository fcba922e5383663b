"""Checks of the machine: Python, packages, memory, and name resolution."""

from __future__ import annotations

import platform
import socket
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.errors import PateError, UnreachableError
from pate.preflight.finding import Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: The installed distribution, whose metadata state its requirements.
DISTRIBUTION: Final = "federated-pate"
GIB: Final = 2**30
_AGAIN: Final = f"install it again: `pip install --upgrade {DISTRIBUTION}`"
_MEMINFO: Final = Path("/proc/meminfo")
#: Directory of a container's resource limits (control groups, version 2).
_CGROUP: Final = Path("/sys/fs/cgroup")


def check_python(distribution: str = DISTRIBUTION) -> Finding:
    """Compare this Python with the requirement of the installed distribution."""
    from packaging.specifiers import SpecifierSet

    here = platform.python_version()
    try:
        wanted = metadata.metadata(distribution)["Requires-Python"]
    except metadata.PackageNotFoundError:
        return _not_installed(distribution)
    if wanted and not SpecifierSet(wanted).contains(here, prereleases=True):
        return Finding.failed(
            PateError,
            f"this is Python {here}, wanted is {wanted}",
            f"make a virtual environment with such a Python, and {_AGAIN}",
        )
    return Finding.ok(f"{here} (wanted: {wanted or 'any'})")


def check_packages(distribution: str = DISTRIBUTION) -> Finding:
    """Compare the installed packages with the requirements of the installed distribution."""
    from packaging.requirements import Requirement

    try:
        texts = metadata.requires(distribution) or []
        own = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return _not_installed(distribution)
    asked = [
        r for r in map(Requirement, texts) if r.marker is None or r.marker.evaluate({"extra": ""})
    ]
    if wrong := [fault for each in asked if (fault := _fault(each))]:
        return Finding.failed(PateError, "; ".join(wrong), _AGAIN)
    return Finding.ok(f"{distribution} {own}, and the {len(asked)} packages that it needs")


def _fault(wanted: Requirement) -> str:
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return f"{wanted.name} is missing"
    if wanted.specifier.contains(found, prereleases=True):
        return ""
    return f"{wanted.name} is {found}, wanted is {wanted.specifier}"


def _not_installed(distribution: str) -> Finding:
    return Finding.warning(
        f"{distribution} is not installed here, so nothing says which versions it needs",
        "run it from an installation: `pip install .` in its folder",
    )


def check_memory(least: int, *, meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> Finding:
    """Report the memory, and warn if less than ``least`` bytes are free."""
    try:
        whole, free = _memory(meminfo)
    except (OSError, ValueError, KeyError):
        return Finding.skipped("this system does not say how much memory it has")
    limit = _number(cgroup / "memory.max")
    within = ""
    if limit is not None and limit < whole:
        used = _number(cgroup / "memory.current") or 0
        whole, free, within = limit, min(free, max(0, limit - used)), " (this container's limit)"
    text = f"{whole / GIB:.1f} GiB{within}, {free / GIB:.1f} GiB free"
    if free >= least:
        return Finding.ok(text)
    return Finding.warning(
        f"{text}; {least / GIB:.1f} GiB or more should be",
        "stop what else runs here, or add memory",
    )


def _memory(meminfo: Path) -> tuple[int, int]:
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    whole, free = (int(lines[key].split()[0]) * 1024 for key in ("MemTotal", "MemAvailable"))
    return whole, free


def _number(path: Path) -> int | None:
    """Return the number in a file, None if there is none: no file, or the word "max"."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def check_name(host: str, port: int) -> Finding:
    """Resolve a host's name."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the second for an invalid name
        return Finding.failed(
            UnreachableError,
            f"{host} has no address: {error}",
            "check the name, and this machine's DNS (/etc/resolv.conf, /etc/hosts)",
        )
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if addresses == [host]:
        return Finding.ok(f"{host} is an address")
    return Finding.ok(f"{host} is {', '.join(addresses[:4])}")
