"""A public set in slices: what arrives is what the Protocol Buffers would have written."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pate.data.values import Images, Inputs, Table, content_hash
from pate.errors import DataError, ProtocolError
from protos import public_set
from protos.bounds import PIECE_BYTES
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet, pack_public_set, read_public_set

RNG = np.random.default_rng(4)
IMAGES = Images(RNG.integers(0, 256, (300, 3, 5, 1), dtype=np.uint8))
TABLE = Table(
    ("age", "ward"), (RNG.normal(size=200), np.array([f"w{at % 7}" for at in range(200)], np.str_))
)


@pytest.mark.parametrize("inputs", [IMAGES, TABLE, IMAGES.take([0]), TABLE.take([1])])
@pytest.mark.parametrize("piece", [1, 7, 100, 10**6])
def test_slices_of_any_size_are_the_message(inputs: Inputs, piece: int) -> None:
    packed = PackedPublicSet(inputs, piece)
    body = b"".join(packed)
    assert vote_pb2.PublicSet.FromString(body).SerializeToString(deterministic=True) == body
    found = read_public_set(body, public_set=content_hash(inputs), queries=len(inputs))
    assert content_hash(found) == content_hash(inputs)
    assert all(len(each) == piece for each in packed[:-1])
    assert len(packed) == -(-len(body) // piece)
    assert packed[len(packed) - 1] == body[(len(packed) - 1) * piece :]
    with pytest.raises(IndexError):
        packed[len(packed)]
    assert pack_public_set(inputs) == body


@pytest.mark.parametrize("window", [(0, 4095), (-1024, 3071), (-5, 0), (0, 1)])
def test_a_window_travels_with_the_images(window: tuple[int, int]) -> None:
    inputs = Images(IMAGES.pixels, window)
    packed = PackedPublicSet(inputs, 7)
    digest = content_hash(inputs)
    assert digest != content_hash(IMAGES)
    found = read_public_set(b"".join(packed), public_set=digest, queries=len(inputs))
    assert isinstance(found, Images)
    assert found.window == window
    assert found.row_hashes() == IMAGES.row_hashes()
    message = vote_pb2.PublicSet.FromString(b"".join(packed))
    message.images.window_low, message.images.window_high = 9, 9
    with pytest.raises(ProtocolError, match="malformed: a window goes"):
        read_public_set(message.SerializeToString(), public_set=digest, queries=len(inputs))


def test_one_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_set, "MAX_PUBLIC_SET", 1000)
    with pytest.raises(DataError, match="too large"):
        PackedPublicSet(IMAGES)
    with pytest.raises(DataError, match="too large"):
        PackedPublicSet(TABLE)


def test_images_in_a_file_are_not_read_into_memory_whole(tmp_path: Path) -> None:
    size = 24 * PIECE_BYTES
    whole = np.lib.format.open_memmap(
        tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(size // 64, 8, 8, 1)
    )
    whole[::1000] = 7
    whole.flush()
    del whole
    packed = PackedPublicSet(Images(np.load(tmp_path / "x.npy", mmap_mode="r")))
    tracemalloc.start()
    try:
        total = sum(len(each) for each in packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total > size
    assert peak < 4 * PIECE_BYTES
