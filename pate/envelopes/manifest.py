"""The head of an envelope: whose it is, what it answers, and the digest of each message in it.

Three lines begin the file: what it is, the manifest as one line of JSON, and a signature of that
line. The messages follow, one after the other, of the sizes that the manifest states. So all bytes
are signed, and nothing can be appended, left out or reordered.

The messages are signed, too. The outer signature is needed all the same: it binds their order and
number, the date until which the envelope may be answered, and the key to which an answer is sealed;
and a reader refuses a foreign file before it takes the place of the true one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pate.errors import ProtocolError
from pate.exact import parse, read, write
from pate.formats.enrolment import check_name
from pate.storage.hash_chain import canonical

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

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
        return canonical(write(self)).encode() + b"\n"

    def sign(self, key: Ed25519PrivateKey) -> bytes:
        """Return the signature of the manifest, 64 bytes."""
        return key.sign(_DOMAIN + self.line)

    @classmethod
    def read(cls, line: bytes, signature: bytes) -> Self:
        """Return the manifest in a line that the key which it names signed."""
        fields = parse(line, most=MOST_MANIFEST, error=ProtocolError, what="an envelope")
        made = read(cls, fields, error=ProtocolError, what="an envelope")
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
        fields = write(self)
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
