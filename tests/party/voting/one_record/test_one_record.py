"""One record changes only one record's votes, for arbitrary cells.

One arbitrary record of a party's file is written with arbitrary cells. What the party then has is what
it has without that record, and at most this one more: the same rows under the same hashes in the same
shards, and the same votes. 60 examples for each way to write a table, 40 for each kind of images.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from party.teachers.ensemble import assign_shards
from party.voting.neighbour import NeighbourVotes
from party.voting.own_data import OwnVoters
from party.voting.own_file import OwnFile
from pate.data.cells import PLAIN, Reading
from pate.data.schema import Schema
from pate.data.values import Dataset, Images, Inputs, Table
from pate.votes import Counts
from tests.support.campaign_messages import CampaignMessage

KEY: Final = b"k" * 32
TEACHERS: Final = 7
CLASSES: Final = ("a", "b")
ROWS: Final = tuple(range(6))
SIZE: Final = 24
TABLE: Final = Table(
    ("lab", "kind", "age"),
    (
        np.array([1.5, 2.0, 7.5, 40.0, -3.0, 9.0]),
        np.array(["x", "y", "x", "7", "1.50", "x"]),
        np.array([30.0, 41.0, 52.0, 63.0, 74.0, 85.0]),
    ),
)
BASE: Final = [
    [f"{0.5 * at:g}", "xy7"[at % 3], f"{20 + 3 * at}", CLASSES[at % 2], f"p{at % 9}"]
    for at in range(SIZE)
]
HEAD: Final = ["lab", "kind", "age", "y", "who"]
#: Plausible and implausible cells.
LIKELY: Final = [
    "", "?", ">150", "<5", "12,5", "1.5", "1.50", "n/a", "NA", "-", "nan", "NaN", "inf", "-inf", "1e400",
    "1_000", "0x10", "007", "a", "b", "c", "A", "p1", "p1.0", "x", "y", "null", '"', '""', "'", ",", ";",
    "\0", "a\0", "\ufffd", "\u202e", "x" * 300, "x" * 70_000, "1" * 5_000, "\t", " 7 ", "٣", "true", "\n",
]  # fmt: skip
PIXELS: Final = np.random.default_rng(5).integers(0, 256, (SIZE + 6, 6, 6, 1), dtype=np.uint8)

texts = st.one_of(st.sampled_from(LIKELY), st.text(max_size=12))
rows_of_text = st.lists(texts, min_size=5, max_size=5)
at_any = st.integers(0, SIZE)
many = settings(max_examples=60, deadline=None)
some = settings(max_examples=40, deadline=None)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("one")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("images")
    for at in range(SIZE):
        home = place / CLASSES[at % 2]
        home.mkdir(exist_ok=True)
        Image.fromarray(PIXELS[at, :, :, 0]).save(home / f"{at}.png")
    return place


def held(file: OwnFile, public: Inputs, classes: tuple[str, ...] = CLASSES) -> Dataset:
    """What a party has that guessed first and then read its file as the campaign says."""
    fresh, _ = file.read(Schema.of(public), classes)
    voters = OwnVoters(
        file, training=None, records=True, key=KEY, say=lambda _: None, warn=lambda _: None,
    )  # fmt: skip
    voters.ahead(None, None)
    asked = CampaignMessage(
        aggregator="neighbour", schema=public.schema(), classes=classes, most_votes=99
    ).announced
    found = voters.read(asked)
    assert found is not None
    assert found.records.row_hashes() == fresh.row_hashes()
    return fresh


def records_of(data: Dataset, schema: str) -> Counter[tuple[Any, ...]]:
    """Each record: its hash, its shard, its group and its label."""
    assert data.inputs.schema() == schema
    shards = assign_shards(data, TEACHERS, KEY).tolist()
    groups = [""] * len(data) if data.groups is None else data.groups.tolist()
    return Counter(zip(data.row_hashes(), shards, groups, data.labels.tolist(), strict=True))


#: By how it is written, what a party has without the record; and its votes.
_WITHOUT: Final[dict[object, tuple[Dataset, Counts]]] = {}


def check(
    before: OwnFile, after: OwnFile, public: Inputs, classes: tuple[str, ...] = CLASSES,
    *, written: object = None,
) -> None:  # fmt: skip
    """Check that the file ``after`` is ``before`` with one more record or none.

    ``written``: what ``before`` is the same for, in all examples, and is read once; None: it may differ.
    """
    if written is None or written not in _WITHOUT:
        data = held(before, public, classes)
        _WITHOUT[written] = data, cast(data, public, classes)
    (one, given), other = _WITHOUT[written], held(after, public, classes)
    rest, all_ = records_of(one, one.inputs.schema()), records_of(other, one.inputs.schema())
    assert not rest - all_
    assert (all_ - rest).total() <= 1
    moved = cast(other, public, classes) - given
    assert moved.min() >= 0
    assert moved.sum() == (all_ - rest).total()


def cast(data: Dataset, public: Inputs, classes: tuple[str, ...]) -> Counts:
    return NeighbourVotes(data, KEY).vote(
        public, ROWS, classes, votes_per_patient=None, most_votes=10**6
    )


def as_lines(rows: list[list[str]]) -> bytes:
    made = io.StringIO(newline="")
    csv.writer(made).writerows(rows)
    return made.getvalue().encode(errors="surrogatepass")


def table_file(path: Path, *, groups: bool, reading: Reading = PLAIN) -> OwnFile:
    drop = () if groups else ("who",)
    who = "who" if groups else None
    return OwnFile(data=path, label="y", group=who, drop=drop, reading=reading)


def csv_pair(
    place: Path, at: int, line: bytes, *, groups: bool, reading: Reading = PLAIN
) -> tuple[OwnFile, OwnFile]:
    parts = [as_lines([row]) for row in BASE]
    without, with_it = place / "without.csv", place / "with.csv"
    without.write_bytes(as_lines([HEAD]) + b"".join(parts))
    with_it.write_bytes(as_lines([HEAD]) + b"".join([*parts[:at], line, *parts[at:]]))
    made = [table_file(each, groups=groups, reading=reading) for each in (without, with_it)]
    return made[0], made[1]


@many
@given(at=at_any, cells=rows_of_text, groups=st.booleans())
def test_csv_with_any_text(place: Path, at: int, cells: list[str], groups: bool) -> None:
    pair = csv_pair(place, at, as_lines([cells]), groups=groups)
    check(*pair, TABLE, written=("csv", groups))


@many
@given(at=at_any, cells=rows_of_text, groups=st.booleans())
def test_csv_whose_owner_says_how_it_is_written(
    place: Path, at: int, cells: list[str], groups: bool
) -> None:
    reading = Reading.of("comma", ["29", "x", "b"])
    pair = csv_pair(place, at, as_lines([cells]), groups=groups, reading=reading)
    check(*pair, TABLE, written=("csv as said", groups))


@many
@given(
    at=at_any,
    cells=st.lists(
        st.one_of(
            st.sampled_from([text.encode() for text in LIKELY]),
            st.binary(max_size=12),
            st.sampled_from(
                [b'"open', b'a"b', b'"a"b', b'""x', b"\xff\xfe", b"caf\xe9", b"\xe2\x82"]
            ),
        ),
        max_size=8,
    ),
    groups=st.booleans(),
)
def test_csv_with_any_bytes(place: Path, at: int, cells: list[bytes], groups: bool) -> None:
    """Ragged lines, quotes without an end, bytes that are no text; a line break would end the record."""
    line = b",".join(cells).replace(b"\n", b"").replace(b"\r", b"") + b"\r\n"
    check(*csv_pair(place, at, line, groups=groups), TABLE, written=("csv", groups))


def parquet(path: Path, rows: list[list[bytes | None]], numbers: list[float]) -> None:
    def text(column: int) -> pa.Array:
        return pa.array([row[column] for row in rows], pa.binary()).view(pa.string())

    columns = {
        "lab": pa.array(numbers),
        "kind": text(1),
        "age": text(2),
        "y": text(3),
        "who": text(4),
    }
    pq.write_table(pa.table(columns), path)


@many
@given(
    at=at_any,
    number=st.floats(),
    cells=st.lists(
        st.one_of(st.none(), st.binary(max_size=8), texts.map(lambda text: text.encode())),
        min_size=5, max_size=5,
    ),
    groups=st.booleans(),
)  # fmt: skip
def test_parquet_with_any_bytes(
    place: Path, at: int, number: float, cells: list[bytes | None], groups: bool
) -> None:
    rows: list[list[bytes | None]] = [[cell.encode() for cell in row] for row in BASE]
    numbers = [float(row[0]) for row in BASE]
    parquet(place / "without.parquet", rows, numbers)
    rows.insert(at, cells)
    numbers.insert(at, number)
    parquet(place / "with.parquet", rows, numbers)
    files = [table_file(place / f"{name}.parquet", groups=groups) for name in ("without", "with")]
    check(files[0], files[1], TABLE, written=("parquet", groups))


ANY_FLOAT: Final = st.floats(width=32)


@some
@given(
    at=at_any,
    pixels=st.lists(ANY_FLOAT, min_size=36, max_size=36),
    label=texts,
    group=texts,
)
def test_npz_with_any_values(
    place: Path, at: int, pixels: list[float], label: str, group: str
) -> None:
    images = (PIXELS[:SIZE, :, :, 0] / 255).astype(np.float32)
    labels, groups = [row[3] for row in BASE], [row[4] for row in BASE]
    np.savez(place / "without.npz", images=images, labels=labels, groups=groups)
    more = np.insert(images, at, np.array(pixels, np.float32).reshape(6, 6), axis=0)
    labels.insert(at, label)
    groups.insert(at, group)
    np.savez(place / "with.npz", images=more, labels=np.array(labels), groups=np.array(groups))
    files = [OwnFile(data=place / f"{name}.npz") for name in ("without", "with")]
    check(files[0], files[1], Images(PIXELS[SIZE:]), written="npz")


@some
@given(
    at=at_any,
    pixels=st.lists(st.integers(-(2**31), 2**31), min_size=36, max_size=36),
    label=st.integers(-3, 5),
    window=st.sampled_from([None, (0, 4095)]),
)
def test_npz_of_whole_numbers(
    place: Path, at: int, pixels: list[int], label: int, window: tuple[int, int] | None
) -> None:
    images = PIXELS[:SIZE, :, :, 0].astype(np.int64)
    labels = [at % 2 for at in range(SIZE)]
    named = {"classes": np.array(CLASSES)}
    np.savez(place / "without.npz", images=images, labels=labels, **named)  # type: ignore[arg-type]
    more = np.insert(images, at, np.array(pixels).reshape(6, 6), axis=0)
    labels.insert(at, label)
    np.savez(place / "with.npz", images=more, labels=labels, **named)  # type: ignore[arg-type]
    files = [OwnFile(data=place / f"{name}.npz") for name in ("without", "with")]
    check(files[0], files[1], Images(PIXELS[SIZE:], window), written=("npz", window))


def encoded(pixels: np.ndarray[Any, Any], kind: str = "PNG", up: int = 1) -> bytes:
    made, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = up
    Image.fromarray(pixels).save(made, kind, exif=exif)
    return made.getvalue()


GOOD: Final = encoded(PIXELS[0, :, :, 0])
FILES: Final = [
    encoded(np.full((6, 6, 3), 9, np.uint8)),
    encoded(np.full((6, 6), 3000, np.uint16)),
    encoded(np.full((7, 6), 3, np.uint8)),
    encoded(np.full((6, 6), 3, np.uint8), "JPEG"),
    encoded(np.full((6, 6), 3, np.int32), "TIFF"),
    encoded(PIXELS[1, :, :, 0], up=6),
    encoded(np.full((7, 6), 3, np.uint8), up=8),
    encoded(np.full((6, 6, 2), 90, np.uint8)),
    b"P5 6 6 4095 " + bytes(72),
    GOOD[:-20],
    b"",
]


@some
@given(
    content=st.one_of(
        st.sampled_from(FILES),
        st.binary(max_size=40),
        st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)).map(
            lambda change: GOOD[: change[0]] + bytes([change[1]]) + GOOD[change[0] + 1 :]
        ),
    ),
    name=st.sampled_from(["00.png", "0x.tiff", "zz.png", "notes.txt", "a.PNG", "x.jpg"]),
    folder=st.sampled_from(["a", "b", "c", "nan"]),
    window=st.sampled_from([None, (0, 4095)]),
)
def test_folders_with_any_file(
    images: Path, content: bytes, name: str, folder: str, window: tuple[int, int] | None
) -> None:
    file, added, public = OwnFile(data=images), images / folder, Images(PIXELS[SIZE:], window)
    if (window, "images") not in _WITHOUT:
        data = held(file, public)
        _WITHOUT[window, "images"] = data, cast(data, public, CLASSES)
    before, _ = _WITHOUT[window, "images"]
    added.mkdir(exist_ok=True)
    (added / name).write_bytes(content)
    try:
        after = held(file, public)
    finally:
        (added / name).unlink()
        if folder not in CLASSES:
            added.rmdir()
    schema = before.inputs.schema()
    rest, all_ = records_of(before, schema), records_of(after, schema)
    assert not rest - all_
    assert (all_ - rest).total() <= 1


def test_a_table_reads_as_the_schema_says_and_not_as_most_cells_do(tmp_path: Path) -> None:
    """Even where every cell of a column is none that the schema has."""
    head, rows = HEAD, [[">9", "1.50", "", row[3], row[4]] for row in BASE]
    (tmp_path / "h.csv").write_bytes(as_lines([head, *rows]))
    data = held(table_file(tmp_path / "h.csv", groups=True), TABLE)
    assert data.inputs.schema() == TABLE.schema()
    assert isinstance(data.inputs, Table)
    assert all(math.isnan(cell) for cell in data.inputs.columns[0].tolist())
    assert set(data.inputs.columns[1].tolist()) == {"1.5"}


def _reads(change: Callable[[list[str]], None], place: Path) -> Dataset:
    rows = [list(row) for row in BASE]
    change(rows[3])
    path = place / "h.csv"
    path.write_bytes(as_lines([HEAD, *rows]))
    return held(table_file(path, groups=False), TABLE)


@pytest.mark.parametrize("cell", [">150", "12,5", "n/a", "inf", "NaN"])
def test_an_altered_cell_moves_one_record(cell: str, tmp_path: Path) -> None:
    before = records_of(_reads(lambda _: None, tmp_path), TABLE.schema())
    after = records_of(_reads(lambda row: row.__setitem__(0, cell), tmp_path), TABLE.schema())
    assert ((before - after).total(), (after - before).total()) == (1, 1)
