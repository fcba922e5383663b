"""Backups of ledgers: taken while they are written, with a manifest, and restored atomically.

A backup is a folder: the copied files, and ``backup.json`` with their names, their digests and the
last entry of the ledger (:mod:`pate.storage.manifest`). The folder gets its name when all of it is
on the disk. A restore writes files with the names of its role, and replaces none.

A ledger that is rolled back is dangerous, not only a loss: budget spent after the copy would be
spent again. A copy cannot show what followed it, so the operator has to state it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Final, Generic, TypeVar

from pate.errors import DataError, DiskError, LedgerError, StateError, UsageError
from pate.runtime.home import private_directory, sync
from pate.storage.durable_file import connect, translated
from pate.storage.manifest import KEY, Manifest, opened, read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.storage.hash_chain import Head
    from pate.storage.manifest import Contents

Found = TypeVar("Found")

_RESTORED_BY: Final = {"server": "pate-server ledger restore", "party": "pate-party restore"}
#: Bytes copied at a time.
_PART: Final = 2**20


@dataclass(frozen=True)
class Copy(Generic[Found]):
    """The content of a verified copy of a ledger."""

    ledger: str  # its identifier: a campaign's id; empty for a party's
    head: Head
    found: Found  # further content, depending on the role


def copy_database(source: Path, target: Path) -> None:
    """Copy a consistent snapshot of a SQLite file, also while another process writes it.

    The copy is one file without a log, readable only by its owner, and on the disk when this
    returns.
    """
    if not source.is_file():
        raise StateError(f"there is no ledger at {source}")
    with translated(f"the copy of {source} at {target}", LedgerError):
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(connect(source)) as live, closing(connect(target)) as copy:
            live.execute("PRAGMA query_only = ON")
            live.backup(copy)  # in one step: a consistent view, and the writer does not wait
            copy.execute("PRAGMA journal_mode = DELETE")
        sync(target)


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """Provide the empty folder ``path``, and remove it with its content at the end."""
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
    """Provide a folder; it gets the name ``path`` when the block ends, and is removed if it fails."""
    if path.exists() or path.is_symlink():
        raise StateError(f"{path} exists already: nothing is overwritten")
    with draft_folder(path.with_name(f".{path.name}.new")) as draft:
        yield draft
        sync(draft)
        draft.rename(path)  # fails if a folder with files appeared there meanwhile
        sync(path.parent)


def back_up(
    folder: Path,
    out: Path,  # the folder to make, with its parent if needed
    contents: Contents,  # allowed content of a backup. Only its ledger is required
    look: Callable[[Path], Copy[Found]],  # verifies a copy of the ledger and returns its content
    *,
    key: Ed25519PrivateKey | None,  # of the role's identity, to sign with; None if it has none
    # copies the ledger from one path to another
    copy_ledger: Callable[[Path, Path], None] = copy_database,
) -> tuple[dict[str, object], Found]:
    """Copy a role's files, also while it writes them, verify the copy, and describe it.

    Returns the manifest as written, the folder's name, and the result of ``look``.
    """
    with new_folder(out) as draft:
        # The ledger first: files that an entry relies on are durable before the entry, so the copy
        # has them.
        for name in contents.files:
            if name == contents.ledger:
                copy_ledger(folder / name, draft / name)
            elif (folder / name).exists():
                if name.endswith(".db"):
                    copy_database(folder / name, draft / name)
                else:
                    with (folder / name).open("rb") as file:
                        _copy(file, draft / name, contents.files[name])
        found = look(draft / contents.ledger)
        files = {}
        for path in sorted(draft.iterdir()):
            if (size := path.stat().st_size) > contents.files.get(path.name, -1):
                raise StateError(f"{path.name} with {size} bytes is not allowed in a backup")
            files[path.name] = _digest(path)
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        made = Manifest(
            contents.role, folder.absolute().name, found.ledger, str(found.head), made_at, files
        )
        written = write_manifest(draft, made, key)
    return {**asdict(written), "folder": str(out)}, found.found


class Restore:
    """A backup to restore.

    ``manifest``: of the backup; its role, files and signer are checked.
    """

    def __init__(
        self,
        place: Path,
        contents: Contents,
        own: Ed25519PrivateKey | None,  # the identity of the role here, None if it has none
        *,
        # the public key (hex) that must have signed it, for example an earlier one; None: ``own``,
        # or any key if there is none
        signed_by: str | None,
    ) -> None:
        self._place, self._contents = place, contents
        signer = None if own is None else own.public_key().public_bytes_raw().hex()
        if signed_by is not None:
            signer = signed_by.strip().lower()
            if not KEY.fullmatch(signer):
                raise UsageError(f"--signed-by {signed_by!r:.80}: a key is 64 hexadecimal digits")
        self.manifest = made = read_manifest(place)
        if made.role != contents.role:
            raise DataError(
                f"{place} is the backup of a {made.role}; restore it with `{_RESTORED_BY[made.role]}`"
            )
        if strange := sorted(set(made.files) - set(contents.files)):
            raise DataError(
                f"{place} names {strange[0]}, which backups of a {contents.role} never contain: "
                "another version "
                "made it, or it was altered"
            )
        if contents.ledger not in made.files:
            raise DataError(f"{place} has no {contents.ledger}: it is incomplete")
        if signer is None or made.signer == signer:
            return
        if made.signer:
            raise DataError(
                f"{place} is signed by {made.signer}, but {signer} was expected: it is someone "
                "else's backup, "
                "or it was altered. If an earlier key of yours signed it, give that key, from a "
                "source other than the copy, with --signed-by"
            )
        raise DataError(
            f"{place} is not signed, but the signer {signer} was expected: it may have been altered"
        )

    def fill(
        self,
        draft: Path,
        # verifies a copy of the ledger, which must have ``known``, and returns its content
        look: Callable[[Path, Sequence[Head]], Copy[Found]],
        *known: Head | None,  # entries that the ledger must have; None: none
    ) -> Found:
        """Copy the backup's files to an empty folder, and verify all of them.

        Returns the result of ``look``.
        """
        for name, expected in self.manifest.files.items():
            saved = self._place / name
            try:
                with opened(saved) as file:
                    found = _copy(file, draft / name, self._contents.files[name])
            except FileNotFoundError as error:
                raise DataError(f"{saved} is missing: the backup is incomplete") from error
            except OSError as error:
                raise DiskError(f"cannot copy {saved}: {error.strerror}") from error
            if found != expected:
                raise DataError(f"{saved} is not the file that was backed up: its digest differs")
        try:
            made = look(draft / self._contents.ledger, [head for head in known if head is not None])
        except LedgerError as error:
            raise LedgerError(f"{self._place} is not restored: {error}") from error
        if (made.ledger, str(made.head)) != (self.manifest.ledger, self.manifest.head):
            raise LedgerError(
                f"{self._place}: the ledger in it is not the one that its manifest names"
            )
        return made.found

    def put_in_place(self, draft: Path, target: Path) -> None:
        """Move the files of a draft to ``target``, the ledger last, which completes the restore.

        No existing file is replaced. An existing file with the same bytes is left by an interrupted
        attempt, and stays.
        """
        for name in reversed(
            [each for each in self._contents.files if each in self.manifest.files]
        ):
            try:
                os.link(draft / name, target / name)
            except FileExistsError:
                if not self.has_made(target / name):
                    raise StateError(
                        f"{target / name} exists already, and nothing is overwritten"
                    ) from None
            except OSError as error:
                raise DiskError(
                    f"cannot create {target / name}: {error.strerror}; use a local disk that supports hard "
                    "links"
                ) from error
            (draft / name).unlink()  # one name each, also after an interruption
        sync(target)

    def has_made(self, path: Path) -> bool:
        """Return whether a file is equal to the copy's: left by an interrupted restore.

        Writing the same bytes again loses nothing. It is never true of the ledger, which comes
        last: a restore that created it was complete.
        """
        expected = self.manifest.files.get(path.name)
        if path.name == self._contents.ledger or expected is None or path.is_symlink():
            return False
        return path.is_file() and _digest(path) == expected


def _copy(file: BinaryIO, target: Path, most: int) -> str:
    """Copy a file durably, readable only by its owner; return its SHA-256, hex."""
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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
