"""Texts as raw records, and embeddings as inputs."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from pate.data.embeddings import UNIT, Embeddings, encoder_in
from pate.data.files.texts import LONGEST, read_texts
from pate.data.labels import encode_labels
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import content_hash
from pate.errors import DataError, ProtocolError, SchemaError, UsageError
from pate.features.space import space_over
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet, pack_public_set, read_public_set
from tests.support.encoders.embedded import embedding_arrays
from tests.support.readings import groups_of

#: Spaces around it, a quote, a line break, a letter of two code points, and U+FFFD, which is a character.
ODD_TEXT = '  "Chest" clear,\nno e\u0301ffusion \N{REPLACEMENT CHARACTER} ? '
TEXTS = [ODD_TEXT, "NA", "?", "x" * LONGEST]


def written(path: Path) -> Path:
    """Write the texts with a class and a person each, by the path's name."""
    names = ("note", "class", "who")
    held = [(text, f"c{at % 2}", f"p{at}") for at, text in enumerate(TEXTS)]
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(zip(names, zip(*held, strict=True), strict=True))), path)
    elif "json" in path.name:
        rows = [json.dumps({**dict(zip(names, row, strict=True)), "more": [1]}) for row in held]
        content = ("\n".join(rows) + "\n").encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    else:
        with path.open("w", newline="") as file:
            separator = "\t" if path.suffix == ".tsv" else ","
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows([names, *held])
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.jsonl", "a.jsonl.gz"])
def test_a_column_of_texts_is_kept_as_it_is(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name)
    for place, odd in ((tmp_path, None), (path, Odd())):
        raw = read_texts(place, "note", label="class", group="who", odd=odd)
        assert list(raw.stream()) == TEXTS
        assert raw.names == ["c0", "c1", "c0", "c1"]
        assert groups_of(raw) == ["p0", "p1", "p2", "p3"]
        assert raw.count == 4
        assert not odd


def rows(path: Path, *cells: bytes) -> Path:
    """Write one record a cell, with a class."""
    if path.suffix == ".jsonl":
        made = [b'{"note": "' + cell + b'", "class": "a"}' for cell in cells]
    else:
        made = [b"note,class", *(cell + b",a" for cell in cells)]
    path.write_bytes(b"\n".join(made) + b"\n")
    return path


LONG = "the text has more than 100,000 characters"
UNUSABLE = [
    ("a.csv", b"\xff\xfe", "the text is not UTF-8", r"line 3 is not UTF-8"),
    ("a.csv", b'"  \n "', "the text is empty", r"a\.csv line 3: the text is empty"),
    ("a.csv", b"x" * (LONGEST + 1), LONG, r"line 3: the text has more than 100,000"),
    ("a.csv", b"x" * 1_000_000, LONG, r"line 3: the text has more than 100,000"),
    ("a.jsonl", b"\xff\xfe", "the line is not UTF-8 text", r"line 2 is not UTF-8"),
    ("a.jsonl", rb"\ud800", "the text is not UTF-8", r"line 2: the text is not UTF-8"),
    ("a.jsonl", b"", "the text is empty", r"line 2: the text is empty"),
    ("a.jsonl", b"x" * 1_000_000, LONG, r"line 2: the text has more than 100,000"),
    ("a.jsonl", b'"', "the line is no JSON", r"line 2 is no JSON;"),
    ("a.jsonl", b"x" * 2**21, "the line has more than 1,048,576 bytes", r"line 2 has more than"),
]


@pytest.mark.parametrize(("name", "cell", "why", "error"), UNUSABLE)
def test_an_unusable_text_is_left_out_by_itself(
    name: str, cell: bytes, why: str, error: str, tmp_path: Path
) -> None:
    path, odd = rows(tmp_path / name, b"one", cell, b"three"), Odd()
    raw = read_texts(path, "note", label="class", odd=odd)
    assert [text for text in raw.stream() if text is not None] == ["one", "three"]
    assert odd.reasons == [why]
    with pytest.raises(DataError, match=error) as caught:
        list(read_texts(path, "note", label="class").stream())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("name", "cell"), [("a.csv", b"x,y"), ("a.jsonl", b'"')])
def test_a_file_of_which_no_line_can_be_read_has_no_records(
    name: str, cell: bytes, tmp_path: Path
) -> None:
    """Which nobody else learns: another party's file may have one such line less."""
    odd = Odd()
    raw = read_texts(rows(tmp_path / name, cell, cell), "note", label="class", odd=odd)
    assert (raw.count, list(raw.stream()), raw.names) == (0, [], [])
    with pytest.raises(DataError, match=r"holds no records: .*the line"):
        encode_labels(raw.names or [], None, path=raw.path, odd=odd)


