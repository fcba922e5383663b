"""The readers of files: broken copies of good files for each, of all encodings that they know."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pydicom
from PIL import Image
from pydicom.uid import (
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from pate.data.encoded import Raw
from pate.data.files import images
from pate.data.files.dicom import read_dicom
from pate.data.files.pictures import read_picture
from pate.data.files.texts import LONGEST, read_texts, usable_text
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.encoders.graph import checked_graph
from tests.fuzz.campaign import Target
from tests.fuzz.mutate import mutated_bytes, mutated_message
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.dicom_files import dicom, grey

#: Keywords of the elements whose value is a size, each of 16 bits.
SIZES = ((0x28, 0x02), (0x28, 0x06), (0x28, 0x10), (0x28, 0x11), (0x28, 0x100), (0x28, 0x101),
         (0x28, 0x102), (0x28, 0x103))  # fmt: skip
ODD = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 4_096, 32_768, 65_535)
#: Most bytes of a file of pydicom's own that is broken.
MOST_BYTES = 300_000


def another_size(content: bytes, rng: random.Random) -> bytes:
    """Return a DICOM file with one of its sizes replaced, in either form of an element."""
    group, element = rng.choice(SIZES)
    made = bytearray(content)
    at = content.find(struct.pack("<HH", group, element), 300)
    if at >= 0:
        made[at + 8 : at + 10] = struct.pack("<H", rng.choice(ODD))
    return bytes(made)


def flipped(content: bytes, rng: random.Random) -> bytes:
    """Return a file of the same length with one to three bytes replaced: what frames it mostly holds."""
    made = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        made[rng.randrange(len(made))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    return bytes(made)


def target(
    folder: Path,  # to write to, a file at a time
    seeds: Sequence[bytes],  # good files
    name: str,  # whose last word is the suffix of the file
    # given the path, and what collects odd records or None
    read: Callable[[Path, Odd | None], object],
    # another way to break a file, of half of them
    change: Callable[[bytes, random.Random], bytes] = mutated_bytes,
) -> Target:
    """Return what feeds broken copies of files to their reader, as a party's own or a public one."""

    def make(rng: random.Random) -> Callable[[], object]:
        good = content = rng.choice(seeds)
        if rng.random() < 0.5:
            content = change(content, rng)
        if content == good or rng.random() < 0.5:
            content = mutated_bytes(content, rng)
        path = folder / f"a{name.rpartition(' ')[2]}"
        path.write_bytes(content)
        odd = Odd() if rng.random() < 0.5 else None
        return lambda: read(path, odd)

    return Target(name, "party", make)


def _stream(raw: Raw) -> None:
    found = list(raw.stream())
    assert len(found) == raw.count
    for each in found:
        if isinstance(each, str):
            assert not usable_text(each)
        elif each is not None:
            assert each.dtype == np.uint8
            assert each.shape[2] in (1, 3)


def dicom_files(folder: Path) -> tuple[Target, ...]:
    image = grey(24, 20, most=255).astype(np.uint8)
    frames = np.stack([grey(9, 8, seed=at) for at in range(3)])

    def read(path: Path, odd: Odd | None) -> None:
        _stream(read_dicom(path, window=(0, 4095), flat=True, odd=odd))

    def of(name: str, *seeds: bytes) -> Target:
        return target(folder, seeds, name, read, another_size)

    # Those that come with the library: scanners of many makers, and files that once broke a reader.
    real = sorted((Path(pydicom.__file__).parent / "data" / "test_files").glob("*.dcm"))
    return (
        of("a DICOM file .dcm", dicom(frames, ExplicitVRLittleEndian, BitsStored=12)),
        of("an implicit DICOM file .dcm", dicom(image, ImplicitVRLittleEndian)),
        of("a DICOM file of runs .dcm", dicom(frames, RLELossless, BitsStored=12)),
        of("a DICOM file with a JPEG .dcm", dicom(image, JPEGBaseline8Bit)),
        of("a DICOM file with a JPEG 2000 .dcm", dicom(image, JPEG2000Lossless)),
        of(
            "DICOM files of other makers .dcm",
            *(path.read_bytes() for path in real if path.stat().st_size <= MOST_BYTES),
        ),
    )


