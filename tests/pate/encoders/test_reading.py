"""Raw images as a campaign's embeddings: folders of any sizes, archives, wrong encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from party.voting.own_file import OwnFile
from pate.data.embeddings import Embeddings
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.encoders.encoder import Encoder
from pate.encoders.reading import Reader
from pate.errors import DataError, SchemaError, UsageError
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.embedded import embedding_arrays


@pytest.fixture
def encoder(tmp_path: Path) -> Reader:
    folder = tiny.image_folder(tmp_path / "tiny")
    return Reader(Encoder.open(folder, trial=False), cache=tmp_path / "cache")


def class_folders(folder: Path, count: int = 6) -> list[Any]:
    """Class folders of images, each of another size."""
    drawn = np.random.default_rng(0)
    made = []
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for at in range(count):
            pixels = drawn.integers(0, 256, size=(9 + at, 20 - at, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{at}.png")
            made.append(pixels)
    return made


def test_a_folder_of_images_of_any_sizes_is_embedded(encoder: Reader, tmp_path: Path) -> None:
    pictures = class_folders(tmp_path / "data")
    found = read_dataset(tmp_path / "data", encoder=encoder)
    assert isinstance(found.inputs, Embeddings)
    assert np.array_equal(found.inputs.values, [encoder.encoder.row(each) for each in pictures])
    assert found.classes == ("cat", "dog")
    schema = Schema.of(found.inputs)
    assert (schema.encoder, schema.source, schema.width) == (encoder.digest, "images", 6)
    again = read_dataset(tmp_path / "data", encoder=encoder, schema=schema, odd=Odd())
    assert np.array_equal(again.inputs.values, found.inputs.values)  # type: ignore[union-attr]
    public = read_inputs(tmp_path / "data", encoder=encoder)
    assert isinstance(public, Embeddings)
    assert np.array_equal(public.values, found.inputs.values)


def test_an_unreadable_image_takes_no_part_and_moves_no_other(
    encoder: Reader, tmp_path: Path
) -> None:
    pictures = class_folders(tmp_path / "data")
    (tmp_path / "data" / "cat" / "2.png").write_bytes(b"no image")
    odd = Odd()
    found = read_dataset(tmp_path / "data", encoder=encoder, odd=odd)
    kept = [each for at, each in enumerate(pictures) if at != 2]
    assert isinstance(found.inputs, Embeddings)
    assert np.array_equal(found.inputs.values, [encoder.encoder.row(each) for each in kept])
    assert np.bincount(found.labels).tolist() == [5, 6]
    assert "cat/2.png" in odd.lines()[0]
    with pytest.raises(DataError, match=r"cat/2\.png"):
        read_dataset(tmp_path / "data", encoder=encoder)


def test_an_archive_of_images_is_embedded(encoder: Reader, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, size=(10, 12, 9), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.arange(10) % 2)
    for odd in (None, Odd()):
        found = read_dataset(tmp_path / "a.npz", encoder=encoder, odd=odd)
        assert isinstance(found.inputs, Embeddings)
        wanted = [encoder.encoder.row(each[..., np.newaxis]) for each in pixels]
        assert np.array_equal(found.inputs.values, wanted)
    public = read_inputs(tmp_path / "a.npz", encoder=encoder)
    assert isinstance(public, Embeddings)
    assert np.array_equal(public.values, wanted)
    arrays: dict[str, Any] = {"labels": np.arange(10) % 2, **embedding_arrays(public)}
    np.savez(tmp_path / "e.npz", **arrays)
    same = read_dataset(tmp_path / "e.npz", encoder=encoder, schema=Schema.of(public))
    assert np.array_equal(same.inputs.values, wanted)  # type: ignore[union-attr]
    assert np.array_equal(read_inputs(tmp_path / "e.npz", encoder=encoder).values, wanted)  # type: ignore[union-attr]


def test_a_public_set_embedded_by_another_encoder_is_refused(
    encoder: Reader, tmp_path: Path
) -> None:
    """Else a server would state who trained an encoder that made no row."""
    rows = np.full((3, 6), 9000, dtype=np.int16)
    np.savez(tmp_path / "e.npz", **embedding_arrays(Embeddings(rows, "images", "ab" * 32)))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=f"and --encoder is tiny .*{encoder.digest}"):
        read_inputs(tmp_path / "e.npz", encoder=encoder)
    assert len(read_inputs(tmp_path / "e.npz")) == 3


def test_a_campaign_of_plain_images_needs_no_encoder(encoder: Reader, tmp_path: Path) -> None:
    pixels = np.zeros((4, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=pixels, labels=np.arange(4) % 2)
    schema = Schema.parse("images 8x8x1")
    found = read_dataset(tmp_path / "a.npz", encoder=encoder, schema=schema)
    assert found.inputs.schema() == "images 8x8x1"


def test_another_encoder_is_refused_before_a_record_is_read(
    encoder: Reader, tmp_path: Path
) -> None:
    (tmp_path / "data" / "cat").mkdir(parents=True)
    (tmp_path / "data" / "cat" / "0.png").write_bytes(b"would be an error of its own")
    other = Schema.parse(f"embeddings 6 by {'ab' * 32} of images")
    own = OwnFile(data=tmp_path / "data", encoder=encoder)
    with pytest.raises(SchemaError, match=f"and --encoder is tiny .*{encoder.digest}"):
        own.read(other, ("cat", "dog"))
    with pytest.raises(SchemaError, match="name its folder with --encoder"):
        OwnFile(data=tmp_path / "data").read(other, ("cat", "dog"))
    assert SchemaError.exit_code == 11
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4) % 2)
    for made in (None, encoder):
        with pytest.raises(SchemaError, match="--encoder"):
            OwnFile(data=tmp_path / "a.npz", encoder=made).read(other, ("0", "1"))


def test_a_table_has_no_encoder(encoder: Reader, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,label\n1,x\n2,y\n")
    with pytest.raises(UsageError, match="--encoder is for images"):
        read_dataset(tmp_path / "t.csv", label="label", encoder=encoder)
    with pytest.raises(UsageError, match="--encoder is for images"):
        read_inputs(tmp_path / "t.csv", encoder=encoder)


def test_deep_images_are_read_by_the_window(encoder: Reader, tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "b").mkdir()
    deep = (np.arange(64, dtype=np.uint16) * 60).reshape(8, 8)
    for name in "ab":
        Image.fromarray(deep).save(tmp_path / "data" / name / "0.png")
    found = read_dataset(tmp_path / "data", encoder=encoder, window=(0, 4095))
    assert found.inputs.schema().endswith("of images window 0 4095")
    schema = Schema.of(found.inputs)
    again = read_dataset(tmp_path / "data", encoder=encoder, schema=schema)
    assert again.inputs.schema() == found.inputs.schema()


def test_progress_is_shown(encoder: Reader, tmp_path: Path) -> None:
    from contextlib import contextmanager

    moved: list[tuple[int, int]] = []
    titles = []

    @contextmanager
    def bar(title: str) -> Any:
        titles.append(title)
        yield lambda done, total: moved.append((done, total))

    class_folders(tmp_path / "data", 2)
    read_inputs(tmp_path / "data", encoder=Reader(encoder.encoder, bar=bar))
    assert titles == ["embedding images"]
    assert moved == [(1, 4), (2, 4), (3, 4), (4, 4)]