def test_a_key_that_one_record_has_decides_for_itself_only(tmp_path: Path) -> None:
    """Without that record no line has it, which is as if none could be read."""
    path, odd = tmp_path / "a.jsonl", Odd()
    for last, cells in (('{"note": "two"}', ["", ""]), ('{"note": "two", "ill": 1}', ["", "1"])):
        path.write_text(f'{{"note": "one"}}\n{last}\n')
        raw = read_texts(path, "note", columns=["ill"], odd=(odd := Odd()))
        assert raw.cells == {"ill": cells}
        assert odd.of_file == (["no line has 'ill'"] if cells == ["", ""] else [])


def test_parquet_of_bytes_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"note": [b"fine", b"\xff"]}), path)
    with pytest.raises(DataError, match="record 2: the text is not UTF-8"):
        list(read_texts(path, "note").stream())
    odd = Odd()
    assert list(read_texts(path, "note", odd=odd).stream()) == ["fine", None]


def test_other_cells_keep_their_bounds(tmp_path: Path) -> None:
    path, odd = tmp_path / "a.csv", Odd()
    path.write_bytes(b"note,class\nfine," + b"c" * 300 + b"\nfine,\xff\nfine,b\n")
    raw = read_texts(path, "note", label="class", odd=odd)
    assert raw.names == ["", "", "b"]
    assert {line.partition("counts as missing: it ")[2] for line in odd.lines()} == {
        "is longer than 256 characters",
        "is not UTF-8 text",
    }


def test_a_note_of_many_lines_is_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    note = "\n".join(f"line {at}, of a note" for at in range(1_000))
    path.write_text(f'note,class\n"{note}",a\nshort,b\n')
    raw = read_texts(path, "note", label="class", odd=Odd())
    assert list(raw.stream()) == [note, "short"]
    assert raw.names == ["a", "b"]


def folder(root: Path) -> Path:
    for name, text in (("b/2", "two"), ("a/1", "\ufeffone "), ("b/10", "ten")):
        file = root / f"{name}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode())
    return root


def test_folders_name_the_classes_of_their_files(tmp_path: Path) -> None:
    raw = read_texts(folder(tmp_path), None)
    assert list(raw.stream()) == ["one ", "ten", "two"]  # without the mark of the file's encoding
    assert raw.names == ["a", "b", "b"]
    assert raw.place(0) == "a/1.txt"
    with pytest.raises(UsageError, match="leave --text, --label and --group out"):
        read_texts(tmp_path, "note")


@pytest.mark.parametrize(
    ("content", "why", "error"),
    [
        (b"fine\nthen \xff", "the text is not UTF-8", r"bad\.txt line 2 is not UTF-8"),
        (b"", "the text is empty", r"bad\.txt: the text is empty"),
        ("ä".encode() * (LONGEST + 1), LONG, r"bad\.txt: the text has more than 100,000"),
        ("xä".encode() + "\N{GRINNING FACE}".encode() * 200_000, LONG, "more than 100,000"),
        (b"x" * 10**7, LONG, "more than 100,000"),
    ],
)
def test_an_unusable_file_is_left_out_by_itself(
    content: bytes, why: str, error: str, tmp_path: Path
) -> None:
    (folder(tmp_path) / "a" / "bad.txt").write_bytes(content)
    odd = Odd()
    assert list(read_texts(tmp_path, None, odd=odd).stream()) == ["one ", None, "ten", "two"]
    assert odd.reasons == [why]
    with pytest.raises(DataError, match=error):
        list(read_texts(tmp_path, None).stream())


