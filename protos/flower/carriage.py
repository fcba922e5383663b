"""How our messages ride in Flower's: as the content of one, and with additional headers.

Flower messages contain records; ours has one value of raw bytes and nothing else. Flower stores a message as
a tree of objects, and transfers each object in a separate request on every hop:

* A small body is the one entry of a ConfigRecord: three objects.
* A large one is the one array of an ArrayRecord, which Flower cuts into pieces: four objects and as many as
  there are pieces. The array is never decoded by numpy or another structured parser: its serialisation type
  marks it as ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from pate.errors import ProtocolError
from protos.bounds import MAX_MESSAGE

if TYPE_CHECKING:
    from typing import Protocol

    class _Envelope(Protocol):
        def has_content(self) -> bool: ...
        @property
        def content(self) -> RecordDict: ...


#: The type of the Flower messages that carry ours, in both directions.
MESSAGE_TYPE: Final = "query"
#: Serialisation type of the one array; anything else is not ours.
STYPE: Final = "pate.bytes"
_DTYPE: Final = "uint8"
_KEY: Final = "pate"
#: Largest body sent as one object, in bytes.
SMALL: Final = 2**18


def pack(body: bytes) -> RecordDict:
    """Wrap ``body`` as the only content of a Flower message."""
    if len(body) <= SMALL:
        return RecordDict({_KEY: ConfigRecord({_KEY: body})})
    array = Array(_DTYPE, (len(body),), STYPE, body)
    return RecordDict({_KEY: ArrayRecord({_KEY: array})})


def unpack(record: RecordDict, limit: int = MAX_MESSAGE) -> bytes:
    """Return the body that :func:`pack` wrapped.

    ``record``: the content of a message from the network; ``limit``: largest body that is accepted,
    in bytes.
    """
    if list(record) != [_KEY]:
        raise ProtocolError(f"a message of ours holds one record {_KEY!r}, not {_some(record)}")
    if _KEY in record.config_records:
        return _entry_of(record.config_records[_KEY], limit)
    if _KEY not in record.array_records:
        raise ProtocolError("a message of ours holds bytes, or an array of bytes")
    arrays = record.array_records[_KEY]
    if list(arrays) != [_KEY]:
        raise ProtocolError(f"a message of ours holds one array {_KEY!r}, not {_some(arrays)}")
    array = arrays[_KEY]
    if (array.stype, array.dtype) != (STYPE, _DTYPE):
        raise ProtocolError(
            f"the array of a message is {STYPE}/{_DTYPE}, not "
            f"{str(array.stype)[:40]!r}/{str(array.dtype)[:40]!r}"
        )
    _check_size(array.data, limit)
    if tuple(array.shape) != (len(array.data),):
        raise ProtocolError(
            f"an array that says {str(array.shape)[:40]} holds {len(array.data)} bytes"
        )
    return array.data


def unpack_message(message: _Envelope, limit: int = MAX_MESSAGE) -> bytes:
    """Return the body of a whole Flower message."""
    if not message.has_content():
        raise ProtocolError("a message without content")
    return unpack(message.content, limit)


def _entry_of(entries: ConfigRecord, limit: int) -> bytes:
    """Return the body of a small message."""
    if list(entries) != [_KEY]:
        raise ProtocolError(f"a message of ours holds one entry {_KEY!r}, not {_some(entries)}")
    body = entries[_KEY]
    if not isinstance(body, bytes):
        raise ProtocolError(f"the entry of a message is bytes, not {type(body).__name__}")
    _check_size(body, limit)
    return body


def _check_size(body: bytes, limit: int) -> None:
    if len(body) > limit:
        raise ProtocolError(f"a message of {len(body)} bytes: at most {limit} are accepted")


def _some(keys: object) -> str:
    """Return a few keys of a record from the network, of bounded number and length."""
    names = [str(key)[:40] for key in list(keys)[:3]]  # type: ignore[call-overload]
    return str(names)


#: Names the process: a number that it draws at its start. In lower case, as ASGI has it.
SESSION_HEADER: Final = "pate-session"
#: Marks an answer without a message as the end of a held pull: poll again at once.
HELD_HEADER: Final = "pate-held"
#: A busy SuperNode sends a heartbeat at least this often, in seconds. While idle it has a pull
#: open.
BEAT_S: Final = 2.0
