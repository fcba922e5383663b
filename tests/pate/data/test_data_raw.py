"""Raw records become embeddings one at a time, each by itself; without an encoder nothing changes."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pate.data.cells import Reading
from pate.data.embeddings import Embeddings
from pate.data.encoded import Record
from pate.data.odd import DeepImagesError, Odd, judged, usable
from pate.data.read import read_dataset, read_inputs, require_there
from pate.data.schema import Schema
from pate.errors import DataError, SchemaError, UsageError
from tests.pate.data.test_data_texts import made as ready_made
from tests.support.encoders.dicom_files import dicom, grey, write
from tests.support.encoders.embedded import embedding_arrays
from tests.support.readings import answers_of, groups_of, rows_of

DIGEST = "cd" * 32


class Hashing:
    """An encoder that makes a row of each record's digest, of records it does not keep."""

    def __init__(self, source: str = "images", digest: str = DIGEST, refused: str = "") -> None:
        self.source, self.digest, self.width = source, digest, 8
        self.refused, self.words = refused, "hashing"
        self.seen: list[tuple[int, ...]] = []

    def row(self, record: Record) -> NDArray[np.int16]:
        held = record.encode() if isinstance(record, str) else record.tobytes()
        return np.frombuffer(hashlib.sha256(held).digest()[:16], dtype="<i2").astype(np.int16)

    def embed(
        self, records: Iterable[Record], total: int, *, odd: Odd | None, place: Callable[[int], str]
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        values, good = [], []
        for at, record in enumerate(records):
            self.seen.append((len(record),) if isinstance(record, str) else record.shape)
            good.append(not (isinstance(record, str) and record == self.refused))
            if not good[-1] and odd is not None:
                odd.record("the encoder refuses it", place(at))
            values.append(self.row(record))
        return (
            np.stack(values) if values else np.zeros((0, self.width), dtype=np.int16),
            np.array(good, dtype=np.bool_),
        )


def picture(path: Path, shape: tuple[int, ...], value: int = 9) -> NDArray[np.uint8]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full(shape, value, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def test_images_of_any_sizes_need_no_common_one(tmp_path: Path) -> None:
    first = picture(tmp_path / "a" / "1.png", (30, 20))
    second = picture(tmp_path / "b" / "2.png", (7, 90, 3))
    encoder = Hashing()
    data = read_dataset(tmp_path, encoder=encoder)
    assert encoder.seen == [(30, 20, 1), (7, 90, 3)]
    assert rows_of(data).tolist() == [encoder.row(each).tolist() for each in (first, second)]
    assert data.classes == ("a", "b")
    assert data.inputs.schema() == f"embeddings 8 by {DIGEST} of images"
    flat = read_inputs(tmp_path / "a", encoder=encoder)
    assert rows_of(flat).tolist() == [encoder.row(first).tolist()]
    with pytest.raises(DataError, match="bring all images to one size"):
        read_dataset(tmp_path)


def test_memory_holds_one_image_at_a_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "a").mkdir()
    one = rng.integers(0, 256, (224, 224, 3)).astype(np.uint8)
    for at in range(60):
        Image.fromarray(one[:, :: (-1) ** at]).save(tmp_path / "a" / f"{at}.jpg")

    class Counting(Hashing):
        def row(self, record: Record) -> NDArray[np.int16]:
            return np.ones(8, dtype=np.int16)

    tracemalloc.start()
    read_inputs(tmp_path, encoder=Counting())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * one.nbytes  # all 60 together have 60


def test_a_damaged_image_takes_only_itself_out(tmp_path: Path) -> None:
    good = [picture(tmp_path / "a" / f"{at}.png", (4, 5 + at)) for at in range(3)]
    picture(tmp_path / "b" / "1.png", (4, 4))
    (tmp_path / "a" / "1.png").write_bytes(b"no image")
    encoder, odd = Hashing(), Odd()
    data = read_dataset(tmp_path, encoder=encoder, odd=odd)
    assert rows_of(data)[:2].tolist() == [encoder.row(good[at]).tolist() for at in (0, 2)]
    assert data.labels.tolist() == [0, 0, 1]
    assert odd.lines() == [
        "1 record (a/1.png) takes no part: the image is not an image that can be read"
    ]
    with pytest.raises(DataError, match=r"1\.png is not an image"):
        read_dataset(tmp_path, encoder=encoder)
    with pytest.raises(DataError, match=r"1\.png is not an image"):
        read_inputs(tmp_path, encoder=encoder)


def texts(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["note,class,who", *rows]) + "\n")
    return path


