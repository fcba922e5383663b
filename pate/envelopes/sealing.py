"""Sealing of answers: who carries an envelope learns no more than its size.

Online, TLS hides a party's replies from whoever carries them: votes of a plain campaign, the shares
that unmask a sum. An envelope passes through more hands. So the messages of an answer are sealed to
an X25519 key of the server, which the request has named under the campaign's signature: a fresh key
pair of the party, HKDF-SHA256 (RFC 5869) bound to the manifest, and ChaCha20-Poly1305 (RFC 8439) with
the number of the message as nonce.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pate.errors import ProtocolError
from pate.masking.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.envelopes.manifest import Manifest
    from pate.masking.keys import KeyPair

#: What sealing adds to a message, bytes.
TAG_BYTES: Final = 16


def seal(own: KeyPair, to: bytes, about: bytes, messages: Sequence[bytes]) -> list[bytes]:
    """Return the messages, sealed.

    ``own``: the sender's pair, of this file only: then no nonce is used twice under one key;
    ``to``: the recipient's public key, 32 bytes.
    """
    cipher = ChaCha20Poly1305(_key(own.agree(to, "the server"), own.public, to, about))
    return [cipher.encrypt(_nonce(at), each, None) for at, each in enumerate(messages)]


def unseal(own: KeyPair, manifest: Manifest, at: int, sealed: bytes) -> bytes:
    """Return one message of a file that was sealed to ``own``."""
    sender = manifest.seal
    key = _key(own.agree(sender, manifest.party), sender, own.public, manifest.about)
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(at), sealed, None)
    except InvalidTag:
        raise ProtocolError(
            f"the answer of {manifest.party} does not open with this campaign's key"
        ) from None


def _nonce(at: int) -> bytes:
    return at.to_bytes(12, "little")


def _key(secret: bytes, sender: bytes, recipient: bytes, about: bytes) -> bytes:
    info = encode("envelope", sender, recipient, about)
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