def parquet_files(folder: Path) -> tuple[Target, ...]:
    """Each encoding of each kind of column, each compression, both versions of pages."""
    rows = 40
    moment = datetime(2020, 1, 2, 3, 4, 5, 60, tzinfo=UTC)
    table = pa.table({
        "whole": pa.array([None if at % 9 == 0 else at * at for at in range(rows)], pa.int64()),
        "real": pa.array([at / 7 for at in range(rows)], pa.float64()),
        "half": pa.array([at / 3 for at in range(rows)], pa.float32()),
        "name": pa.array([None if at % 7 == 0 else f"name {at % 5}" for at in range(rows)]),
        "bytes": pa.array([bytes([65 + at % 20]) * (at % 4) for at in range(rows)], pa.binary()),
        "true": pa.array([at % 2 == 0 for at in range(rows)]),
        "when": pa.array([moment] * rows),
        "day": pa.array([moment.date()] * rows),
        "exact": pa.array([Decimal(at) / 4 for at in range(rows)], pa.decimal128(9, 2)),
        "none": pa.nulls(rows),
        "class": pa.array([f"c{at % 3}" for at in range(rows)]),
    })  # fmt: skip
    numbers, texts = ("whole", "when", "day"), ("name", "bytes", "class")
    plain = dict.fromkeys(table.column_names, "PLAIN")
    encodings = [
        plain,
        plain | dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
        plain | dict.fromkeys(texts, "DELTA_BYTE_ARRAY"),
        plain | dict.fromkeys(texts, "DELTA_LENGTH_BYTE_ARRAY"),
        plain | dict.fromkeys(("real", "half", "whole"), "BYTE_STREAM_SPLIT") | {"true": "RLE"},
        None,  # a dictionary
    ]

    def written(encoding: dict[str, str] | None, compression: str, page: str) -> bytes:
        held = io.BytesIO()
        pq.write_table(
            table, held, compression=compression, data_page_version=page, row_group_size=25,
            use_dictionary=encoding is None, column_encoding=encoding, write_page_checksum=page == "2.0",
        )  # fmt: skip
        return held.getvalue()

    def read(path: Path, odd: Odd | None) -> None:
        if odd is None:
            read_inputs(path)
        else:
            read_dataset(path, label="class", odd=odd)

    return tuple(
        target(
            folder,
            [written(each, compression, page) for each in encodings for page in ("1.0", "2.0")],
            f"a Parquet table ({compression}) .parquet",
            read,
            flipped,
        )
        for compression in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
    )


def pictures(folder: Path) -> tuple[Target, ...]:
    """Every format that Pillow writes, by the name of a picture."""
    Image.init()
    shades = np.random.default_rng(0).integers(0, 256, (24, 20, 3)).astype(np.uint8)

    def written(kind: str) -> list[bytes]:
        made, exif = [], Image.Exif()
        exif[0x0112] = 6  # it lies on its side
        for mode in ("RGB", "L", "P", "1", "RGBA", "I;16", "CMYK"):
            held = io.BytesIO()
            try:
                Image.fromarray(shades).convert(mode).save(held, kind, exif=exif)
            except (OSError, ValueError, KeyError):  # not of this mode
                continue
            made.append(held.getvalue())
        return made

    def read(path: Path, odd: Odd | None) -> None:
        images.read_fitting([path], odd or Odd(), None, (0, 4095))
        assert read_picture(path, (0, 4095)).pixels.dtype == np.uint8

    own = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
    others = [each for kind in sorted({*Image.SAVE} - {*own, "PDF"}) for each in written(kind)]
    return (
        *(target(folder, written(kind), f"a picture ({kind}) .png", read, flipped) for kind in own),
        target(folder, others, "a picture of another format .png", read),
    )


def texts(folder: Path) -> tuple[Target, ...]:
    rows = [("one, two", "a"), ("x" * LONGEST, "b"), ('"three"', "c")]
    csv = "\n".join(["note,class", *('"{}",{}'.format(t.replace('"', '""'), c) for t, c in rows)])
    lines = "\n".join(f'{{"note": "text {at}", "class": {at}}}' for at in range(5))
    parquet = io.BytesIO()
    pq.write_table(pa.table({"note": [text for text, _ in rows]}), parquet)

    def read(path: Path, odd: Odd | None) -> None:
        _stream(read_texts(path, "note", odd=odd))

    return (
        target(folder, [csv.encode()], "texts in CSV .csv", read),
        target(folder, [lines.encode()], "texts in JSON lines .jsonl", read),
        target(folder, [parquet.getvalue()], "texts in Parquet .parquet", read),
    )


def graphs(_: Path) -> tuple[Target, ...]:
    """Return what feeds broken ONNX files to the check that comes before any of them is run."""

    def of(name: str, good: onnx.ModelProto, pixels: bool) -> Target:
        def make(rng: random.Random) -> Callable[[], object]:
            content = good.SerializeToString()
            if rng.random() < 0.5:
                content = mutated_message(good, rng).SerializeToString()
            if content == good.SerializeToString() or rng.random() < 0.5:
                content = mutated_bytes(content, rng)

            def feed() -> None:
                graph = checked_graph(content)
                if pixels:
                    graph.require_images((1, 3, 8, 8))
                    graph.require_output("features", (2,), 6)
                else:
                    graph.require_texts()
                    graph.require_output("rows", (3,), 6)

            return feed

        return Target(name, "party", make)

    return (
        of("an ONNX file of images", tiny.image_model(), True),
        of("an ONNX file of texts", tiny.text_model(), False),
    )


#: By what they are called on the command line.
KINDS = {
    "dicom": dicom_files, "parquet": parquet_files, "pictures": pictures, "onnx": graphs, "texts": texts,
}  # fmt: skip
