"""Limits of messages from the network, and checks shared by all messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError, Message

from pate.campaign.roster import MOST_PARTIES, MOST_TEACHERS, PARTY_NAME
from pate.data.labels import LONGEST_CLASS_LIST, can_be_class
from pate.encoders.description import MOST_MODEL, MOST_TOKENIZER
from pate.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

ID_BYTES: Final = 16
HASH_BYTES: Final = 32
#: Public keys of Ed25519 and X25519.
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
#: Largest serialised message of either direction.
MAX_MESSAGE: Final = 64 * 2**20
#: Of a request to a party: the largest has a piece of a public set, or the keys of all parties. It takes up
#: to 30 times as much memory when it is read, and it is read before anything else is known of it.
MAX_REQUEST: Final = 8 * 2**20
#: Slice of a public set that travels in one message.
PIECE_BYTES: Final = 2**20
#: Largest public set, serialised.
MAX_PUBLIC_SET: Final = 2**31
#: Most pieces of an encoder: its description, and its files.
MAX_ENCODER_PIECES: Final = 1 + (MOST_MODEL + MOST_TOKENIZER) // PIECE_BYTES
MAX_CLASSES: Final = 10_000
MAX_TEACHERS: Final = MOST_TEACHERS
MAX_PARTIES: Final = MOST_PARTIES
#: A party signs its requests with the time. Seconds by which it may be ahead of the server's clock, and
#: behind it; Flower's limits.
CLOCK_AHEAD_S: Final = 5.0
CLOCK_BEHIND_S: Final = 305.0


def check(holds: bool, otherwise: str) -> None:
    """Raise ProtocolError with the text ``otherwise`` unless ``holds``."""
    if not holds:
        raise ProtocolError(otherwise)


def length(field: bytes, wanted: int, what: str) -> None:
    """Check that a field has exactly ``wanted`` bytes."""
    check(len(field) == wanted, f"{what} has {len(field)} bytes, not {wanted}")


def check_name(name: str) -> None:
    """Check a party's name: only characters that are safe in a file name and on a screen."""
    check(PARTY_NAME.fullmatch(name) is not None, f"a party calls itself {name!r:.80}")


def check_names(names: Sequence[str], what: str) -> None:
    """Check a list of parties: sorted, so that its form is unique, without repetition."""
    check(len(names) <= MAX_PARTIES, f"{len(names)} parties in {what}")
    check(list(names) == sorted(set(names)), f"the parties in {what} are not sorted, or one twice")
    for name in names:
        check_name(name)


def check_classes(classes: Sequence[str], *, empty_allowed: bool = False) -> None:
    """Check a class list."""
    if empty_allowed and not classes:
        return
    check(2 <= len(classes) <= MAX_CLASSES, f"a class list of {len(classes)}")
    check(len(set(classes)) == len(classes), "a class list with a name twice")
    size = sum(len(name.encode()) for name in classes)
    check(
        size <= LONGEST_CLASS_LIST, f"class names of {size:,} bytes, at most {LONGEST_CLASS_LIST:,}"
    )
    for name in classes:
        check(can_be_class(name), "a class name that is empty, too long, or not one line of text")


def parse(message: Message, body: bytes, what: str, *, limit: int = MAX_MESSAGE) -> None:
    """Fill ``message`` from bytes of the network."""
    check(len(body) <= limit, f"a {what} of {len(body)} bytes, the limit is {limit}")
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise ProtocolError(f"a {what} that is not a message of this protocol") from error
    size = message.ByteSize()
    message.DiscardUnknownFields()
    check(message.ByteSize() == size, f"a {what} with fields that are not of this protocol")
