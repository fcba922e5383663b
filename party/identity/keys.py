"""The secrets of a party: its identity key, and the key of its shards.

Both are created on first use in the party's home directory and never leave it.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.runtime.home import kept_secret, write_file

if TYPE_CHECKING:
    from pathlib import Path

#: File of the sealing key, in a home.
SEALING_FILE: Final = "sealing.key"


def identity_key(home: Path) -> Ed25519PrivateKey:
    """Return the Ed25519 key that identifies this party to the server, whatever its node id."""
    return Ed25519PrivateKey.from_private_bytes(kept_secret(home / "identity.key"))


def stored_identity(home: Path) -> Ed25519PrivateKey | None:
    """Return the stored identity key, or None; none is created."""
    return identity_key(home) if (home / "identity.key").exists() else None


def sealing_key(home: Path) -> bytes:
    """Return the private X25519 key (32 bytes) that others seal shares of their secrets for.

    Without its file a new one is made; bundles for the old one are then not used.
    """
    return kept_secret(home / SEALING_FILE)


def new_sealing_key(home: Path) -> bytes:
    """Replace the sealing key by a new one, and return that.

    The server learns it from the next description of this party. Rounds that were begun go on: their
    shares were opened. Bundles that others sealed for the old key are not used. If the new key cannot be
    stored, the old one stays.
    """
    made = secrets.token_bytes(32)
    write_file(home / SEALING_FILE, made)
    return made


def shard_key(home: Path) -> bytes:
    """Return the 32 bytes that key the assignment of records to teachers."""
    return kept_secret(home / "shard.key")


def units_key(home: Path) -> bytes:
    """Return the 32 bytes that key the hashes of units in this party's ledger.

    They are derived from the key of the shards. A party that lost it votes in no earlier series: its
    ledger has hashes by another key (:mod:`party.ledger.series`).
    """
    return hmac.digest(shard_key(home), b"pate key of units v1", "sha256")


def votes_key(home: Path) -> bytes:
    """Return the 32 bytes that key the tags of votes in this party's ledger.

    They are derived from the key of the shards: a party that lost it has other teachers, too.
    """
    return hmac.digest(shard_key(home), b"pate key of votes given v1", "sha256")
