"""Copies of ledgers: taken while they are written, kept with a manifest, and put back whole or not.

A backup is a folder: the copied files, and ``backup.json``, which names them with their digests and
says at which entry the ledger was (:mod:`pate.storage.manifest`). The folder appears under its name
when all of it is on the disk. Putting one back writes files of its role's names, and replaces none.

A ledger that goes back in time is dangerous, not only a loss: what was spent after the copy was
taken would be spent again. A copy cannot show what followed it, so whoever restores one has to say
it; :func:`require_newest` finds at least the newer copies that lie beside it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sqlite3
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Final

from pate.errors import DataError, DiskError, LedgerError, StateError
from pate.runtime.home import private_directory, sync_directory
from pate.storage.manifest import Manifest, newer_beside, opened, write_manifest
from pate.storage.sqlite import DISK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.storage.manifest import Contents

#: Folders beside a backup that are looked through for a newer one.
_MOST_NEIGHBOURS: Final = 10_000
#: Bytes that are copied at a time.
_PART: Final = 2**20
_WAIT_SECONDS: Final = 30.0


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


def take_stock(
    folder: Path,
    contents: Contents,
    *,
    name: str,
    ledger: str,
    head: str,
    key: Ed25519PrivateKey | None,
) -> Manifest:
    """Write the manifest of the files in ``folder``, signed if there is a key to sign with.

    Args:
        folder: of the backup.
        contents: what it may hold.
        name: of the campaign or the party.
        ledger: what tells this ledger from others.
        head: the copy's last entry.
        key: of the role's identity.

    Raises:
        StateError: if a file there could not be put back: it is too large, or none of the contents.
        DiskError: if the manifest cannot be written.
    """
    files = {}
    for path in sorted(folder.iterdir()):
        size, most = path.stat().st_size, contents.files.get(path.name)
        if most is None or size > most:
            raise StateError(f"{path.name} with {size} bytes is not what a backup may hold")
        files[path.name] = _digest(path)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    made = Manifest(contents.role, name, ledger, head, made_at, files)
    return write_manifest(folder, made, key)


def copy_files(backup: Path, manifest: Manifest, contents: Contents, target: Path) -> None:
    """Copy a backup's files to the folder ``target``, and compare them with the manifest.

    Args:
        backup: its folder.
        manifest: as :func:`pate.storage.manifest.accept` returned it for these ``contents``.
        contents: names the most bytes of each file.
        target: an empty folder.

    Raises:
        DataError: if one is missing, is larger than it may be, or is not what was backed up.
        DiskError: if they cannot be written, or there is no room for them.
    """
    for name, expected in manifest.files.items():
        held = backup / name
        try:
            with opened(held) as file:
                found = _copy(file, target / name, contents.files[name])
        except FileNotFoundError as error:
            raise DataError(f"{held} is missing: the backup is not whole") from error
        except OSError as error:
            raise DiskError(f"cannot copy {held}: {error.strerror}") from error
        if found != expected:
            raise DataError(f"{held} is not the file that was backed up: its digest differs")


def _copy(file: BinaryIO, target: Path, most: int) -> str:
    """Copy a file, for its owner alone, durably; return its SHA-256, hex.

    Raises:
        DataError: if it has more than ``most`` bytes.
        OSError: if it cannot be read or written, or the disk has no room for it.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise DataError(f"{file.name} has {size} bytes, more than such a file may have")
    if size > shutil.disk_usage(target.parent).free:  # before a sparse file fills the disk
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    digest, copied = hashlib.sha256(), 0
    with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        while part := file.read(min(_PART, size - copied + 1)):
            copied += len(part)
            if copied > size:
                raise DataError(f"{file.name} grew while it was read")
            digest.update(part)
            copy.write(part)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def put_in_place(draft: Path, manifest: Manifest, contents: Contents, target: Path) -> None:
    """Give the files of a draft their names in ``target``, the ledger last: with it, all is there.

    Nothing that has one of the names is replaced. A file that is there with the bytes of the copy
    was put there by an attempt that was killed, and stays.

    Raises:
        StateError: if something else has one of the names.
        DiskError: if a file cannot be put there.
    """
    for name in reversed(list(contents.files)):
        if name not in manifest.files:
            continue
        try:
            os.link(draft / name, target / name)
        except FileExistsError:
            if not of_this_copy(target / name, manifest, contents):
                raise StateError(
                    f"{target / name} is there already, and nothing is overwritten"
                ) from None
        except OSError as error:
            raise DiskError(
                f"cannot put {target / name} in place: {error.strerror}; it takes a disk with hard "
                "links, as a ledger takes a local one"
            ) from error
        (draft / name).unlink()  # one name each, also if this is killed
    sync_directory(target)


def of_this_copy(held: Path, manifest: Manifest, contents: Contents) -> bool:
    """Return whether a file is the copy's: put there by a restore that was killed half way.

    To put the same bytes there once more loses nothing. Of the ledger this is never said: it comes
    last, so a restore that put it there was not cut short.
    """
    expected = manifest.files.get(held.name)
    if held.name == contents.ledger or expected is None or held.is_symlink() or not held.is_file():
        return False
    return _digest(held) == expected


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
    if (found := newer_beside(backup, manifest, _MOST_NEIGHBOURS)) is not None:
        newer, where = found
        raise LedgerError(
            f"{backup} is an old copy: it ends at entry {manifest.entries}, and {where} goes on to "
            f"entry {newer.entries}; restore that one"
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
