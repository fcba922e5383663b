"""Hostile bytes for Python's and NumPy's parsers: one error, the same in each version of Python."""

from __future__ import annotations

import io
import json
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.foreign import json_value, npy_array, npy_header, shown, toml_table, zip_file
from tests.fuzz.mutate import mutated_bytes

ARRAYS: tuple[NDArray[Any], ...] = (
    np.array(3),
    np.zeros((2, 3), ">f8"),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array(["a", ""]),
    np.array([b"x"]),
    np.zeros((0, 3)),
    np.array([True, False]),
    np.arange(3, dtype=np.longdouble),
    np.zeros(2, np.dtype([("a", "i8"), ("b", "u1")], align=True)),
)
#: Pieces of a header, and what parsers of Python stumble over.
PIECES = (b"{", b"'descr'", b": ", b"'<f8'", b", ", b"'fortran_order'", b":", b"False", b",", b"'shape'",
          b": ", b"(", b"3", b",", b" 4", b")", b", ", b"}", b"  \n")  # fmt: skip
TRAPS = (b" ", b"\n", b"\t", b"(", b")", b"[", b"{", b"}", b"'", b'"', b"\\d", b"\x00", b"1if", b"0_1", b"3L",
         b"\x0c", b"9" * 20, b"9" * 5000, b"(" * 300, b"-", b"lambda:0", b"\xff", b"#", b"'<U5'", b"'|O'",
         b"[('a','<i4')]", b"[('','|V3'),('b','|b1')]", b"1e5", b"f'{", b"True", b"...", b"\r")  # fmt: skip


def npy(array: NDArray[Any], version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def with_header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def as_numpy_reads(content: bytes) -> tuple[Any, ...] | None:
    """Return the header as NumPy reads it, None if it refuses it in any way or warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.lib.format.read_array_header_1_0(io.BytesIO(content[8:]))
        except BaseException:  # noqa: BLE001  (which one is what differs)
            return None


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_what_numpy_writes_is_read(array: NDArray[Any], version: tuple[int, int]) -> None:
    file = io.BytesIO(npy(array, version))
    found = npy_array(file, npy_header(file))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tolist() == array.tolist()
    file = io.BytesIO(npy(array, version) + b"more")
    header = npy_header(file)
    with pytest.raises(ValueError, match="not as long"):
        npy_array(file, header)


def test_broken_headers_are_refused_by_value_error_or_read_as_numpy_reads_them() -> None:
    rng, read, refused_by_numpy = random.Random(1), 0, 0  # noqa: S311
    for _ in range(4000):
        pieces = list(PIECES)
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            at, way = rng.randrange(len(pieces)), rng.random()
            if way < 0.4:
                pieces.insert(at, rng.choice(TRAPS))
            elif way < 0.6:
                del pieces[at]
            else:
                pieces[at] = rng.choice(TRAPS + PIECES)
        content = with_header(b"".join(pieces)[:9000])
        numpy_reads = as_numpy_reads(content)
        refused_by_numpy += numpy_reads is None
        try:
            found = npy_header(io.BytesIO(content))
        except ValueError:
            continue
        read += 1
        assert tuple(found) == numpy_reads, content
    assert read > 50
    assert refused_by_numpy > 1000


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (b"'<M8[ns]'", "type"), (b"'<f10'", "type"), (b"'<U0'", "type"), (b"'f8,f8'", "type"),
        (b"[]", "header"), (b"[('a','<i8'),('a','<i8')]", "name"),
        (b"[('a','<i8',(2,))]", "header"),
    ],
)  # fmt: skip
def test_other_types_are_refused(kind: bytes, message: str) -> None:
    text = b"{'descr': " + kind + b", 'fortran_order': False, 'shape': (3,), }"
    with pytest.raises(ValueError, match=message):
        npy_header(io.BytesIO(with_header(text)))


@pytest.mark.parametrize("shape", [b"281474976710656,", b"281474976710656, 281474976710656"])
def test_an_array_longer_than_any_file_is_refused(shape: bytes) -> None:
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + shape + b"), }"
    with pytest.raises(ValueError, match="shape"):
        npy_header(io.BytesIO(with_header(text)))


def test_python_objects_are_named_and_never_loaded() -> None:
    file = io.BytesIO(npy(np.array([1, {}], dtype=object)))
    header = npy_header(file)
    assert header.dtype.hasobject
    with pytest.raises(ValueError, match="never loaded"):
        npy_array(file, header)


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, 93])
def test_archives_that_are_packed_in_another_way_are_refused(method: int) -> None:
    """A damaged stream of the first raises what :mod:`zipfile` does not say."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED if method == 93 else method) as made:
        made.writestr("x.npy", npy(ARRAYS[1]))
    content = bytearray(file.getvalue())
    content[content.find(b"PK\x01\x02") + 10] = method
    content[60:90] = bytes(30)
    with pytest.raises(ValueError, match="another method"), zip_file(io.BytesIO(content)):
        pass


def test_broken_archives_are_refused_by_value_error(tmp_path: Path) -> None:
    rng, refused, path = random.Random(2), 0, tmp_path / "a.npz"  # noqa: S311
    np.savez(path, x=ARRAYS[1], y=ARRAYS[3])
    stored = path.read_bytes()
    np.savez_compressed(path, x=ARRAYS[1], y=ARRAYS[3])
    for good in (stored, path.read_bytes()):
        for _ in range(500):
            try:
                with zip_file(io.BytesIO(mutated_bytes(good, rng))) as members:
                    for each in members.infolist():
                        with members.open(each) as content:
                            npy_array(content, npy_header(content))
            except (ValueError, OSError):
                refused += 1
    assert refused > 500


@pytest.mark.parametrize("depth", [900, 3_000, 100_000])
@pytest.mark.parametrize("form", ["[{}]", '{{"a": {}}}'])
def test_deep_json_is_a_value_or_a_value_error(form: str, depth: int) -> None:
    begin, end = form.format("|").split("|")
    try:
        found = json_value(begin * depth + "1" + end * depth)
    except ValueError as error:
        found = str(error)
    assert found == "its values are nested too deeply" or len(shown(found)) < 100
    assert depth < 100_000 or found == "its values are nested too deeply"


@pytest.mark.parametrize("text", ["9" * 5000, "\ud800", "nul", "1e", ""])
def test_other_texts_are_no_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_value(text)
    assert json_value(json.dumps({"a": [1.5, None]})) == {"a": [1.5, None]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "deeply"),
        ("a = " + "9" * 5000, "too large"),
        ("a = ", "at end of document"),
        ("a = 1979-13-01", "."),
        ("a" * 100_000, "."),
        ("a." * 64 + "a = 1", "more than 64 parts"),
        ("[\"a\" . 'b'" + ".a" * 500_000 + "]", "more than 64 parts"),
    ],
)
def test_hostile_toml_is_a_value_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toml_table(text)
    assert toml_table("a." * 63 + "a = 1").keys() == {"a"}


def test_values_are_shown_in_part() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = {"a": deep}
    assert shown(deep) == "{'a': {'a': {...}}}"
    assert shown(16**5000) == "a whole number of 20001 bits"
    assert len(shown("x" * 10**6)) == 60
