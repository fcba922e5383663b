"""Embeddings as inputs: their files, their schema line, their space and the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.data.embeddings import UNIT, Embeddings, encoder_in
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import content_hash
from pate.errors import DataError, ProtocolError, SchemaError, UsageError
from pate.features.space import space_over
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet, pack_public_set, read_public_set
from tests.support.encoders.embedded import embedding_arrays

DIGEST = "ab" * 32


def made(rows: int = 40, width: int = 7, seed: int = 0, source: str = "images") -> Embeddings:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return Embeddings(np.rint(drawn * UNIT).astype(np.int16), source, DIGEST)


def test_the_schema_line_is_read_again_and_another_is_refused() -> None:
    for source in ("texts", "images", "images window -1000 400"):
        line = made(source=source).schema()
        schema = Schema.parse(line)
        assert (schema.encoder, schema.width) == (DIGEST, 7)
        assert schema == Schema.of(made(source=source))
        assert schema.window == ((-1000, 400) if "window" in source else None)
        assert schema.source == source.partition(" ")[0]
        assert encoder_in(line) == DIGEST
    for line in (
        f"embeddings 0 by {DIGEST} of texts", f"embeddings 9999 by {DIGEST} of texts",
        f"embeddings 7 by {DIGEST[1:]} of texts", f"embeddings 7 by {DIGEST} of sounds",
        f"embeddings 7 by {DIGEST} of texts window 0 1",
        f"embeddings 7 by {DIGEST} of images window 5 5",
    ):  # fmt: skip
        with pytest.raises(SchemaError):
            Schema.parse(line)
        # A window is checked where it is used: the line names its encoder all the same.
        assert encoder_in(line) == ("" if not line.endswith("5 5") else DIGEST)
    assert encoder_in("images 8x8x1") == encoder_in(None) == ""


def test_an_archive_gives_them_back(tmp_path: Path) -> None:
    inputs = made()
    file = tmp_path / "records.npz"
    labels = np.arange(40) % 3
    np.savez(file, **embedding_arrays(inputs), labels=labels, allow_pickle=False)
    assert content_hash(read_inputs(file)) == content_hash(inputs)
    data = read_dataset(file, schema=Schema.of(inputs))
    assert content_hash(data.inputs) == content_hash(inputs)
    assert data.labels.tolist() == labels.tolist()
    with pytest.raises(SchemaError, match="by the encoder cdcdcdcd"):
        read_dataset(file, schema=Schema.parse(f"embeddings 7 by {'cd' * 32} of images"))
    with pytest.raises(SchemaError, match="images 8x8x1"):
        read_dataset(file, schema=Schema(size=(8, 8, 1)))


def test_a_broken_archive_says_why(tmp_path: Path) -> None:
    whole: dict[str, Any] = {**embedding_arrays(made())}
    for changed, why in (
        ({"embeddings": made().points()}, "float32, not int16"),
        ({"embeddings": made().values[0]}, r"\(n, d\) int16"),
        ({"encoder": np.array("none")}, "does not say"),
        ({"source": np.array("sounds")}, "does not say"), ({"source": None}, "no array 'source'"),
    ):  # fmt: skip
        arrays: Any = {
            name: each for name, each in {**whole, **changed}.items() if each is not None
        }
        np.savez(tmp_path / "records.npz", **arrays, labels=np.zeros(40, np.int64))
        with pytest.raises(DataError, match=why):
            read_inputs(tmp_path / "records.npz")


def test_they_travel_in_pieces() -> None:
    inputs = made(source="texts")
    body = b"".join(PackedPublicSet(inputs, piece=64))
    assert body == pack_public_set(inputs)
    there = read_public_set(body, public_set=content_hash(inputs), queries=40)
    assert content_hash(there) == content_hash(inputs)


def test_a_message_that_contradicts_itself_is_refused() -> None:
    whole = pack_public_set(made())
    for field, value in (
        ("count", 41), ("width", 8), ("width", 0), ("source", "sounds"), ("encoder", "AB" * 32),
        ("values", b""),
    ):  # fmt: skip
        message = vote_pb2.PublicSet.FromString(whole)
        setattr(message.embeddings, field, value)
        with pytest.raises(ProtocolError):
            read_public_set(
                message.SerializeToString(), public_set=content_hash(made()), queries=40
            )


def test_a_point_depends_on_its_own_row_and_the_public_set() -> None:
    public, records = made(200), made(60, seed=1)
    space = space_over(public)
    assert (space.name, space.width) == ("encoder", 7)
    points = space.embed(records)
    assert np.abs(np.linalg.norm(points, axis=1) - 1).max() < 1e-6
    for rows in ([3], [9, 3, 40], range(3, 60, 5)):
        np.testing.assert_array_equal(space.embed(records.take(list(rows))), points[list(rows)])
    middle = Embeddings(space_middle(public), "images", DIGEST)
    assert np.isfinite(space.embed(middle)).all()


def space_middle(public: Embeddings) -> NDArray[np.int16]:
    total = public.values.sum(axis=0, dtype=np.int64)
    made: NDArray[np.int16] = (total // len(public)).astype(np.int16)[None]
    return made


def test_a_space_refuses_other_inputs() -> None:
    space = space_over(made())
    with pytest.raises(SchemaError, match="is for embeddings 7"):
        space.embed(made(source="texts"))
    with pytest.raises(UsageError, match="there is encoder"):
        space_over(made(), "scattering")
