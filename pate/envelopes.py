"""Envelopes: signed messages of a campaign in one file, for parties without a connection.

Three lines begin the file: what it is, the manifest as one line of JSON, and a signature of that line. The
messages follow, one after the other, of the sizes that the manifest states. So all bytes are signed, and
nothing can be appended, left out or reordered. The messages are signed, too; the outer signature binds
their order and number, the date until which the envelope may be answered, and the key to which an answer
is sealed, and a reader refuses a foreign file before it takes the place of the true one.

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
import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pate import exact
from pate.errors import DataError, ProtocolError
from pate.formats.enrolment import check_name
from pate.masking.encoding import encode
from pate.masking.keys import derive
from pate.runtime.home import write_file
from pate.storage.hash_chain import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.keys import KeyPair

#: The first line, for whoever looks into the file.
FIRST_LINE: Final = b"PATE envelope 1, for the command: pate envelope show FILE\n"
#: Most messages of one envelope: the pieces of a public set of 2 GiB, and as many more.
MOST_MESSAGES: Final = 4096
#: Largest message: one of the network, and what sealing adds.
MOST_MESSAGE: Final = 64 * 2**20 + 1024
#: Largest envelope.
MOST_BYTES: Final = 2**32
#: Largest manifest, in bytes.
MOST_MANIFEST: Final = 2**19
#: The second line and the third one, with their ends.
SIGNATURE_LINE: Final = 2 * 64 + 1
_MOST_NUMBER: Final = 10**6
_DOMAIN: Final = b"pate/v1/envelope\0"
_DATE: Final = "%Y-%m-%dT%H:%M:%SZ"
_CAMPAIGN: Final = re.compile("[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True)
class Part:
    """One message of an envelope."""

    size: int  # in bytes
    digest: bytes  # SHA-256, 32 bytes

    @classmethod
    def of(cls, message: bytes) -> Self:
        """Return the entry of a message."""
        return cls(len(message), hashlib.sha256(message).digest())


@dataclass(frozen=True)
class Manifest:
    """What an envelope says of itself."""

    campaign: str
    # ``for`` a party, with requests; ``from`` a party, with replies
    direction: Literal["for", "from"]
    party: str
    # of the envelope among those of the campaign for this party, from 1; an answer has that of the
    # envelope that it answers
    number: int
    answers: bytes  # SHA-256 of the file that it answers, 32 bytes; empty in a request
    until: str  # when the party stops answering it, UTC, as in 2026-12-24T18:00:00Z; empty: never
    # Ed25519 public key of the signer: the campaign's, or the party's identity; 32 bytes
    key: bytes
    # X25519 public key, 32 bytes: in a request that to which the answer is sealed, in an answer the
    # sender's, of this file only
    seal: bytes
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        check_name(self.party)
        answers = 32 if self.direction == "from" else 0
        _check(bool(_CAMPAIGN.fullmatch(self.campaign)), "the campaign's id is not 16 bytes")
        _check(0 < self.number <= _MOST_NUMBER, f"number {self.number}")
        _check(len(self.answers) == answers, "it does not say what it answers")
        _check((len(self.key), len(self.seal)) == (32, 32), "a key that is not of 32 bytes")
        _check(0 < len(self.parts) <= MOST_MESSAGES, f"{len(self.parts)} messages")
        _check(all(0 < each.size <= MOST_MESSAGE for each in self.parts), "a message's size")
        _check(all(len(each.digest) == 32 for each in self.parts), "a message's digest")
        _check(sum(each.size for each in self.parts) <= MOST_BYTES, "more than 4 GiB")
        _check(not (self.until and self.direction == "from"), "an answer has no last date")
        if self.until:
            date_of(self.until)

    @property
    def file_name(self) -> str:
        """The name for people; nothing is read from it."""
        return (
            f"campaign-{self.campaign[:8]}.round-{self.number}.{self.direction}-{self.party}.pate"
        )

    @property
    def line(self) -> bytes:
        """The manifest's one text, with the end of the line."""
        return canonical(exact.write(self)).encode() + b"\n"

    def sign(self, key: Ed25519PrivateKey) -> bytes:
        """Return the signature of the manifest, 64 bytes."""
        return key.sign(_DOMAIN + self.line)

    @classmethod
    def read(cls, line: bytes, signature: bytes) -> Self:
        """Return the manifest in a line that the key which it names signed."""
        fields = exact.parse(line, most=MOST_MANIFEST, error=ProtocolError, what="an envelope")
        made = exact.read(cls, fields, error=ProtocolError, what="an envelope")
        _check(made.line == line, "its manifest is not in its one form")
        try:
            Ed25519PublicKey.from_public_bytes(made.key).verify(signature, _DOMAIN + line)
        except (InvalidSignature, ValueError):
            raise ProtocolError(
                "an envelope that its signer did not sign so: it was altered on its way; get it again"
            ) from None
        return made

    @property
    def about(self) -> bytes:
        """All but the messages: what a seal is bound to."""
        fields = exact.write(self)
        del fields["parts"]
        return canonical(fields).encode()


def date_of(text: str) -> datetime:
    """Return the time of ``until``."""
    try:
        found = datetime.strptime(text, _DATE).replace(tzinfo=UTC)
    except ValueError:
        raise ProtocolError(f"an envelope with the date {text!r:.40}") from None
    _check(text_of(found) == text, f"the date {text!r:.40}")
    return found


def text_of(date: datetime) -> str:
    """Return a time as the manifest has it, in UTC and whole seconds."""
    return date.astimezone(UTC).strftime(_DATE)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(f"not an envelope of this version: {otherwise}")


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
