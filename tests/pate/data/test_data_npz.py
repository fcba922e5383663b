"""Archives of arrays and IDX files."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.data.files.pictures import windowed
from pate.data.limits import MAX_BYTES
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images
from pate.errors import DataError, SchemaError
from tests.support.readings import groups_of, pixels_of

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 4, 5), dtype=np.uint8)


def save(folder: Path, **arrays: NDArray[np.generic]) -> Path:
    path = folder / "d.npz"
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y"), ("data", "y")])
def test_keys(tmp_path: Path, images: str, labels: str) -> None:
    path = save(tmp_path, **{images: PIXELS, labels: np.array([[2], [0], [10]], np.uint8)})
    for place in (path, tmp_path):  # the file, or a folder with only this file
        data = read_dataset(place)
        assert data.classes == ("0", "2", "10")
        assert data.labels.tolist() == [1, 0, 2]
        assert (pixels_of(data)[..., 0] == PIXELS).all()


def test_a_public_set_has_no_labels_and_floats_are_scaled_and_back_again(tmp_path: Path) -> None:
    by_columns = np.asfortranarray(PIXELS)
    for images in (PIXELS, by_columns, PIXELS / 255, (PIXELS / 255).astype(np.float32)):
        public = read_inputs(save(tmp_path, x=images, y=np.array([np.nan])))
        assert (pixels_of(public)[..., 0] == PIXELS).all()


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
    assert groups_of(data) == ["7", "7", "8"]
    assert read_dataset(path, classes=["ill", "well"]).labels.tolist() == [0, 1, 0]
    with pytest.raises(SchemaError, match="'ill'"):
        read_dataset(path, classes=["well", "dead"])


def test_text_labels_and_named_arrays(tmp_path: Path) -> None:
    path = save(tmp_path, x=PIXELS, kind=np.array(["b", "a", "b"]), who=np.array(["p", "q", "p"]))
    data = read_dataset(path, label="kind", group="who")
    assert data.classes == ("a", "b")
    assert groups_of(data) == ["p", "q", "p"]


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
        ({"x": np.full((3, 4, 5), 16.5), "y": Y}, "scale them"),
        ({"x": np.full((3, 4, 5), -1), "y": Y}, "outside 0 to 255"),
        ({"x": np.full((3, 4, 5), 1j), "y": Y}, "complex128"),
        (
            {"x": X, "y": Y, "groups": np.array(["a", "", "b"])},
            "record 2 has no value in the group",
        ),
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
    with pytest.raises(DataError, match=r"array 'x' cannot be read \(it is of shape"):
        read_inputs(path)


def npy(array: NDArray[np.generic]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_what_is_checked_is_what_is_read(tmp_path: Path) -> None:
    """Two members for one array: a reader that looks one up again may find the other."""
    path = tmp_path / "d.npz"
    for second in ("x", "x.npy"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", npy(PIXELS))
            archive.writestr(second, b"x" * 4096)
        with pytest.raises(DataError, match="two members for the array 'x'"):
            read_inputs(path)


def test_a_member_that_is_another_on_its_own_head_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy(PIXELS))
    content = bytearray(path.read_bytes())
    content[content.find(b"x.npy")] = ord("y")
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        read_inputs(path)


@pytest.mark.parametrize(
    ("at", "value", "why"), [(8, 1, "encrypted"), (10, 99, "method"), (None, 9, "version")]
)
def test_members_that_nothing_reads(at: int | None, value: int, why: str, tmp_path: Path) -> None:
    path, array = tmp_path / "d.npz", bytearray(npy(PIXELS))
    if at is None:
        array[6] = value
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", bytes(array))
    content = bytearray(path.read_bytes())
    if at is not None:
        content[content.find(b"PK\x01\x02") + at] |= value
        content[at - 2] |= value
    path.write_bytes(content)
    with pytest.raises(DataError, match=why):
        read_inputs(path)


def test_odd_records_are_left_out_one_by_one(tmp_path: Path) -> None:
    images = np.repeat(PIXELS[:1] / 255, 6, axis=0)
    images[1], images[2] = np.nan, 7.5
    labels = np.array(["a", "a", "a", "", "z", "b"])
    path = save(tmp_path, images=images, labels=labels)
    odd = Odd()
    assert read_dataset(path, classes=["a", "b"], odd=odd).labels.tolist() == [0, 1]
    assert sorted(line.partition(" (")[2] for line in odd.lines()) == [
        "record 2) takes no part: images hold NaN",
        "record 3) takes no part: pixels lie outside 0 to 1",
        "record 4) takes no part: it has no label",
        "record 5) takes no part: its label is not in the class list",
    ]


def test_a_label_beyond_the_classes_of_its_file_is_named_so(tmp_path: Path) -> None:
    path = save(tmp_path, images=PIXELS, labels=np.array([0, 2, 1]), classes=np.array(["a", "b"]))
    odd = Odd()
    assert read_dataset(path, classes=["a", "b", "2"], odd=odd).labels.tolist() == [0, 1]
    assert odd.columns() == [
        "column 'labels' has cells that count as missing: each lies outside the classes of its file"
    ]


KINDS = (np.uint8, np.uint16, np.int64, np.float32, np.float64)


@pytest.mark.parametrize("window", [None, (0, 4080), (-1024, 3071)])
def test_whole_numbers_are_read_alike_whatever_type_their_array_has(
    window: tuple[int, int] | None, tmp_path: Path
) -> None:
    """One missing pixel makes floats of all, and one of more than 8 bits makes them wider."""
    dark = np.stack([PIXELS[0], PIXELS[0] % 2, PIXELS[0] * 0])
    want = windowed(dark, window) if window else np.stack([dark[0], dark[1] * 255, dark[2]])
    for kind in KINDS:
        path = save(tmp_path, x=dark.astype(kind), y=Y[: len(dark)])
        found = read_dataset(path, window=window, odd=Odd()).inputs
        assert (pixels_of(found)[..., 0] == want).all(), kind


def test_a_window_is_for_all_whole_numbers_of_a_party(tmp_path: Path) -> None:
    """An image of 12 bits may be dark, so that all its values would fit in 8."""
    dark = PIXELS.astype(np.uint16)
    path = save(tmp_path, x=np.concatenate([dark, dark[:1] * 16]), y=np.array([0, 1, 0, 1]))
    odd = Odd()
    found = read_dataset(path, window=(0, 4080), odd=odd).inputs
    assert (pixels_of(found)[:3, ..., 0] == windowed(dark, (0, 4080))).all()
    assert pixels_of(found)[:3].max() < 17
    assert not odd.lines()
    # A public set has no party's records: there the array's type may say how deep it is.
    public = read_inputs(path, window=(0, 4080))
    assert (pixels_of(public) == pixels_of(found)).all()
    public = read_inputs(save(tmp_path, x=PIXELS), window=(0, 4080))
    assert isinstance(public, Images)
    assert (pixels_of(public)[..., 0] == PIXELS).all()


def test_an_array_of_8_bits_in_a_campaign_with_a_window_is_noted(tmp_path: Path) -> None:
    path, odd = save(tmp_path, x=PIXELS, y=Y), Odd()
    read_dataset(path, window=(0, 4080), odd=odd)
    (line,) = odd.lines()
    assert line.startswith("3 records (record 1, record 2, record 3): each has 8 bits, and the")
    assert "campaign's window 0 to 4080 is for all whole numbers of an .npz" in line


def test_deep_whole_numbers_need_a_window(tmp_path: Path) -> None:
    path = save(tmp_path, x=PIXELS.astype(np.uint16) * 16)
    with pytest.raises(DataError, match="--window LOW HIGH"):
        read_inputs(path)
    public = read_inputs(path, window=(0, 4080))
    assert (pixels_of(public)[..., 0] == PIXELS).all()


@pytest.mark.parametrize("form", ["{}_images {}_labels", "x_{} y_{}", "X_{} y_{}"])
def test_a_set_that_is_saved_in_parts(tmp_path: Path, form: str) -> None:
    """A party's own records are those of train, or of the labels that it names; no other choice is made."""
    parts = {part: form.format(part, part).split() for part in ("train", "val", "test")}
    images, labels = parts["test"]
    arrays = {images: PIXELS[:2], labels: np.array([[3], [4]])}
    alone = save(tmp_path, **arrays)
    assert read_dataset(alone).classes == ("3", "4")
    assert len(read_inputs(alone)) == 2
    for part, label in (("val", 5), ("train", 6)):
        arrays |= {parts[part][0]: PIXELS, parts[part][1]: np.array([label] * 3)}
        path, odd = save(tmp_path, **arrays), Odd()
        with pytest.raises(
            DataError, match=r"several sets of images .*: save one to a file of its own"
        ):
            read_inputs(path)
        with pytest.raises(DataError, match=f"name the labels of one, such as --label {labels}"):
            read_dataset(path)
        assert read_dataset(path, label=labels, odd=odd).classes == ("3", "4")
        if part == "val":
            with pytest.raises(DataError, match="name the labels of one"):
                read_dataset(path, odd=odd)
    odd = Odd()
    assert read_dataset(path, odd=odd).classes == ("6",)
    (line,) = odd.lines()
    assert line.startswith(f"the images are {parts['train'][0]}, not {parts['val'][0]}")


def test_the_parts_of_pneumoniamnist(test_data: Path) -> None:
    path = test_data / "medmnist" / "pneumoniamnist.npz"
    with pytest.raises(DataError, match=r"\(train_images, val_images, test_images\): save one"):
        read_inputs(path)
    assert len(read_dataset(path, odd=Odd())) == 4708
    assert len(read_dataset(path, label="test_labels")) == 624


def images_bytes(pixels: NDArray[np.uint8]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in pixels.shape)
    return b"\0\0\x08\x03" + sizes + pixels.tobytes()


def labels_bytes(labels: list[int]) -> bytes:
    return b"\0\0\x08\x01" + len(labels).to_bytes(4, "big") + bytes(labels)


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


def test_every_truncation_of_idx_is_refused(pair: Path) -> None:
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
