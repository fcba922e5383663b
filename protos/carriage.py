"""How our bytes ride inside a Flower message, and how they are taken out again.

Flower carries records; ours always holds one array of raw bytes and nothing else. Flower cuts
arrays into pieces and stores each piece once by its hash, so a body that goes to every party is
held once. The array is never decoded by numpy or anything else that reads structure: its own
serialisation type says that it is not Flower's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flwr.app import Array, ArrayRecord, RecordDict

from pate.errors import ProtocolError
from protos.bounds import MAX_MESSAGE

if TYPE_CHECKING:
    from typing import Protocol

    class _Envelope(Protocol):
        def has_content(self) -> bool: ...
        @property
        def content(self) -> RecordDict: ...


#: The kind of Flower message that carries us, in both directions.
MESSAGE_TYPE: Final = "query"
#: Serialisation type of the one array; anything else is not ours.
STYPE: Final = "pate.bytes"
_DTYPE: Final = "uint8"
_KEY: Final = "pate"


def pack(body: bytes) -> RecordDict:
    """Wrap ``body`` as the only content of a Flower message."""
    array = Array(_DTYPE, (len(body),), STYPE, body)
    return RecordDict({_KEY: ArrayRecord({_KEY: array})})


def unpack(record: RecordDict, limit: int = MAX_MESSAGE) -> bytes:
    """Return the body that :func:`pack` wrapped.

    Args:
        record: the content of a message from the network.
        limit: largest body that is accepted, in bytes.

    Raises:
        ProtocolError: if the record is not exactly one array of ours, or is larger than ``limit``.
    """
    if list(record) != [_KEY] or list(record.array_records) != [_KEY]:
        raise ProtocolError(f"a message of ours holds one record {_KEY!r}, not {_some(record)}")
    arrays = record.array_records[_KEY]
    if list(arrays) != [_KEY]:
        raise ProtocolError(f"a message of ours holds one array {_KEY!r}, not {_some(arrays)}")
    array = arrays[_KEY]
    if (array.stype, array.dtype) != (STYPE, _DTYPE):
        raise ProtocolError(
            f"the array of a message is {STYPE}/{_DTYPE}, not "
            f"{str(array.stype)[:40]!r}/{str(array.dtype)[:40]!r}"
        )
    if len(array.data) > limit:
        raise ProtocolError(f"a message of {len(array.data)} bytes: at most {limit} are accepted")
    if tuple(array.shape) != (len(array.data),):
        raise ProtocolError(
            f"an array that says {str(array.shape)[:40]} holds {len(array.data)} bytes"
        )
    return array.data


def unpack_message(message: _Envelope, limit: int = MAX_MESSAGE) -> bytes:
    """Return the body of a whole Flower message.

    Raises:
        ProtocolError: as :func:`unpack`, and for a message without content.
    """
    if not message.has_content():
        raise ProtocolError("a message without content")
    return unpack(message.content, limit)


def _some(keys: object) -> str:
    """Show a few keys of a record from the network, however many and long they are."""
    names = [str(key)[:40] for key in list(keys)[:3]]  # type: ignore[call-overload]
    return str(names)
