"""Only our own single array of bytes is taken out of a Flower message."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from pate.errors import ProtocolError
from protos.carriage import STYPE, pack, unpack


@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)) * 100])
def test_what_is_packed_is_unpacked(body: bytes) -> None:
    assert unpack(pack(body)) == body


def test_a_body_of_the_limit_passes_and_one_byte_more_does_not() -> None:
    assert unpack(pack(b"12345"), limit=5) == b"12345"
    with pytest.raises(ProtocolError, match="6 bytes: at most 5"):
        unpack(pack(b"123456"), limit=5)


def array(
    data: bytes = b"abc", *, dtype: str = "uint8", shape: tuple[int, ...] = (3,), stype: str = STYPE
) -> Array:
    return Array(dtype, shape, stype, data)


BAD = {
    "nothing": RecordDict(),
    "another record": RecordDict({"other": ArrayRecord({"pate": array()})}),
    "a record more": RecordDict(
        {"pate": ArrayRecord({"pate": array()}), "extra": ConfigRecord({"a": 1})}
    ),
    "no arrays": RecordDict({"pate": ConfigRecord({"pate": b"abc"})}),
    "an empty record": RecordDict({"pate": ArrayRecord()}),
    "another array": RecordDict({"pate": ArrayRecord({"other": array()})}),
    "an array more": RecordDict({"pate": ArrayRecord({"pate": array(), "b": array()})}),
    "a numpy array": RecordDict({"pate": ArrayRecord({"pate": Array(np.zeros(3, np.uint8))})}),
    "another dtype": RecordDict({"pate": ArrayRecord({"pate": array(dtype="int8")})}),
    "a longer shape": RecordDict({"pate": ArrayRecord({"pate": array(shape=(4,))})}),
    "another rank": RecordDict({"pate": ArrayRecord({"pate": array(shape=(3, 1))})}),
}


@pytest.mark.parametrize("record", BAD.values(), ids=BAD.keys())
def test_anything_else_is_refused(record: RecordDict) -> None:
    with pytest.raises(ProtocolError):
        unpack(record)


def test_a_refusal_does_not_repeat_what_was_sent_at_length() -> None:
    record = RecordDict({"n" * 10_000: ArrayRecord({"pate": array()})})
    with pytest.raises(ProtocolError) as refused:
        unpack(record)
    assert len(str(refused.value)) < 300