def test_texts_and_what_the_encoder_refuses(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv", "one,x,p", ",x,p", "no,y,q", "two,y,", "three,y,q", "four,,q")
    encoder, odd = Hashing("texts", refused="no"), Odd()
    data = read_dataset(path, encoder=encoder, text="note", label="class", group="who", odd=odd)
    assert rows_of(data).tolist() == [encoder.row(t).tolist() for t in ("one", "three")]
    assert data.labels.tolist() == [0, 1]
    assert groups_of(data) == ["p", "q"]
    assert sorted(odd.lines()) == [
        "1 record (line 3) takes no part: the text is empty",
        "1 record (line 4) takes no part: the encoder refuses it",
        "1 record (line 5) takes no part: its patient (--group) is missing",
        "1 record (line 7) takes no part: it has no label",
    ]


def test_several_labels_and_numbers_of_texts(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv", "one,1,5", "two,0,6")
    encoder = Hashing("texts")
    data = read_dataset(path, encoder=encoder, text="note", labels=["class"])
    assert answers_of(data) == [[True], [False]]
    data = read_dataset(path, encoder=encoder, text="note", number="who")
    assert answers_of(data) == [5.0, 6.0]


def test_dicom_frames_have_groups_and_the_campaigns_window(tmp_path: Path) -> None:
    for at, patient in enumerate("xyz"):
        content = dicom(grey(seed=at), BitsStored=12, PatientID=patient)
        write(tmp_path / ("ill" if at else "well") / f"{at}.dcm", content)
    encoder = Hashing()
    line = f"embeddings 8 by {DIGEST} of images window 0 4095"
    data = read_dataset(tmp_path, encoder=encoder, schema=Schema.parse(line), odd=Odd())
    assert data.inputs.schema() == line
    assert groups_of(data) == ["y", "z", "x"]
    assert data.classes == ("ill", "well")
    # Before the campaign is known there is no window, and a party waits for it.
    with pytest.raises(DeepImagesError):
        read_dataset(tmp_path, encoder=encoder, odd=Odd())
    public = read_inputs(tmp_path, encoder=encoder, window=(0, 4095))
    assert public.schema() == line


def test_archives_are_read_by_the_encoder_unless_they_hold_embeddings(tmp_path: Path) -> None:
    pixels = np.arange(2 * 6 * 5, dtype=np.uint8).reshape(2, 6, 5)
    path, encoder = tmp_path / "a.npz", Hashing()
    np.savez(path, images=pixels, labels=["x", "y"], groups=["p", "q"])
    data = read_dataset(path, encoder=encoder)
    assert rows_of(data).tolist() == [encoder.row(each).tolist() for each in pixels]
    assert data.groups is not None
    assert isinstance(read_inputs(path, encoder=encoder), Embeddings)
    held = ready_made()
    np.savez(path, **embedding_arrays(held), allow_pickle=False)
    same = Hashing(held.source, held.encoder)
    same.width = held.values.shape[1]
    assert read_inputs(path, encoder=same).schema() == held.schema()
    with pytest.raises(SchemaError, match=f"{held.encoder}.* --encoder is hashing, .*{DIGEST}"):
        read_inputs(path, encoder=encoder)


def test_deep_archives_are_read_by_the_window(tmp_path: Path) -> None:
    path, encoder = tmp_path / "a.npz", Hashing()
    deep = np.stack([grey(seed=at) for at in range(3)])
    np.savez(path, images=deep, labels=["x", "y", "x"])
    public = read_inputs(path, encoder=encoder, window=(0, 4095))
    own = read_dataset(path, encoder=encoder, window=(0, 4095), odd=Odd())
    assert (rows_of(own) == rows_of(public)).all()
    with pytest.raises(DeepImagesError):
        read_dataset(path, encoder=encoder, odd=Odd())


def test_the_campaigns_encoder_is_the_one_that_reads(tmp_path: Path) -> None:
    picture(tmp_path / "a" / "1.png", (3, 3))
    schema = Schema.parse(f"embeddings 8 by {'ee' * 32} of images")
    with pytest.raises(SchemaError, match=f"the encoder eeee.* --encoder is hashing, .*{DIGEST}"):
        read_dataset(tmp_path, encoder=Hashing(), schema=schema)
    # Of a campaign without one the images are read as before.
    data = read_dataset(tmp_path, encoder=Hashing(), schema=Schema.parse("images 3x3x1"))
    assert data.inputs.schema() == "images 3x3x1"


def test_texts_and_dicom_files_without_an_encoder_say_what_to_do(tmp_path: Path) -> None:
    table = texts(tmp_path / "a.csv", "one,x,p")
    for read in (read_dataset, read_inputs):
        with pytest.raises(UsageError, match="a campaign of texts needs one, --encoder DIR"):
            read(table, text="note")
    with pytest.raises(UsageError, match="a campaign of DICOM files needs one"):
        read_dataset(tmp_path, dicom_labels=table)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text("{}")
    (tmp_path / "notes" / "ill").mkdir(parents=True)
    (tmp_path / "notes" / "ill" / "1.txt").write_text("one")
    write(tmp_path / "scans" / "ill" / "IM1", dicom(grey()))
    for path, what, more in (
        ("lines/a.jsonl", "texts", "; a table may be CSV or Parquet"),
        ("notes", "texts", ""),
        ("scans", "DICOM files", ""),
        ("scans/ill/IM1", "DICOM files", ""),
    ):
        require_there(tmp_path / path)
        said = f"holds {what}, which are read by an encoder only: --encoder DIR{more}$"
        with pytest.raises(DataError, match=said):
            read_dataset(tmp_path / path)


def test_options_go_with_the_encoder_and_the_file(tmp_path: Path) -> None:
    path = texts(tmp_path / "a.csv", "one,x,p")
    of_texts, of_images = Hashing("texts"), Hashing()
    with pytest.raises(UsageError, match="this one takes images"):
        read_inputs(path, encoder=of_images, text="note")
    with pytest.raises(UsageError, match="the encoder takes texts"):
        read_inputs(path, encoder=of_texts, text="note", window=(0, 9))
    for encoder, options, error in (
        (of_texts, {}, "--text"), (of_texts, {"text": "note"}, "--label"),
        (of_images, {"label": "class"}, r"--encoder is for images, and .* is a table"),
    ):  # fmt: skip
        more: Any = options
        with pytest.raises(UsageError, match=error):
            read_dataset(path, encoder=encoder, **more)


class Panic(BaseException):
    """What a decoder written in Rust raises; it is no Exception."""


@pytest.mark.parametrize("error", [DataError, RuntimeError, MemoryError, RecursionError, Panic])
def test_whatever_ends_the_reading_of_a_record_is_of_that_record(
    error: type[BaseException],
) -> None:
    def read() -> int:
        raise error("of what is in it")

    odd = Odd()
    assert usable(judged(read), odd, "file 3") is None
    assert odd.lines() == [f"1 record (file 3) takes no part: it cannot be read ({error.__name__})"]
    with pytest.raises(DataError):
        usable(judged(read), None, "file 3")

    def stopped() -> int:
        raise KeyboardInterrupt  # who stops the program stops it

    with pytest.raises(KeyboardInterrupt):
        judged(stopped)


@pytest.mark.parametrize("encoder", [None, Hashing()])
def test_numbers_of_an_archive_have_a_point_whatever_its_owner_writes(
    encoder: Hashing | None, tmp_path: Path
) -> None:
    path = tmp_path / "records.npz"
    days = np.array([1.125, 2.5])
    np.savez(path, images=np.arange(32, dtype=np.uint8).reshape(2, 4, 4), days=days)
    reading = Reading.of("comma", [])
    data = read_dataset(path, number="days", odd=Odd(), encoder=encoder, reading=reading)
    assert answers_of(data) == days.tolist()
