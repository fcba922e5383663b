"""Checks of the machine: Python, packages, memory, name resolution, and the disk of a home."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import sqlite3
import stat
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError, PateError, StateError, UnreachableError
from pate.preflight.checks import Finding
from pate.storage.durable_file import make_durable

if TYPE_CHECKING:
    from collections.abc import Iterable

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


MIB: Final = 2**20
#: Free bytes below which a start would soon fail; below the second it may.
LEAST_FREE: Final = 100 * MIB
GOOD_FREE: Final = 2048 * MIB
_PREFIX: Final = ".preflight."
_MOUNTS: Final = Path("/proc/self/mountinfo")
#: File systems of other machines: locks and flushes differ from those on a disk.
_NETWORK: Final = (
    "nfs", "cifs", "smb", "ncpfs", "afs", "9p", "ceph", "glusterfs", "lustre", "gpfs", "beegfs",
    "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "davfs", "fuse.davfs",
)  # fmt: skip
#: File systems that do not survive the machine's or the container's end.
_PASSING: Final = ("tmpfs", "ramfs", "overlay", "aufs")


def nearest(place: Path) -> Path:
    """Return ``place`` if it exists, else its nearest existing parent."""
    place = place.absolute()
    return next((each for each in (place, *place.parents) if each.exists()), place)


def check_home(place: Path, what: str) -> Finding:
    """Check that a home is writable, by a temporary file, and who owns it.

    ``place``: the directory, which need not exist yet.
    """
    held = nearest(place)
    if not held.is_dir():
        return Finding.failed(DiskError, f"{held} is no directory", "name another --home")
    try:
        with tempfile.TemporaryFile(dir=held, prefix=_PREFIX) as probe:
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
        room = os.statvfs(held)
    except OSError as error:
        return Finding.failed(
            DiskError,
            f"{held} cannot be written: {error.strerror}",
            "make room there, or name another --home",
        )
    free = room.f_bavail * room.f_frsize
    new = "" if held == place.absolute() else ", which a start will make"
    text = f"{place}{new}; {free / 2**30:.1f} GiB free"
    if free < LEAST_FREE:
        return Finding.failed(DiskError, text, f"make room: {what} is kept there")
    if held == place.absolute() and (fault := _openness(place)) is not None:
        return fault
    if free < GOOD_FREE:
        return Finding.warning(text, f"make room: {what} is kept there")
    return Finding.ok(text)


def _openness(place: Path) -> Finding | None:
    """Return the problem of a home's permissions."""
    found = place.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        return Finding.warning(
            f"{place} belongs to another user", "run this as the user who owns it"
        )
    if mode & 0o022 and not mode & stat.S_ISVTX:
        return Finding.failed(StateError, f"others may write to {place}", f"chmod 700 {place}")
    if mode & 0o055:
        return Finding.warning(f"others may look into {place}", f"chmod 700 {place}")
    return None


def open_to_others(paths: Iterable[Path]) -> list[Path]:
    """Return the existing paths that users other than their owner may read, write or enter."""
    return [each for each in paths if each.exists() and each.stat().st_mode & 0o077]


def check_sqlite(place: Path, mounts: Path = _MOUNTS) -> Finding:
    """Write a small SQLite file in the way and the folder of ledgers, and remove it.

    ``place``: a home, which need not exist yet.
    """
    held = nearest(place)
    kind = file_system(held, mounts)
    on = f"on {kind}" if kind else "here"
    try:
        with tempfile.TemporaryDirectory(dir=held, prefix=_PREFIX) as folder:
            synchronous = _write(Path(folder) / "probe.db")
    except (OSError, sqlite3.Error) as error:
        return Finding.failed(
            DiskError, f"SQLite cannot write {on}: {error}", "name a --home on a local disk"
        )
    text = f"SQLite {sqlite3.sqlite_version}: write-ahead log, synchronous={synchronous}, {on}"
    if kind.startswith(_NETWORK):
        return Finding.warning(
            f"{text}, a file system of another machine",
            "put --home on a local disk: there a commit is on the disk, and a lock is a lock",
        )
    if kind.startswith(_PASSING):
        return Finding.warning(
            f"{text}, which is gone when this machine or container ends",
            "put --home on a disk or a volume that stays",
        )
    return Finding.ok(text)


def _write(path: Path) -> str:
    """Write a file as durably as a ledger, and return SQLite's ``synchronous`` level."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as link:
        make_durable(link, path, read_only=False)
        link.execute("CREATE TABLE probe (n INTEGER)")
        link.execute("INSERT INTO probe VALUES (1)")
        (level,) = link.execute("PRAGMA synchronous").fetchone()
    return {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}.get(level, str(level))


def file_system(place: Path, mounts: Path = _MOUNTS) -> str:
    """Return the kind of a directory's file system, empty if the system does not report it."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind, where = -1, "", place.resolve()
    for line in lines:
        front, _, back = line.partition(" - ")
        fields = front.split()
        if len(fields) < 5 or not back:
            continue
        point = Path(fields[4].encode().decode("unicode_escape"))  # a space is written \040
        # The last one counts where several are mounted at one place.
        if where.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), back.split()[0]
    return kind
