"""State directories, and atomic, durable writes of files."""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import pwd
import re
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import platformdirs

from pate.errors import DiskError, StateError
from pate.runtime.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECRET_BYTES: Final = 32
#: Random characters in a name made by `tempfile`.
_RANDOM: Final = 8


def default_home(role: str) -> Path:
    """Return a role's default state directory, below the user's."""
    return Path(platformdirs.user_state_dir("pate", appauthor=False)) / role


def private_directory(path: Path) -> Path:
    """Return ``path``; it and its parents, where missing, are made, readable only by their owner."""
    try:
        for parent in reversed(path.parents):
            if not parent.exists():  # `parents=True` would leave them open to all users
                parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if _is_private_to_another(path, os.geteuid()):
            # Some file systems assign all files to one user.
            with tempfile.NamedTemporaryFile(dir=path, prefix=".owner.") as probe:
                _require_own(path, os.fstat(probe.fileno()).st_uid)
    except OSError as error:
        raise DiskError(f"cannot make the directory {path}: {error.strerror}") from error
    return path


def _is_private_to_another(path: Path, user: int) -> bool:
    """Return whether the path exists and is private to a user other than ``user``."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return False
    return facts.st_mode & 0o077 == 0 and facts.st_uid != user


def _require_own(path: Path, user: int) -> None:
    """Check that the owner of a path could still read it after ``user``, such as root, writes it."""
    if _is_private_to_another(path, user):
        owner = path.stat().st_uid
        raise StateError(
            f"{path} belongs to user {_name_of(owner)}, and this is user {_name_of(user)}: run the "
            "command as the former, who could not read what is written now"
        )


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def write_file(path: Path, content: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Write ``content`` to ``path`` atomically and durably; a write that fails leaves nothing behind."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DiskError(f"cannot write in {path.parent}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            for place in (path.parent, path):
                _require_own(place, os.fstat(handle).st_uid)
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        reach("file-drafted")
        Path(name).replace(path)
        sync(path.parent)
    except BaseException as error:  # Ctrl-C, too: the draft may contain a secret
        with contextlib.suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise DiskError(f"cannot write {path}: {error.strerror}") from error
        raise


def open_private(path: Path) -> BinaryIO:
    """Open a log or lock file for appending, readable only by its owner, also if it was there before."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(PermissionError):  # another user's, who may have granted us access
            os.fchmod(handle, 0o600)
        return os.fdopen(handle, "ab")
    except BaseException:
        os.close(handle)
        raise


def sweep_drafts(folder: Path, name: str = "*") -> None:
    """Remove drafts of killed writes of files ``name`` (a pattern), which may contain secrets."""
    for draft in folder.glob(f".{name}.{'[a-z0-9_]' * _RANDOM}"):
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


def new_secret(path: Path) -> bytes:
    """Write 32 fresh random bytes to ``path``, readable only by its owner, and return them."""
    secret = secrets.token_bytes(SECRET_BYTES)
    private_directory(path.parent)
    write_file(path, secret)
    return secret


def kept_secret(path: Path) -> bytes:
    """Return the 32 secret bytes in ``path``, made on first use."""
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        held = new_secret(path)
    if len(held) != SECRET_BYTES:
        raise StateError(
            f"{path} is damaged; restore it from a backup, or remove it to make a new one"
        )
    return held


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Lock a home by the file ``path`` for the program ``what``, and remove drafts of killed writes."""
    with exclusive(path, f"{path.parent} is in use: {what} runs on it already; stop it first"):
        sweep_drafts(path.parent)
        yield


@contextlib.contextmanager
def exclusive(path: Path, in_use: str) -> Iterator[None]:
    """Lock the file ``path`` while the block runs or the process lives; it stays: removing it would race."""
    private_directory(path.parent)
    with open_private(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(in_use) from None
        yield


#: In a server's home: the tokens of the campaign's student and of the page.
STUDENT_TOKEN: Final = "student.token"  # noqa: S105 - a name
PAGE_TOKEN: Final = "page.token"  # noqa: S105 - a name
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_LARGEST: Final = 1024


def new_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def kept_token(path: Path) -> str:
    """Return the token in a file: 256 random bits, made on first use."""
    if not path.exists():
        private_directory(path.parent)
        write_file(path, f"{new_token()}\n".encode("ascii"))
    return read_token(path)


def read_token(path: Path) -> str:
    """Return the token in an existing file."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        raise StateError(
            f"{path} is damaged: it holds no token; where a server made it, remove it, and a new "
            "one is made"
        )
    return text


def same(given: str, wanted: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8"))
