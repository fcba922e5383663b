"""Copies of ledgers: taken while they are written, kept with a manifest, and put back whole or not.

A backup is a folder: the copied files, and ``backup.json``, which names them with their digests and
says at which entry the ledger was. The folder appears under its name when all of it is on the disk.

A ledger that goes back in time is dangerous, not only a loss: what was spent after the copy was
taken would be spent again. A copy cannot show what followed it, so whoever restores one has to say
it; :func:`require_newest` finds at least the newer copies that lie beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Literal

from pate.errors import DataError, DiskError, LedgerError, PateError, StateError
from pate.runtime.home import private_directory, sync_directory, write_file
from pate.runtime.sqlite import DISK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: The manifest's name in the folder of a backup.
MANIFEST: Final = "backup.json"
#: How a head is written: number of entries, and digest of the last one.
HEAD: Final = re.compile(r"(0|[1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)
_FORMAT: Final = 1
_LARGEST_MANIFEST: Final = 2**16
_MOST_FILES: Final = 16
#: Folders beside a backup that are looked through for a newer one.
_MOST_NEIGHBOURS: Final = 10_000
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_WAIT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself. It is a file like any other: only the chain proves anything.

    Attributes:
        role: whose ledger it is.
        name: of the campaign or the party.
        ledger: what tells this ledger from others: a campaign's id; empty for a party's.
        head: the copy's last entry, ``number:digest``.
        made_at: when it was taken, UTC, ISO 8601; told, not relied upon.
        files: SHA-256 of each file, hex, by name.
    """

    role: Literal["server", "party"]
    name: str
    ledger: str
    head: str
    made_at: str
    files: Mapping[str, str]

    @property
    def entries(self) -> int:
        """Number of entries in the copy."""
        return int(self.head.partition(":")[0])


def copy_database(source: Path, target: Path) -> None:
    """Copy a SQLite file as of one moment, also while another process writes it.

    The copy is one file that needs no log beside it, readable by its owner alone, and on the disk
    when this returns.

    Raises:
        StateError: if there is no ``source``, or something is at ``target``.
        DiskError: if it cannot be read or written.
        LedgerError: if it is no database.
    """
    if not source.is_file():
        raise StateError(f"there is no ledger at {source}")
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with (
            closing(_connected(source)) as live,
            closing(_connected(target)) as copy,
        ):
            live.execute("PRAGMA query_only = ON")
            live.backup(copy)  # in one step: one view of the file, and the writer does not wait
            copy.execute("PRAGMA journal_mode = DELETE")
        _sync(target)
    except FileExistsError as error:
        raise StateError(f"{target} is there already") from error
    except sqlite3.Error as error:
        if str(getattr(error, "sqlite_errorname", "")).startswith(DISK):
            raise DiskError(f"{source} cannot be copied to {target}: {error}") from error
        raise LedgerError(f"{source} cannot be copied: {error}") from error
    except OSError as error:
        raise DiskError(f"cannot copy {source} to {target}: {error.strerror}") from error


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill, ``path``, and remove it with what is left in it when all is done.

    Raises:
        DiskError: if it cannot be made, or the block fails to write or rename.
    """
    try:
        private_directory(path.parent)
        shutil.rmtree(path, ignore_errors=True)  # of an earlier attempt that was killed
        path.mkdir(mode=0o700)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill; it gets the name ``path`` when the block ends, and vanishes if it fails.

    Raises:
        StateError: if something is at ``path``.
        DiskError: if it cannot be made.
    """
    if path.exists() or path.is_symlink():
        raise StateError(f"{path} is there already: nothing is overwritten")
    with draft_folder(path.with_name(f".{path.name}.new")) as draft:
        yield draft
        sync_directory(draft)
        draft.rename(path)  # fails if somebody put a folder with files there meanwhile
        sync_directory(path.parent)


def write_manifest(
    folder: Path,
    *,
    role: Literal["server", "party"],
    name: str,
    ledger: str,
    head: str,
    made_at: str,
) -> Manifest:
    """Take stock of the files in ``folder``, and write it down there."""
    files = {path.name: _digest(path) for path in sorted(folder.iterdir())}
    made = Manifest(role, name, ledger, head, made_at, files)
    text = json.dumps({"format": _FORMAT} | asdict(made), indent=2, sort_keys=True)
    write_file(folder / MANIFEST, text.encode() + b"\n")
    return made


def read_manifest(folder: Path) -> Manifest:
    """Read what a backup says of itself.

    Raises:
        DataError: if ``folder`` is no backup, or one of a form that is not known here.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_MANIFEST + 1)
    except OSError as error:
        raise DataError(f"{folder} is no backup: {path}: {error.strerror}") from error
    try:
        if len(body) > _LARGEST_MANIFEST:
            raise ValueError("too large")
        fields = json.loads(body)
        if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
            raise ValueError("of another form; a newer version may know it")
        made = Manifest(**fields)
        texts = (made.role, made.name, made.ledger, made.head, made.made_at)
        if not all(isinstance(text, str) for text in texts) or not HEAD.fullmatch(made.head):
            raise ValueError("fields that make no sense")
        if made.role not in ("server", "party") or not isinstance(made.files, dict):
            raise ValueError("fields that make no sense")
        if not 0 < len(made.files) <= _MOST_FILES:
            raise ValueError("too many files, or none")
        for name, digest in made.files.items():
            if not _FILE.fullmatch(name) or not _DIGEST.fullmatch(str(digest)):
                raise ValueError("a file's name or digest")
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} is not the manifest of a backup: {error}") from error
    return made


def copy_files(backup: Path, manifest: Manifest, target: Path) -> None:
    """Copy a backup's files to the folder ``target``, and compare them with the manifest.

    Raises:
        DataError: if one is missing or is not what was backed up.
        DiskError: if they cannot be written.
    """
    for name, expected in manifest.files.items():
        held = backup / name
        if held.is_symlink() or not held.is_file():
            raise DataError(f"{held} is missing: the backup is not whole")
        copy_file(held, target / name)
        if _digest(target / name) != expected:
            raise DataError(f"{held} is not the file that was backed up: its digest differs")


def copy_file(source: Path, target: Path) -> None:
    """Copy a file that nobody writes, for its owner alone, durably.

    Raises:
        DiskError: if it cannot be read or written.
    """
    try:
        shutil.copyfile(source, target)
        target.chmod(0o600)
        _sync(target)
    except OSError as error:
        raise DiskError(f"cannot copy {source}: {error.strerror}") from error


def require_newest(backup: Path, manifest: Manifest) -> None:
    """Refuse a backup if a newer one of the same ledger lies beside it.

    Raises:
        LedgerError: if there is one; the message names it.
    """
    newest, where = manifest, backup
    beside = sorted(backup.absolute().parent.glob(f"*/{MANIFEST}"))[:_MOST_NEIGHBOURS]
    for path in beside:
        try:
            other = read_manifest(path.parent)
        except PateError:
            continue  # something else, or damaged: it shows nothing
        same = (other.role, other.name, other.ledger) == (
            manifest.role,
            manifest.name,
            manifest.ledger,
        )
        if same and other.entries > newest.entries:
            newest, where = other, path.parent
    if newest is not manifest:
        raise LedgerError(
            f"{backup} is an old copy: it ends at entry {manifest.entries}, and {where} goes on to "
            f"entry {newest.entries}; restore that one"
        )


def _connected(path: Path) -> sqlite3.Connection:
    where = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(where, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
