"""The manifest of a backup: its files, the last entry of its ledger, and its signer.

Anyone who can write to a backup can write its manifest. So a restore does not trust it: a role
knows the names of the files in its backups and the most bytes of each (:class:`Contents`), and
refuses any other file. The role's identity key, if it has one, signs the manifest, so that altered
copies are detected.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pate.errors import DataError, LedgerError
from pate.exact import parse, read, write
from pate.runtime.home import write_file
from pate.storage.hash_chain import Head, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The manifest's name in the folder of a backup.
MANIFEST: Final = "backup.json"
#: A public key in manifests and on screens.
KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

_FORMAT: Final = 2
_DOMAIN: Final = b"pate/v1/backup/"
_LARGEST_MANIFEST: Final = 2**16
_MOST_FILES: Final = 16
_LONGEST_TEXT: Final = 255
_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_DIGEST: Final = KEY
_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}", re.ASCII)

Role: TypeAlias = Literal["server", "party"]


@dataclass(frozen=True)
class Contents:
    """The allowed content of a role's backup. Nothing else is copied or restored."""

    role: Role
    ledger: str  # name of the ledger, which every backup has
    # the most bytes of each file, by name, the ledger included. Files that entries rely on come
    # after the ledger: files are copied in this order and restored in the opposite one, so that a
    # copy has the files that its entries rely on
    files: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a backup. Only the chain proves the last entry of the ledger."""

    role: Role
    name: str  # of the campaign or the party; not safe in a path until it is checked
    ledger: str  # its identifier: a campaign's id; empty for a party's
    head: str  # the copy's last entry, ``number:digest``
    made_at: str  # when it was taken, UTC, ISO 8601; shown, not relied upon
    files: Mapping[str, str]
    # the Ed25519 public key that signed it, hex; empty for a trial, which has no key
    signer: str = ""

    @property
    def entries(self) -> int:
        """Number of entries in the copy."""
        return Head.parse(self.head).seq


def write_manifest(folder: Path, made: Manifest, key: Ed25519PrivateKey | None) -> Manifest:
    """Sign a manifest and write it into the backup.

    ``key``: of the role's identity, None if it has none.

    Returns the manifest as written.
    """
    signer = "" if key is None else key.public_key().public_bytes_raw().hex()
    # A name that cannot be displayed is not needed: a restore is given the path.
    name = made.name if made.name.isprintable() else ""
    made = replace(made, name=name, signer=signer)
    signature = "" if key is None else key.sign(_signed_bytes(made)).hex()
    text = json.dumps({**_fields(made), "signature": signature}, indent=2, sort_keys=True)
    write_file(folder / MANIFEST, text.encode() + b"\n")
    return made


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a backup, and check its signature if it names a signer."""
    path = folder / MANIFEST
    try:
        with opened(path) as file:
            body = file.read(_LARGEST_MANIFEST + 1)
    except OSError as error:
        raise DataError(f"{folder} is not a backup: {path}: {error.strerror}") from error
    what = f"{path} is not the manifest of a backup"
    fields = parse(body, most=_LARGEST_MANIFEST, error=DataError, what=what, form=_FORMAT)
    signature = str(fields.pop("signature", None))
    made = read(Manifest, fields, error=DataError, what=what)
    try:
        _check_signature(made, signature)
        _check(made)
    except (ValueError, LedgerError) as error:
        raise DataError(f"{what}: {error}") from error
    return made


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading, but no link, pipe or device."""
    if path.is_symlink():
        raise DataError(f"{path} is a link, not a regular file of a backup")
    # Do not follow a link that appeared meanwhile, nor wait for the writer of a pipe.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DataError(f"{path} is not a regular file")
        yield file


def _fields(made: Manifest) -> dict[str, object]:
    return {"format": _FORMAT, **write(made)}


def _signed_bytes(made: Manifest) -> bytes:
    """Return the signed bytes: all fields but the signature, in canonical form."""
    return _DOMAIN + canonical(_fields(made)).encode()


def _check_signature(made: Manifest, signature: str) -> None:
    """Check a signature against the signer that a manifest names."""
    if not made.signer and not signature:
        return
    if not KEY.fullmatch(made.signer) or not _SIGNATURE.fullmatch(signature):
        raise ValueError("an invalid signer or signature")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(made.signer))
        key.verify(bytes.fromhex(signature), _signed_bytes(made))
    except InvalidSignature as error:
        raise ValueError("its signature is invalid: it was altered") from error


def _check(made: Manifest) -> None:
    """Check what a person sees of a manifest, and what paths are made of."""
    texts = (made.name, made.ledger, made.made_at, made.head, made.signer)
    if not all(len(text) <= _LONGEST_TEXT and text.isprintable() for text in texts):
        raise ValueError("invalid fields")
    Head.parse(made.head)
    if not 0 < len(made.files) <= _MOST_FILES:
        raise ValueError("too many files, or none")
    for name, digest in made.files.items():
        if not _FILE.fullmatch(name) or not _DIGEST.fullmatch(digest):
            raise ValueError("a file's name or digest")
