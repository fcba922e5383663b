"""The secrets of a party: its identity, and the key that decides its shards.

Both are made on first use in the party's home directory and never leave it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.runtime.home import kept_secret

if TYPE_CHECKING:
    from pathlib import Path


def identity_key(home: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key by which the server knows this party, whatever node id it has.

    Raises:
        StateError: if the stored key is damaged.
        DiskError: if it cannot be stored.
    """
    return Ed25519PrivateKey.from_private_bytes(kept_secret(home / "identity.key"))


def stored_identity(home: Path) -> Ed25519PrivateKey | None:
    """Return the identity key of a party that has one; none is made.

    Raises:
        StateError: if the stored key is damaged.
    """
    return identity_key(home) if (home / "identity.key").exists() else None


def shard_key(home: Path) -> bytes:
    """Return the 32 bytes that key the assignment of records to teachers.

    Raises:
        StateError: if the stored key is damaged.
        DiskError: if it cannot be stored.
    """
    return kept_secret(home / "shard.key")


def votes_key(home: Path) -> bytes:
    """Return the 32 bytes that key the tags of votes in this party's ledger.

    They follow from the key of the shards: who has lost that has other teachers, too.

    Raises:
        StateError: if the stored key is damaged.
        DiskError: if it cannot be stored.
    """
    return hmac.digest(shard_key(home), b"pate key of votes given v1", "sha256")
