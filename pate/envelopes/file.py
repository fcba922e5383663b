"""The file of an envelope: bounded, checked as a whole, one message in memory; and sealed answers.

Online, TLS hides a party's replies from whoever carries them: votes of a plain campaign, the shares
that unmask a sum. An envelope passes through more hands. So the messages of an answer are sealed to
an X25519 key of the server, which the request has named under the campaign's signature: a fresh key
pair of the party, HKDF-SHA256 (RFC 5869) bound to the manifest, and ChaCha20-Poly1305 (RFC 8439) with
the number of the message as nonce. Who carries an answer learns no more than its size.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pate.envelopes.manifest import (
    FIRST_LINE,
    MOST_BYTES,
    MOST_MANIFEST,
    SIGNATURE_LINE,
    Manifest,
    Part,
)
from pate.errors import DataError, ProtocolError
from pate.masking.encoding import encode
from pate.masking.keys import derive
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.keys import KeyPair

#: Ending of the names of envelopes.
SUFFIX: Final = ".pate"
#: What sealing adds to a message, bytes.
TAG_BYTES: Final = 16
_AT_ONCE: Final = 2**20
_DAMAGED: Final = "it was cut off or altered on its way; get it again"


class Envelope:
    """An open envelope whose bytes were all checked once."""

    def __init__(self, file: BinaryIO, manifest: Manifest, start: int, digest: bytes) -> None:
        self._file = file
        self.manifest = manifest
        self.digest = digest  # SHA-256 of the file, 32 bytes, as ``sha256sum`` prints it
        self._starts = [start]
        for part in manifest.parts:
            self._starts.append(self._starts[-1] + part.size)
        self.size = self._starts[-1]  # of the file, bytes

    def __len__(self) -> int:
        return len(self.manifest.parts)

    def message(self, at: int) -> bytes:
        """Return one message."""
        part = self.manifest.parts[at]
        self._file.seek(self._starts[at])
        content = self._file.read(part.size)
        if Part.of(content) != part:
            raise ProtocolError(f"the envelope changed while it was read: {_DAMAGED}")
        return content

    def messages(self) -> Iterator[bytes]:
        """Yield all messages, in order."""
        return map(self.message, range(len(self)))


@contextlib.contextmanager
def opened(path: Path, admit: Callable[[Manifest], object] = lambda _: None) -> Iterator[Envelope]:
    """Open an envelope for as long as the block runs.

    Whose signature it bears is checked; whether that is the right signer, the caller must check.

    ``admit``: called with the manifest before any message is read; it raises ProtocolError to
    refuse what need not be read.
    """
    try:
        # A pipe would never end; a link may lead anywhere.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise DataError(f"cannot read the envelope {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError(f"{path} is not an ordinary file")
    with os.fdopen(handle, "rb") as file:
        try:
            envelope = _checked(file, os.fstat(handle).st_size, admit)
        except ProtocolError as error:
            raise ProtocolError(f"{path}: {error}") from error
        except OSError as error:
            raise DataError(f"cannot read the envelope {path}: {error.strerror}") from error
        yield envelope


def write(
    path: Path, manifest: Manifest, key: Ed25519PrivateKey, messages: Iterable[bytes]
) -> None:
    """Write an envelope, durably: it appears whole, or not at all. ``key`` signs it."""
    # A carrier must be able to read it: an answer is sealed, a request holds nothing private.
    write_file(path, _content(manifest, key, messages), mode=0o644)


def digest_of(manifest: Manifest, key: Ed25519PrivateKey, messages: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of the file that :func:`write` makes of the same, 32 bytes."""
    whole = hashlib.sha256()
    for piece in _content(manifest, key, messages):
        whole.update(piece)
    return whole.digest()


def _content(
    manifest: Manifest, key: Ed25519PrivateKey, messages: Iterable[bytes]
) -> Iterator[bytes]:
    if manifest.key != key.public_key().public_bytes_raw():
        raise ValueError("the manifest names another key")
    yield FIRST_LINE
    yield manifest.line
    yield manifest.sign(key).hex().encode() + b"\n"
    for part, message in zip(manifest.parts, messages, strict=True):
        if Part.of(message) != part:
            raise ValueError("the manifest is of other messages")
        yield message


def _checked(file: BinaryIO, size: int, admit: Callable[[Manifest], object]) -> Envelope:
    """Return the envelope in a file, with every byte read once and compared."""
    if size > MOST_BYTES + MOST_MANIFEST + len(FIRST_LINE) + SIGNATURE_LINE:
        raise ProtocolError("it is too large for an envelope")
    if file.read(len(FIRST_LINE)) != FIRST_LINE:
        raise ProtocolError("it is not an envelope, or one of another version")
    line = file.readline(MOST_MANIFEST + 1)
    mark = file.read(SIGNATURE_LINE)
    try:
        text = mark.decode("ascii")
        signature = bytes.fromhex(text)
    except ValueError:
        text, signature = "", b""
    if text != signature.hex() + "\n" or len(mark) != SIGNATURE_LINE:
        raise ProtocolError(f"its third line is no signature: {_DAMAGED}")
    manifest = Manifest.read(line, signature)
    whole = hashlib.sha256(FIRST_LINE + line + mark)
    start = file.tell()
    if size != start + sum(part.size for part in manifest.parts):
        raise ProtocolError(f"it is not as long as its manifest says: {_DAMAGED}")
    admit(manifest)
    for at, part in enumerate(manifest.parts):
        found, left = hashlib.sha256(), part.size
        while left and (content := file.read(min(left, _AT_ONCE))):
            found.update(content)
            whole.update(content)
            left -= len(content)
        if found.digest() != part.digest:
            raise ProtocolError(f"message {at + 1} of {len(manifest.parts)} differs: {_DAMAGED}")
    return Envelope(file, manifest, start, whole.digest())


# --- sealed answers ----------------------------------------------------------------------------


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
    return derive(secret, encode("envelope", sender, recipient, about))
