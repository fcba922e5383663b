from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def save(path: Path, value: int = 0, *, size: tuple[int, int] = (5, 4), mode: str = "L") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode in {"L", "I", "I;16"} else (value, 1, 2)).save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, value in (("10", 100), ("9", 90), ("0", 0)):
        for copy in range(2):
            save(tmp_path / name / f"{copy}.png", value + copy)
    return tmp_path


def test_class_folders_in_class_order(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"x")
    (folder / "9" / "Thumbs.db").write_bytes(b"x")
    data = read_dataset(folder)
    assert data.classes == ("0", "9", "10")
    assert isinstance(data.inputs, Images)
    assert data.inputs.size == (4, 5, 1)
    firsts = dict(zip(data.inputs.pixels[:, 0, 0, 0].tolist(), data.labels.tolist(), strict=True))
    assert firsts == {0: 0, 1: 0, 90: 1, 91: 1, 100: 2, 101: 2}


def test_labels_count_in_the_given_classes(folder: Path) -> None:
    assert set(read_dataset(folder, classes=["x", "0", "9", "10"]).labels.tolist()) == {1, 2, 3}
    with pytest.raises(SchemaError, match="'10'"):
        read_dataset(folder, classes=["0", "9"])


def test_public_images_flat_or_in_folders(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert len(read_inputs(folder)) == 6
    flat = tmp_path_factory.mktemp("flat")
    for value in (3, 1, 2):
        save(flat / f"{value}.png", value)
    public = read_inputs(flat)
    assert isinstance(public, Images)
    assert public.pixels[:, 0, 0, 0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match="outside of class folders"):
        read_dataset(flat)


def test_one_coloured_image_makes_all_rgb(folder: Path) -> None:
    save(folder / "9" / "c.png", 200, mode="RGB")
    data = read_dataset(folder)
    assert isinstance(data.inputs, Images)
    assert data.inputs.size == (4, 5, 3)
    corners = data.inputs.pixels[:, 0, 0].tolist()
    assert [100, 100, 100] in corners
    assert [200, 1, 2] in corners


def test_sixteen_bits_keep_the_upper_byte(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 5), 0xAB12, np.uint16)).save(tmp_path / "a.png")
    public = read_inputs(tmp_path)
    assert isinstance(public, Images)
    assert set(public.pixels.ravel().tolist()) == {0xAB}


def test_several_sizes_name_the_file(folder: Path) -> None:
    save(folder / "9" / "z.png", size=(6, 6))
    with pytest.raises(DataError, match=r"z\.png is 6x6 pixels, .* is 4x5; bring all"):
        read_dataset(folder)


def test_truncated_image_names_the_file(folder: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (4, 5), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "0" / "t.png")
    whole = (folder / "0" / "t.png").read_bytes()
    for keep in (0, 10, 40, len(whole) - 30):
        (folder / "0" / "t.png").write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"t\.png"):
            read_dataset(folder)


def test_a_stray_file_among_images(folder: Path) -> None:
    (folder / "0" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is not an image file"):
        read_dataset(folder)


def test_label_and_group_name_no_column_of_images(folder: Path) -> None:
    with pytest.raises(UsageError, match="no columns"):
        read_dataset(folder, group="patient")


def test_float_images_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((4, 5), np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match="mode F; save it with 8 bits"):
        read_inputs(tmp_path)
