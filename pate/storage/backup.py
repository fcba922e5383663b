"""Copies of ledgers: taken while they are written, kept with a manifest, and put back whole or not.

A backup is a folder: the copied files, and ``backup.json``, which names them with their digests and
says at which entry the ledger was (:mod:`pate.storage.manifest`). The folder appears under its name
when all of it is on the disk. Putting one back writes files of its role's names, and replaces none.

A ledger that goes back in time is dangerous, not only a loss: what was spent after the copy was
taken would be spent again. A copy cannot show what followed it, so whoever restores one has to say
it; :meth:`Restore.require_newest` finds at least the newer copies that lie beside it.
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

from pate.errors import DataError, DiskError, LedgerError, PateError, StateError, UsageError
from pate.runtime.home import private_directory, sync_directory
from pate.storage.manifest import KEY, MANIFEST, Manifest, opened, read_manifest, write_manifest
from pate.storage.sqlite import connect, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.storage.hash_chain import Head
    from pate.storage.manifest import Contents

Found = TypeVar("Found")

_RESTORED_BY: Final = {"server": "pate-server ledger restore", "party": "pate-party restore"}
#: Folders beside a backup that are looked through for a newer one.
_MOST_NEIGHBOURS: Final = 10_000
#: Bytes that are copied at a time.
_PART: Final = 2**20


@dataclass(frozen=True)
class Copy(Generic[Found]):
    """What is in a copy of a ledger that holds.

    Attributes:
        ledger: what tells it from others: a campaign's id; empty for a party's.
        head: its last entry.
        found: what else the role knows of it.
    """

    ledger: str
    head: Head
    found: Found


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
    with translated(f"the copy of {source} at {target}", LedgerError):
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(connect(source)) as live, closing(connect(target)) as copy:
            live.execute("PRAGMA query_only = ON")
            live.backup(copy)  # in one step: one view of the file, and the writer does not wait
            copy.execute("PRAGMA journal_mode = DELETE")
        _sync(target)


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


def back_up(
    folder: Path,
    out: Path,
    contents: Contents,
    look: Callable[[Path], Copy[Found]],
    *,
    key: Ed25519PrivateKey | None,
    copy_ledger: Callable[[Path, Path], None] = copy_database,
) -> tuple[dict[str, object], Found]:
    """Copy a role's files, also while it writes them, check the copy, and say what it is.

    Args:
        folder: that has the files.
        out: the folder to make; its parent is made if need be.
        contents: what a backup may hold. Only its ledger has to be there.
        look: checks a copy of the ledger and says what is in it.
        key: of the role's identity, to sign with; None where it has none.
        copy_ledger: from where the ledger is to where its copy will be.

    Returns:
        The manifest as it was written with the folder's name, and what ``look`` found.

    Raises:
        StateError: if there is no ledger, something is at ``out``, or a file could not be put back:
            it is too large.
        LedgerError: if the copy does not hold: then the ledger does not, either.
        DiskError: if it cannot be written.
    """
    with new_folder(out) as draft:
        # The ledger first: what an entry relies on is durable before the entry, so the copy has it.
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
                raise StateError(f"{path.name} with {size} bytes is not what a backup may hold")
            files[path.name] = _digest(path)
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        made = Manifest(
            contents.role, folder.absolute().name, found.ledger, str(found.head), made_at, files
        )
        written = write_manifest(draft, made, key)
    return {**asdict(written), "folder": str(out)}, found.found


class Restore:
    """A backup that is to be put back.

    Attributes:
        manifest: what it says of itself; its role, files and signer are those that it may have.

    Args:
        place: of the backup.
        contents: what it may hold.
        own: the identity of the role here, None where it has none.
        signed_by: the public key (hex) that has to have signed it, an earlier one, say; None:
            ``own``, and any where there is none.
        unsigned: take one that nobody signed, as older versions made them.

    Raises:
        UsageError: if ``signed_by`` is no key.
        DataError: if it is no backup of this role, names a file that such backups do not have, or
            is not signed by who has to have signed it.
    """

    def __init__(
        self,
        place: Path,
        contents: Contents,
        own: Ed25519PrivateKey | None,
        *,
        signed_by: str | None,
        unsigned: bool,
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
                f"{place} is the backup of a {made.role}; `{_RESTORED_BY[made.role]}` takes it"
            )
        if strange := sorted(set(made.files) - set(contents.files)):
            raise DataError(
                f"{place} names {strange[0]}, which no backup of a {contents.role} has: this version "
                "did not make it, or it was altered"
            )
        if contents.ledger not in made.files:
            raise DataError(f"{place} has no {contents.ledger}: it is not whole")
        if signer is None or made.signer == signer or (unsigned and not made.signer):
            return
        if made.signer:
            raise DataError(
                f"{place} is signed by {made.signer}, and {signer} was expected: it is the backup of "
                "another, or somebody altered it. If an earlier key of yours signed it, give that "
                "key, known from elsewhere than the copy, with --signed-by"
            )
        raise DataError(
            f"{place} is not signed, and {signer} was expected: somebody may have altered it. A backup "
            "that an older version made is not signed: if you know that this is one, and who could "
            "write to it since, give --unsigned"
        )

    def fill(
        self,
        draft: Path,
        look: Callable[[Path, Sequence[Head]], Copy[Found]],
        *known: Head | None,
    ) -> Found:
        """Copy the backup's files to an empty folder, and check all of them.

        Args:
            draft: the folder.
            look: checks a copy of the ledger, which has to have some entries, and says what is in it.
            known: those entries; None: none.

        Returns:
            What ``look`` found.

        Raises:
            LedgerError: if the copy does not hold, lacks one of these entries, or is not the ledger
                that the manifest names.
            DataError: if a file is missing, or is not what was backed up.
            DiskError: if they cannot be written, or there is no room for them.
        """
        for name, expected in self.manifest.files.items():
            held = self._place / name
            try:
                with opened(held) as file:
                    found = _copy(file, draft / name, self._contents.files[name])
            except FileNotFoundError as error:
                raise DataError(f"{held} is missing: the backup is not whole") from error
            except OSError as error:
                raise DiskError(f"cannot copy {held}: {error.strerror}") from error
            if found != expected:
                raise DataError(f"{held} is not the file that was backed up: its digest differs")
        try:
            made = look(draft / self._contents.ledger, [head for head in known if head is not None])
        except LedgerError as error:
            raise LedgerError(f"{self._place} is not put back: {error}") from error
        if (made.ledger, str(made.head)) != (self.manifest.ledger, self.manifest.head):
            raise LedgerError(
                f"{self._place}: the ledger in it is not the one that its manifest names"
            )
        return made.found

    def require_newest(self) -> None:
        """Refuse the backup if a newer one of the same ledger lies beside it.

        Raises:
            LedgerError: if there is one; the message names it.
        """
        made = newest = self.manifest
        where = self._place
        for path in sorted(self._place.absolute().parent.glob(f"*/{MANIFEST}"))[:_MOST_NEIGHBOURS]:
            try:
                other = read_manifest(path.parent)
            except PateError:
                continue  # something else, or damaged: it shows nothing
            same = (other.role, other.name, other.ledger) == (made.role, made.name, made.ledger)
            if same and other.entries > newest.entries:
                newest, where = other, path.parent
        if newest is not made:
            raise LedgerError(
                f"{self._place} is an old copy: it ends at entry {made.entries}, and {where} goes on "
                f"to entry {newest.entries}; restore that one"
            )

    def put_in_place(self, draft: Path, target: Path) -> None:
        """Give the files of a draft their names in ``target``, the ledger last: with it, all is there.

        Nothing that has one of the names is replaced. A file that is there with the bytes of the copy
        was put there by an attempt that was killed, and stays.

        Raises:
            StateError: if something else has one of the names.
            DiskError: if a file cannot be put there.
        """
        for name in reversed(
            [each for each in self._contents.files if each in self.manifest.files]
        ):
            try:
                os.link(draft / name, target / name)
            except FileExistsError:
                if not self.has_made(target / name):
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

    def has_made(self, held: Path) -> bool:
        """Return whether a file is the copy's: put there by a restore that was killed half way.

        To put the same bytes there once more loses nothing. Of the ledger this is never said: it
        comes last, so a restore that put it there was not cut short.
        """
        expected = self.manifest.files.get(held.name)
        if held.name == self._contents.ledger or expected is None or held.is_symlink():
            return False
        return held.is_file() and _digest(held) == expected


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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
