from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.data.limits import MAX_BYTES
from pate.data.read import read_dataset, read_inputs
from pate.errors import DataError
from tests.support.readings import pixels_of


def images_bytes(pixels: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in pixels.shape)
    return b"\0\0\x08\x03" + sizes + pixels.tobytes()


def labels_bytes(labels: list[int]) -> bytes:
    return b"\0\0\x08\x01" + len(labels).to_bytes(4, "big") + bytes(labels)


PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)


@pytest.fixture(params=["", ".gz"])
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    pack = gzip.compress if request.param else bytes
    (tmp_path / f"a-images-idx3-ubyte{request.param}").write_bytes(pack(images_bytes(PIXELS)))
    (tmp_path / f"a-labels-idx1-ubyte{request.param}").write_bytes(pack(labels_bytes([7, 10, 9])))
    return tmp_path


def test_a_folder_with_one_pair(pair: Path) -> None:
    data = read_dataset(pair)
    assert data.classes == ("7", "9", "10")
    assert data.labels.tolist() == [0, 2, 1]
    assert (pixels_of(data)[..., 0] == PIXELS).all()


def test_names_with_a_dot(tmp_path: Path) -> None:
    (tmp_path / "a-images.idx3-ubyte").write_bytes(images_bytes(PIXELS))
    for labels, pack in (("a-labels.idx1-ubyte", bytes), ("a-labels-idx1-ubyte.gz", gzip.compress)):
        (tmp_path / labels).write_bytes(pack(labels_bytes([7, 10, 9])))
        assert read_dataset(tmp_path).classes == ("7", "9", "10")
        (tmp_path / labels).unlink()
    assert len(read_inputs(tmp_path / "a-images.idx3-ubyte")) == 3


def test_inputs_need_no_labels(pair: Path) -> None:
    for file in pair.glob("*labels*"):
        file.unlink()
    assert len(read_inputs(pair)) == 3
    with pytest.raises(DataError, match="no labels beside it"):
        read_dataset(pair)


def test_every_truncation_is_refused(pair: Path) -> None:
    [file] = pair.glob("*images*")
    whole = file.read_bytes()
    for keep in range(len(whole)):
        file.write_bytes(whole[:keep])
        with pytest.raises(DataError, match="images-idx3"):
            read_inputs(file)


def test_a_forged_header_allocates_nothing(tmp_path: Path) -> None:
    forged = b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 3
    for suffix, content in (("", forged), (".gz", gzip.compress(forged))):
        file = tmp_path / f"a-images-idx3-ubyte{suffix}"
        file.write_bytes(content)
        with pytest.raises(DataError, match="truncated"):
            read_inputs(file)


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    # Large enough on disk that its header could be true, and more than may be unpacked.
    size = MAX_BYTES + 1
    file = tmp_path / "a-images-idx3-ubyte.gz"
    file.write_bytes(
        gzip.compress(b"\0\0\x08\x03" + (1).to_bytes(4, "big") + (1 << 17).to_bytes(4, "big") * 2)
    )
    with file.open("r+b") as grown:
        grown.truncate(2 * size // 1032 + 1000)
    with pytest.raises(DataError, match="at most"):
        read_inputs(file)


def test_files_of_other_kinds_or_lengths(tmp_path: Path) -> None:
    whole = images_bytes(PIXELS)
    for name, content, why in (
        ("a-images-idx3-ubyte", whole + b"x", "longer than its header says"),
        (
            "a-images-idx3-ubyte",
            labels_bytes([1] * 40),
            "not an IDX file of unsigned bytes with 3 axes",
        ),
        ("b-images-idx3-ubyte.gz", b"no gzip, but long enough for a header", "not a gzip file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=why):
            read_inputs(tmp_path / name)


def test_counts_must_agree(tmp_path: Path) -> None:
    (tmp_path / "a-images-idx3-ubyte").write_bytes(images_bytes(PIXELS))
    (tmp_path / "a-labels-idx1-ubyte").write_bytes(labels_bytes([1, 2]))
    with pytest.raises(DataError, match="3 inputs and 2 labels"):
        read_dataset(tmp_path)


def test_torchvision_layout_takes_training_images_and_the_unpacked_twin(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, many in (("train", 3), ("t10k", 2)):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(images_bytes(PIXELS[:many]))
        (raw / f"{part}-images-idx3-ubyte.gz").write_bytes(b"never read")
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels_bytes([0, 1, 2][:many]))
    assert len(read_dataset(tmp_path)) == 3
    with pytest.raises(DataError, match="several data files"):
        read_inputs(tmp_path)
    assert len(read_inputs(raw / "t10k-images-idx3-ubyte")) == 2


def test_mnist(test_data: Path) -> None:
    data = read_dataset(test_data / "mnist")
    assert len(data) == 60000
    assert np.bincount(data.labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    public = read_inputs(test_data / "mnist" / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz")
    assert public.schema() == "images 28x28x1"
    assert len(public) == 10000
