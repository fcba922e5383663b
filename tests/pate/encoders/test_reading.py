"""Raw images as a campaign's embeddings: folders of any sizes, archives, wrong encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from party.voting.own_file import OwnFile
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.encoders.encoder import Encoder
from pate.encoders.reading import Reader
from pate.errors import SchemaError
from tests.support.encoders import tiny_encoders as tiny
from tests.support.readings import rows_of


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
    assert np.array_equal(rows_of(found), [encoder.encoder.row(each) for each in pictures])
    assert found.classes == ("cat", "dog")
    schema = Schema.of(found.inputs)
    assert (schema.encoder, schema.source, schema.width) == (encoder.digest, "images", 6)
    again = read_dataset(tmp_path / "data", encoder=encoder, schema=schema, odd=Odd())
    assert np.array_equal(again.inputs.values, rows_of(found))  # type: ignore[union-attr]
    public = read_inputs(tmp_path / "data", encoder=encoder)
    assert np.array_equal(rows_of(public), rows_of(found))


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
