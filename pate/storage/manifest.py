"""What a backup says of itself: which files it has, how far its ledger goes, and who says so.

Whoever can write to a backup can write its manifest. So nothing is believed that restoring would
obey: a role knows the names of the files in its backups and the most bytes of each
(:class:`Contents`), and whatever else a manifest names is refused. The role's identity key, where it
has one, signs the manifest, so that a copy that somebody altered is told from the one that was made.
"""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pate.errors import DataError, LedgerError
from pate.runtime.home import write_file
from pate.storage.hash_chain import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The manifest's name in the folder of a backup.
MANIFEST: Final = "backup.json"
#: A public key, as a manifest names it and screens show it.
KEY: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

#: Format 1 has neither ``signer`` nor ``signature``.
_FORMAT, _UNSIGNED_FORMAT = 2, 1
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
    """What a backup of one role may hold. Nothing else is ever copied or put back.

    Attributes:
        role: whose backups.
        ledger: name of the ledger, which each of them has.
        files: the most bytes of each file, by name, the ledger's too. What is written before the
            entry that relies on it comes after the ledger: in this order files are copied, and in
            the opposite one they are put back, so that a copy has what its entries rely on.
    """

    role: Role
    ledger: str
    files: Mapping[str, int]


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself. Only the chain proves how far the ledger goes.

    Attributes:
        role: whose ledger it is.
        name: of the campaign or the party; not fit for a path until it was checked.
        ledger: what tells this ledger from others: a campaign's id; empty for a party's.
        head: the copy's last entry, ``number:digest``.
        made_at: when it was taken, UTC, ISO 8601; shown, not relied upon.
        files: SHA-256 of each file, hex, by name.
        signer: the Ed25519 public key that signed it, hex; empty: nobody did.
    """

    role: Role
    name: str
    ledger: str
    head: str
    made_at: str
    files: Mapping[str, str]
    signer: str = ""

    @property
    def entries(self) -> int:
        """Number of entries in the copy."""
        return Head.parse(self.head).seq


def write_manifest(folder: Path, made: Manifest, key: Ed25519PrivateKey | None) -> Manifest:
    """Sign a manifest and write it into the backup.

    Args:
        folder: of the backup.
        made: what it says, unsigned.
        key: of the role's identity, None where it has none.

    Returns:
        The manifest as it was written.
    """
    signer = "" if key is None else key.public_key().public_bytes_raw().hex()
    # A name that cannot be shown is not needed: whoever restores gives the place.
    name = made.name if made.name.isprintable() else ""
    made = replace(made, name=name, signer=signer)
    fields: dict[str, object] = {"format": _FORMAT, **asdict(made)}
    signature = "" if key is None else key.sign(_signed_bytes(fields)).hex()
    text = json.dumps({**fields, "signature": signature}, indent=2, sort_keys=True)
    write_file(folder / MANIFEST, text.encode() + b"\n")
    return made


def read_manifest(folder: Path) -> Manifest:
    """Read what a backup says of itself, and check its signature if it names a signer.

    Raises:
        DataError: if ``folder`` is no backup, one of a form that is not known here, or one whose
            signature does not hold.
    """
    path = folder / MANIFEST
    try:
        with opened(path) as file:
            body = file.read(_LARGEST_MANIFEST + 1)
    except OSError as error:
        raise DataError(f"{folder} is no backup: {path}: {error.strerror}") from error
    try:
        if len(body) > _LARGEST_MANIFEST:
            raise ValueError("too large")
        fields = json.loads(body)
        known = (_FORMAT, _UNSIGNED_FORMAT)
        if not isinstance(fields, dict) or fields.get("format") not in known:
            raise ValueError("of another form; a newer version may know it")
        if fields["format"] == _FORMAT:
            _check_signature(fields)
        elif "signer" in fields:  # what nobody checks, nobody may claim
            raise ValueError("a signer without a signature")
        return _checked({key: value for key, value in fields.items() if key != "format"})
    except (ValueError, TypeError, RecursionError, LedgerError) as error:
        raise DataError(f"{path} is not the manifest of a backup: {error}") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file to read it; neither a link nor a pipe nor a device.

    Raises:
        DataError: if it is something else.
        OSError: if it cannot be opened.
    """
    if path.is_symlink():
        raise DataError(f"{path} is a link, and not a file of a backup")
    # Not to follow a link that was put there meanwhile, nor to wait for whoever writes to a pipe.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DataError(f"{path} is not a regular file")
        yield file


def _signed_bytes(fields: Mapping[str, object]) -> bytes:
    """Return what a signature is over: all fields but itself, in one form."""
    signed = {key: value for key, value in fields.items() if key != "signature"}
    return _DOMAIN + json.dumps(signed, sort_keys=True, separators=(",", ":")).encode()


def _check_signature(fields: dict[str, object]) -> None:
    """Remove the signature from the fields of a manifest, and check it against the signer there.

    Raises:
        ValueError: if it does not hold.
    """
    signer, signature = str(fields.get("signer")), str(fields.pop("signature", None))
    if not signer and not signature:
        return
    if not KEY.fullmatch(signer) or not _SIGNATURE.fullmatch(signature):
        raise ValueError("a signer or a signature that makes no sense")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer))
        key.verify(bytes.fromhex(signature), _signed_bytes(fields))
    except InvalidSignature as error:
        raise ValueError("its signature does not hold: somebody altered it") from error


def _checked(fields: Mapping[str, object]) -> Manifest:
    """Return the manifest of fields.

    Raises:
        ValueError, TypeError: if one of them makes no sense.
    """
    made = Manifest(**fields)  # type: ignore[arg-type]
    texts = (made.name, made.ledger, made.made_at, made.head, made.signer)
    if not all(isinstance(text, str) and len(text) <= _LONGEST_TEXT for text in texts):
        raise ValueError("fields that make no sense")
    # They go to a screen.
    if not all(text.isprintable() for text in texts):
        raise ValueError("fields that make no sense")
    Head.parse(made.head)
    if made.role not in ("server", "party") or not isinstance(made.files, dict):
        raise ValueError("fields that make no sense")
    if not 0 < len(made.files) <= _MOST_FILES:
        raise ValueError("too many files, or none")
    for name, digest in made.files.items():
        if not _FILE.fullmatch(name) or not _DIGEST.fullmatch(str(digest)):
            raise ValueError("a file's name or digest")
    return made
