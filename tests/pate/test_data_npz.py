from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images
from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)


def save(folder: Path, **arrays: NDArray[np.generic]) -> Path:
    path = folder / "d.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y"), ("data", "y")])
def test_keys(tmp_path: Path, images: str, labels: str) -> None:
    path = save(tmp_path, **{images: PIXELS, labels: np.array([[2], [0], [10]], np.uint8)})
    for place in (path, tmp_path):  # the file, or a folder that holds it alone
        data = read_dataset(place)
        assert data.classes == ("0", "2", "10")
        assert data.labels.tolist() == [1, 0, 2]
        assert isinstance(data.inputs, Images)
        assert (data.inputs.pixels[..., 0] == PIXELS).all()


def test_inputs_ignore_labels(tmp_path: Path) -> None:
    assert len(read_inputs(save(tmp_path, x=PIXELS, y=np.array([np.nan])))) == 3


def test_floats_are_scaled_and_back_again(tmp_path: Path) -> None:
    for floats in (PIXELS / 255, (PIXELS / 255).astype(np.float32)):
        public = read_inputs(save(tmp_path, x=floats))
        assert isinstance(public, Images)
        assert (public.pixels[..., 0] == PIXELS).all()


def test_classes_and_groups(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        x=PIXELS,
        y=np.array([1, 0, 1]),
        classes=np.array(["well", "ill"]),
        groups=np.array([7, 7, 8]),
    )
    data = read_dataset(path)
    assert data.classes == ("well", "ill")
    assert data.labels.tolist() == [1, 0, 1]
    assert data.groups is not None
    assert data.groups.tolist() == ["7", "7", "8"]
    assert read_dataset(path, classes=["ill", "well"]).labels.tolist() == [0, 1, 0]
    with pytest.raises(SchemaError, match="'ill'"):
        read_dataset(path, classes=["well", "dead"])


def test_text_labels_and_named_arrays(tmp_path: Path) -> None:
    path = save(tmp_path, x=PIXELS, kind=np.array(["b", "a", "b"]), who=np.array(["p", "q", "p"]))
    data = read_dataset(path, label="kind", group="who")
    assert data.classes == ("a", "b")
    assert data.groups is not None
    assert data.groups.tolist() == ["p", "q", "p"]


Y = np.array([0, 1, 0])
X = PIXELS


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "no array called labels or y; it has: x"),
        ({"pictures": X, "y": Y}, "no array called images or x or data"),
        ({"x": X, "y": np.array([0.0, np.nan, 1.0])}, "labels hold NaN"),
        ({"x": X, "y": np.array([0, 1])}, "3 inputs and 2 labels"),
        ({"x": X, "y": np.zeros((3, 2))}, r"labels have shape \(3, 2\)"),
        (
            {"x": X, "y": np.array([0, 1, 2]), "classes": np.array(["a", "b"])},
            "label 2 lies outside",
        ),
        ({"x": X, "y": np.array([0, 1, 0], dtype=object)}, "Python objects"),
        ({"x": X[0], "y": Y}, r"shape \(4, 5\)"),
        ({"x": np.full((3, 4, 5), np.nan), "y": Y}, "images hold NaN"),
        ({"x": np.full((3, 4, 5), np.inf), "y": Y}, "scale them"),
        ({"x": np.full((3, 4, 5), 16.0), "y": Y}, "scale them"),
        ({"x": np.full((3, 4, 5), -1), "y": Y}, "outside 0 to 255"),
        ({"x": np.full((3, 4, 5), 1j), "y": Y}, "complex128"),
        ({"x": X, "y": Y, "groups": np.array(["a", "", "b"])}, "record 2 has no group"),
    ],
)
def test_refused(tmp_path: Path, arrays: dict[str, NDArray[np.generic]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_dataset(save(tmp_path, **arrays))


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, x=PIXELS, y=Y)
    whole = path.read_bytes()
    for keep in range(0, len(whole), 7):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"d\.npz"):
            read_dataset(path)


def test_damage_inside_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, x=PIXELS)
    whole = bytearray(path.read_bytes())
    whole[80:90] = b"\xff" * 10
    path.write_bytes(whole)
    with pytest.raises(DataError, match="cannot be read"):
        read_inputs(path)


def test_a_forged_shape_allocates_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "|u1", "fortran_order": False, "shape": (1 << 30, 1 << 20, 1 << 10)}
    )
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", buffer.getvalue())
    with pytest.raises(DataError, match="array 'x' is truncated"):
        read_inputs(path)


def test_pneumonia_arrays_are_named_in_the_message(test_data: Path) -> None:
    with pytest.raises(DataError, match=r"no array called .*it has: .*train_images"):
        read_inputs(test_data / "medmnist" / "pneumoniamnist.npz")
