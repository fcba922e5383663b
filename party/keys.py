"""The secrets of a party: its identity, and the key that decides its shards.

Both are made on first use in the party's home directory and never leave it.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.errors import StateError
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from pathlib import Path

_BYTES = 32


def identity_key(home: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key by which the server knows this party, whatever node id it has.

    Raises:
        StateError: if the stored key is damaged.
        DiskError: if it cannot be stored.
    """
    return Ed25519PrivateKey.from_private_bytes(_secret(home / "identity.key"))


def shard_key(home: Path) -> bytes:
    """Return the 32 bytes that key the assignment of records to teachers.

    Raises:
        StateError: if the stored key is damaged.
        DiskError: if it cannot be stored.
    """
    return _secret(home / "shard.key")


def _secret(path: Path) -> bytes:
    private_directory(path.parent)
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        held = secrets.token_bytes(_BYTES)
        write_file(path, held)
    if len(held) != _BYTES:
        raise StateError(
            f"{path} is damaged; restore it from a backup, or remove it to make a new one"
        )
    return held
