from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pate.data.cells import Reading
from pate.data.files.dicom import read_dicom
from pate.data.files.texts import read_texts
from pate.data.memory import records_in
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Table
from pate.errors import DataError
from tests.support.encoders.dicom_files import dicom, grey, write
from tests.support.readings import groups_of

#: Ways to write three classes, the last of which is none.
NAMES = [
    "benign ", "Mu\N{COMBINING DIAERESIS}de", "M\u00fcde", "01", "1.0", " benign", "NA", "away",
]  # fmt: skip
CLASSES = ["benign", "M\u00fcde", "M\u00fcde", "1", "1", "benign"]
AWAY = Reading.of("point", ["Away"])


def in_csv(folder: Path) -> list[str]:
    (folder / "h.csv").write_text("x,y \n" + "".join(f"1,{name}\n" for name in NAMES))
    data = read_dataset(folder / "h.csv", label=" y", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_parquet(folder: Path) -> list[str]:
    pq.write_table(pa.table({"x": [1] * len(NAMES), "y ": NAMES}), folder / "h.parquet")
    data = read_dataset(folder / "h.parquet", label="y", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_archive(folder: Path) -> list[str]:
    np.savez(
        folder / "h.npz", images=np.zeros((len(NAMES), 2, 2), np.uint8), labels=np.array(NAMES)
    )
    data = read_dataset(folder / "h.npz", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_folders(folder: Path) -> list[str]:
    for name in NAMES:
        (folder / name).mkdir()
        Image.new("L", (2, 2)).save(folder / name / "x.png")
    data = read_dataset(folder, odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_lines(folder: Path) -> list[str]:
    lines = (json.dumps({"text": "a", " y": name}) for name in NAMES)
    (folder / "h.jsonl").write_text("\n".join(lines))
    raw = read_texts(folder / "h.jsonl", "text", label="y", odd=Odd(), reading=AWAY)
    return [name for name in raw.names or () if name not in ("", "NA")]


def in_headers(folder: Path) -> list[str]:
    for at, name in enumerate(NAMES):
        write(
            folder / "a" / f"{at}.dcm",
            dicom(grey(4, 4), PatientID=name, SpecificCharacterSet="ISO_IR 192"),
        )
    raw = read_dicom(folder, odd=Odd(), reading=AWAY)
    return [name for name in groups_of(raw) if name]


@pytest.mark.parametrize(
    "names", [in_csv, in_parquet, in_archive, in_folders, in_lines, in_headers]
)
def test_a_name_is_the_same_in_every_container(
    tmp_path: Path, names: Callable[[Path], list[str]]
) -> None:
    """Spaces around it, composed letters and numbers; a word for no value is none, nor the owner's."""
    assert sorted(names(tmp_path)) == sorted(CLASSES)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder at"):
        read_dataset(tmp_path / "absent")


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_text("x")
    for read in (read_dataset, read_inputs):
        with pytest.raises(DataError, match="holds nothing that can be read; use"):
            read(tmp_path)
        with pytest.raises(DataError, match=r"notes.doc is of no format"):
            read(tmp_path / "notes.doc")


def test_several_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 2, 2), np.uint8))
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"several data files \(a.npz, b.csv\)"):
        read_inputs(tmp_path)


def test_an_empty_public_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 2, 2), np.uint8))
    with pytest.raises(DataError, match="no records"):
        read_inputs(tmp_path)


def test_a_record_in_memory_is_known_by_what_it_says_as_in_a_file(tmp_path: Path) -> None:
    """Whatever a class list calls its label: else it would count as another in a later campaign."""
    (tmp_path / "h.csv").write_text("a,y\n1,1\n2,x\n")
    in_file = read_dataset(tmp_path / "h.csv", label="y", classes=["True", "x"])
    table = Table(("a",), (np.array([1.0, 2.0]),))
    in_memory = records_in(table, ["1", "x"], classes=["True", "x"])
    assert in_memory.row_hashes() == in_file.row_hashes()
    assert in_memory.labels.tolist() == in_file.labels.tolist() == [0, 1]


def test_a_word_for_no_value_is_no_group_in_memory_as_in_a_file() -> None:
    """Else all records of unknown patients would be one patient."""
    table = Table(("a",), (np.array([1.0, 2.0, 3.0]),))
    for word in ("NA", "", None):
        with pytest.raises(DataError, match="record 2 has no value in the group column"):
            records_in(table, ["a", "b", "a"], ["p", word, "q"])
    assert groups_of(records_in(table, ["a", "b", "a"], [1.0, 1, 2])) == ["1", "1", "2"]