def test_a_public_set_may_be_flat_and_records_may_not(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(name)
    raw = read_texts(tmp_path, None, flat=True)
    assert list(raw.stream()) == ["a", "b"]
    assert raw.names is None
    with pytest.raises(DataError, match="outside of class folders"):
        read_texts(tmp_path, None)


def test_what_is_no_text_file_is_left_out(tmp_path: Path) -> None:
    (folder(tmp_path) / "a" / "scan.pdf").write_bytes(b"%PDF")
    odd = Odd()
    assert read_texts(tmp_path, None, odd=odd).count == 3
    assert odd.reasons == ["it is not a .txt file"]
    with pytest.raises(DataError, match=r"scan\.pdf is not a \.txt file"):
        read_texts(tmp_path, None)


def test_columns_must_make_sense(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="name its column of texts with --text"):
        read_texts(path, None)
    with pytest.raises(UsageError, match="cannot be the text and a label"):
        read_texts(path, "class", label="class")
    for name in ("a.csv", "a.jsonl"):
        with pytest.raises(DataError, match="'report'"):
            read_texts(rows(tmp_path / name, b"one"), "report")


def test_a_folder_without_texts_says_what_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no texts; name one file: \.csv"):
        read_texts(tmp_path, "note")
    with pytest.raises(DataError, match="no file or folder"):
        read_texts(tmp_path / "none", "note")


DIGEST = "ab" * 32


def made(rows: int = 40, width: int = 7, seed: int = 0, source: str = "images") -> Embeddings:
    drawn = np.random.default_rng(seed).normal(size=(rows, width))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return Embeddings(np.rint(drawn * UNIT).astype(np.int16), source, DIGEST)


def test_the_schema_line_is_read_again_and_another_is_refused() -> None:
    for source in ("texts", "images", "images window -1000 400"):
        line = made(source=source).schema()
        schema = Schema.parse(line)
        assert (schema.encoder, schema.width) == (DIGEST, 7)
        assert schema == Schema.of(made(source=source))
        assert schema.window == ((-1000, 400) if "window" in source else None)
        assert schema.source == source.partition(" ")[0]
        assert encoder_in(line) == DIGEST
    for line in (
        f"embeddings 0 by {DIGEST} of texts", f"embeddings 9999 by {DIGEST} of texts",
        f"embeddings 7 by {DIGEST[1:]} of texts", f"embeddings 7 by {DIGEST} of sounds",
        f"embeddings 7 by {DIGEST} of texts window 0 1",
        f"embeddings 7 by {DIGEST} of images window 5 5",
    ):  # fmt: skip
        with pytest.raises(SchemaError):
            Schema.parse(line)
        # A window is checked where it is used: the line names its encoder all the same.
        assert encoder_in(line) == ("" if not line.endswith("5 5") else DIGEST)
    assert encoder_in("images 8x8x1") == encoder_in(None) == ""


def test_an_archive_gives_them_back(tmp_path: Path) -> None:
    inputs = made()
    file = tmp_path / "records.npz"
    labels = np.arange(40) % 3
    np.savez(file, **embedding_arrays(inputs), labels=labels, allow_pickle=False)
    assert content_hash(read_inputs(file)) == content_hash(inputs)
    data = read_dataset(file, schema=Schema.of(inputs))
    assert content_hash(data.inputs) == content_hash(inputs)
    assert data.labels.tolist() == labels.tolist()
    with pytest.raises(SchemaError, match="by the encoder cdcdcdcd"):
        read_dataset(file, schema=Schema.parse(f"embeddings 7 by {'cd' * 32} of images"))
    with pytest.raises(SchemaError, match="images 8x8x1"):
        read_dataset(file, schema=Schema(size=(8, 8, 1)))


def test_a_broken_archive_says_why(tmp_path: Path) -> None:
    whole: dict[str, Any] = {**embedding_arrays(made())}
    for changed, why in (
        ({"embeddings": made().points()}, "float32, not int16"),
        ({"embeddings": made().values[0]}, r"\(n, d\) int16"),
        ({"encoder": np.array("none")}, "does not say"),
        ({"source": np.array("sounds")}, "does not say"), ({"source": None}, "no array 'source'"),
    ):  # fmt: skip
        arrays: Any = {
            name: each for name, each in {**whole, **changed}.items() if each is not None
        }
        np.savez(tmp_path / "records.npz", **arrays, labels=np.zeros(40, np.int64))
        with pytest.raises(DataError, match=why):
            read_inputs(tmp_path / "records.npz")


def test_they_travel_in_pieces() -> None:
    inputs = made(source="texts")
    body = b"".join(PackedPublicSet(inputs, piece=64))
    assert body == pack_public_set(inputs)
    there = read_public_set(body, public_set=content_hash(inputs), queries=40)
    assert content_hash(there) == content_hash(inputs)


def test_a_message_that_contradicts_itself_is_refused() -> None:
    whole = pack_public_set(made())
    for field, value in (
        ("count", 41), ("width", 8), ("width", 0), ("source", "sounds"), ("encoder", "AB" * 32),
        ("values", b""),
    ):  # fmt: skip
        message = vote_pb2.PublicSet.FromString(whole)
        setattr(message.embeddings, field, value)
        with pytest.raises(ProtocolError):
            read_public_set(
                message.SerializeToString(), public_set=content_hash(made()), queries=40
            )


def test_a_point_depends_on_its_own_row_and_the_public_set() -> None:
    public, records = made(200), made(60, seed=1)
    space = space_over(public)
    assert (space.name, space.width) == ("encoder", 7)
    points = space.embed(records)
    assert np.abs(np.linalg.norm(points, axis=1) - 1).max() < 1e-6
    for rows in ([3], [9, 3, 40], range(3, 60, 5)):
        np.testing.assert_array_equal(space.embed(records.take(list(rows))), points[list(rows)])
    middle = Embeddings(space_middle(public), "images", DIGEST)
    assert np.isfinite(space.embed(middle)).all()


def space_middle(public: Embeddings) -> NDArray[np.int16]:
    total = public.values.sum(axis=0, dtype=np.int64)
    made: NDArray[np.int16] = (total // len(public)).astype(np.int16)[None]
    return made


def test_a_space_refuses_other_inputs() -> None:
    space = space_over(made())
    with pytest.raises(SchemaError, match="is for embeddings 7"):
        space.embed(made(source="texts"))
    with pytest.raises(UsageError, match="there is encoder"):
        space_over(made(), "scattering")
