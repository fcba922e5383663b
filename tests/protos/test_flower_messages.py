"""Flower's messages: only our own bytes are taken out, and no code of a bundle is run."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from aggregator_server.flower.internals import codeless_fab
from pate.errors import ProtocolError
from protos.flower.carriage import SMALL, STYPE, pack, unpack
from protos.flower.runtime import carries_code, fab_hash


@pytest.mark.parametrize(
    "body", [b"", b"x", bytes(range(256)) * 100, bytes(SMALL), bytes(SMALL + 1)]
)
def test_what_is_packed_is_unpacked(body: bytes) -> None:
    packed = pack(body)
    assert unpack(packed) == body
    assert bool(packed.array_records) == (len(body) > SMALL)


def test_a_small_body_is_three_objects_and_an_array_five() -> None:
    def objects(size: int) -> int:
        return 1 + len(get_all_nested_objects(pack(bytes(size))))

    assert (objects(SMALL), objects(SMALL + 1)) == (3, 5)


@pytest.mark.parametrize("size", [5, SMALL + 1])
def test_a_body_of_the_limit_passes_and_one_byte_more_does_not(size: int) -> None:
    assert unpack(pack(bytes(size)), limit=size) == bytes(size)
    with pytest.raises(ProtocolError, match=f"{size + 1} bytes: at most {size}"):
        unpack(pack(bytes(size + 1)), limit=size)


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
    "no entry": RecordDict({"pate": ConfigRecord()}),
    "another entry": RecordDict({"pate": ConfigRecord({"other": b"abc"})}),
    "an entry more": RecordDict({"pate": ConfigRecord({"pate": b"abc", "b": b"abc"})}),
    "a text": RecordDict({"pate": ConfigRecord({"pate": "abc"})}),
    "a number": RecordDict({"pate": ConfigRecord({"pate": 3})}),
    "a list of bytes": RecordDict({"pate": ConfigRecord({"pate": [b"abc"]})}),
    "metrics": RecordDict({"pate": MetricRecord({"pate": 3})}),
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


def bundle(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


def test_our_own_bundle_carries_no_code() -> None:
    assert not carries_code(codeless_fab())


def test_our_own_bundle_is_always_the_same() -> None:
    assert fab_hash(codeless_fab()) == fab_hash(codeless_fab())


@pytest.mark.parametrize(
    "fab",
    [
        bundle("pyproject.toml", ".info/CONTENT", "evil.py"),
        bundle("pyproject.toml", "pkg/__init__.py"), bundle("../pyproject.toml"),
        bundle("pyproject.toml", "data.json"), b"not an archive", b"",
    ],
)  # fmt: skip
def test_anything_more_counts_as_code(fab: bytes) -> None:
    assert carries_code(fab)
