"""Broken messages: good ones with a few things in them changed, as bytes and as protobuf."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_M = TypeVar("_M", bound="Message")

_WHOLE: Final = (0, 1, 2, 3, 7, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1,
                 2**40, 2**53, 2**63 - 1, 2**64 - 1)  # fmt: skip
_REAL: Final = (0.0, -0.0, 1.0, -1.0, 1e-308, 5e-324, 1e308, math.inf, -math.inf, math.nan, 1e-5)
_TEXTS: Final = (
    "", " ", "a", "\x00", "a\nb", "\x1b[2J", "\u202eabc", "ä", "𝔘", "../../etc/passwd", "a" * 300,
    "x" * 70_000, "NaN", "1/0", "0x10", "-1", "1e999", "[bold]", "<script>", "%s%n", "'; DROP",
)  # fmt: skip
_SIZES: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}
#: A repeated field is made this long at most: far beyond any bound of ours would take the time.
_MOST_COPIES: Final = 3_000


def mutated_bytes(body: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to four things changed."""
    made = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        what = rng.randrange(8)
        if what == 0 and made:
            made[at % len(made)] ^= 1 << rng.randrange(8)
        elif what == 1 and made:
            made[at % len(made)] = rng.choice((0, 1, 127, 128, 255))
        elif what == 2:
            del made[at:]
        elif what == 3:
            del made[at : at + rng.randint(1, 16)]
        elif what == 4:
            made[at:at] = rng.randbytes(rng.randint(1, 16))
        elif what == 5:
            piece = made[at : at + rng.randint(1, 64)]
            other = rng.randrange(len(made) + 1)
            made[other:other] = piece
        elif what == 6:
            made[at:at] = b"\xff" * rng.randint(1, 10)  # a length, or a tag, beyond any
        else:
            made += made[: rng.randint(0, 4_096)]
    return bytes(made)


def mutated_message(message: _M, rng: random.Random) -> _M:
    """Return a copy of a message with one to three fields changed, at any depth."""
    made = type(message)()
    made.CopyFrom(message)
    for _ in range(rng.randint(1, 3)):
        _change_one(made, rng)
    return made


def _change_one(message: Message, rng: random.Random) -> None:
    """Change a field of a message, or of one of the messages within it."""
    inner = [
        part
        for field, value in message.ListFields()
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        for part in (value if field.is_repeated else [value])
    ]
    if inner and rng.random() < 0.75:
        _change_one(rng.choice(inner), rng)
        return
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    if not fields:
        return
    field = rng.choice(fields)
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        _change_list(message, field, rng)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(field, getattr(message, field.name), rng))


def _change_list(message: Message, field: FieldDescriptor, rng: random.Random) -> None:
    items: Any = getattr(message, field.name)
    what = rng.randrange(5)
    if what == 0 and items:
        del items[rng.randrange(len(items))]
    elif what == 1 and items:
        copies = 1 if rng.random() < 0.8 else min(_MOST_COPIES, _MOST_COPIES // len(items) + 1)
        items.extend([items[rng.randrange(len(items))]] * copies)
    elif what == 2 and len(items) > 1:
        order = list(items)
        rng.shuffle(order)
        del items[:]
        items.extend(order)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        items.add()
    elif items and what == 3:
        at = rng.randrange(len(items))
        items[at] = _value(field, items[at], rng)
    else:
        items.append(_value(field, None, rng))


def _value(field: FieldDescriptor, old: object, rng: random.Random) -> object:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return rng.choice(_REAL) if rng.random() < 0.8 else rng.uniform(-1e6, 1e6)
    if field.type == FieldDescriptor.TYPE_BYTES:
        known = old if isinstance(old, bytes) else b""
        if known and rng.random() < 0.6:
            return mutated_bytes(known, rng)
        return rng.randbytes(rng.choice((0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 4_096)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return rng.choice(_TEXTS)
    enum = field.enum_type
    if enum is not None and enum.is_closed:  # of proto2: no message has another number
        return rng.choice([each.number for each in enum.values])
    least, most = _SIZES[field.cpp_type]
    value = rng.choice(_WHOLE) * rng.choice((1, -1)) + rng.choice((0, 0, 0, 1, -1))
    if isinstance(old, int) and rng.random() < 0.3:
        value = old + rng.choice((-1, 1))
    return min(max(value, least), most)
