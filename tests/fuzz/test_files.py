"""Broken DICOM files, ONNX files and texts: each is refused or read, in bounded memory and processor time."""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydicom.uid import (
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from pate.data.files.dicom import read_dicom
from pate.data.files.texts import LONGEST, read_texts, usable
from pate.data.odd import Odd
from pate.encoders.graph import checked_graph
from tests.fuzz.campaign import run
from tests.fuzz.mutate import mutated_bytes, mutated_message
from tests.fuzz.targets import Target
from tests.support.encoders import tiny_encoders as tiny
from tests.support.encoders.dicom_files import dicom, grey

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import onnx

    from pate.data.raw import Raw

#: Keywords of the elements whose value is a size, each of 16 bits.
SIZES = ((0x28, 0x02), (0x28, 0x06), (0x28, 0x10), (0x28, 0x11), (0x28, 0x100), (0x28, 0x101),
         (0x28, 0x102), (0x28, 0x103))  # fmt: skip
ODD = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 255, 4_096, 32_768, 65_535)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def another_size(content: bytes, rng: random.Random) -> bytes:
    """Return a file with one of its sizes replaced, in either form of an element."""
    group, element = rng.choice(SIZES)
    made = bytearray(content)
    at = content.find(struct.pack("<HH", group, element), 300)
    if at >= 0:
        made[at + 8 : at + 10] = struct.pack("<H", rng.choice(ODD))
    return bytes(made)


def files(folder: Path, good: bytes, name: str, read: Callable[[Path, Odd | None], Raw]) -> Target:
    """Return what feeds broken copies of a file to its reader, as a party's own or a public one."""

    def make(rng: random.Random) -> Callable[[], object]:
        content = good
        if "DICOM" in name and rng.random() < 0.5:
            content = another_size(content, rng)
        if content == good or rng.random() < 0.5:
            content = mutated_bytes(content, rng)
        path = folder / f"a{name.rpartition(' ')[2]}"
        path.write_bytes(content)
        odd = Odd() if rng.random() < 0.5 else None

        def feed() -> None:
            raw = read(path, odd)
            found = list(raw.stream())
            assert len(found) == raw.count
            for each in found:
                if isinstance(each, str):
                    assert not usable(each)
                elif each is not None:
                    assert each.dtype == np.uint8
                    assert each.shape[2] in (1, 3)

        return feed

    return Target(name, "party", make)


def graphs() -> tuple[Target, ...]:
    """Return what feeds broken ONNX files to the check that comes before any of them is run."""

    def target(name: str, good: onnx.ModelProto, images: bool) -> Target:
        def make(rng: random.Random) -> Callable[[], object]:
            content = good.SerializeToString()
            if rng.random() < 0.5:
                content = mutated_message(good, rng).SerializeToString()
            if content == good.SerializeToString() or rng.random() < 0.5:
                content = mutated_bytes(content, rng)

            def feed() -> None:
                graph = checked_graph(content)
                if images:
                    graph.require_images((1, 3, 8, 8))
                    graph.require_output("features", (2,), 6)
                else:
                    graph.require_texts()
                    graph.require_output("rows", (3,), 6)

            return feed

        return Target(name, "party", make)

    return (
        target("an ONNX file of images", tiny.image_model(), True),
        target("an ONNX file of texts", tiny.text_model(), False),
    )


def targets(folder: Path) -> tuple[Target, ...]:
    image = grey(24, 20, most=255).astype(np.uint8)
    frames = np.stack([grey(9, 8, seed=at) for at in range(3)])
    rows = [("one, two", "a"), ("x" * LONGEST, "b"), ('"three"', "c")]
    csv = "\n".join(["note,class", *('"{}",{}'.format(t.replace('"', '""'), c) for t, c in rows)])
    lines = "\n".join(f'{{"note": "text {at}", "class": {at}}}' for at in range(5))
    pq.write_table(pa.table({"note": [text for text, _ in rows]}), folder / "good.parquet")
    parquet = (folder / "good.parquet").read_bytes()

    def of_dicom(path: Path, odd: Odd | None) -> Raw:
        return read_dicom(path, window=(0, 4095), flat=True, odd=odd)

    def of_texts(path: Path, odd: Odd | None) -> Raw:
        return read_texts(path, "note", odd=odd)

    return tuple(
        files(folder, good, name, of_dicom if "DICOM" in name else of_texts)
        for name, good in (
            ("a DICOM file .dcm", dicom(frames, ExplicitVRLittleEndian, BitsStored=12)),
            ("an implicit DICOM file .dcm", dicom(image, ImplicitVRLittleEndian)),
            ("a DICOM file of runs .dcm", dicom(frames, RLELossless, BitsStored=12)),
            ("a DICOM file with a JPEG .dcm", dicom(image, JPEGBaseline8Bit)),
            ("a DICOM file with a JPEG 2000 .dcm", dicom(image, JPEG2000Lossless)),
            ("texts in CSV .csv", csv.encode()),
            ("texts in JSON lines .jsonl", lines.encode()),
            ("texts in Parquet .parquet", parquet),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(("what", "files"), [("DICOM", 2_000), ("ONNX", 2_000), ("texts", 750)])
def test_broken_files_do_no_harm(what: str, files: int, tmp_path: Path) -> None:
    chosen = graphs() if what == "ONNX" else [t for t in targets(tmp_path) if what in t.name]
    for target in chosen:  # what a reader imports counts for no file
        run((target,), 1, seed=0)
    found = run(chosen, files, seed=1)
    assert {name: tally.faults for name, tally in found.items() if tally.faults} == {}
    # Half of DICOM files and texts are read as a party's own, from which a broken record is left out; nearly
    # all others are refused. No change at all would be refused nowhere, or read nowhere.
    each = files / len(chosen)
    for name, tally in found.items():
        assert 0.012 < tally.outcomes["taken"] / each < 0.68, name
