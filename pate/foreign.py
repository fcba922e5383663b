"""Python's and NumPy's parsers, for bytes that anybody may have written.

What such a parser raises is no part of its interface: for one hostile file it is another error in each
version of Python, and one that no caller expects. Here each raises :exc:`ValueError` for content that it
does not read, and :exc:`OSError` for a file that cannot be read; tests/test_walls.py lets no other module
call them. An array's header is read by its own grammar, not as Python.
"""

from __future__ import annotations

import json
import math
import re
import struct
import tomllib
import zipfile
import zlib
from contextlib import contextmanager
from reprlib import Repr
from typing import IO, TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

_DEEP: Final = "its values are nested too deeply"
#: Of a dotted key of TOML: Python's parser takes memory by the square of their number.
_MOST_PARTS: Final = 64
_PART: Final = r"""(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY: Final = re.compile(rf"(?<![\w-]){_PART}(?:\.[ \t]*+{_PART}){{{_MOST_PARTS}}}", re.ASCII)
_MAGIC: Final = b"\x93NUMPY"
#: By version: the bytes of a header's length, and the header's encoding, in which our grammar is ASCII.
_LENGTHS: Final = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
#: As NumPy: longer ones belong to tables of many columns.
_LONGEST_HEADER: Final = 10_000
#: Bytes of an array, and its sides where another one is 0; no file has as many.
_MOST_SIDES, _LARGEST = 32, 2**48
_SPACE: Final = r"[ \n]*+"
_SIDE: Final = rf"(?:0|[1-9][0-9]*+){_SPACE}"
_FIELD: Final = rf"\({_SPACE}'([A-Za-z0-9_]*+)'{_SPACE},{_SPACE}'([^']*+)'{_SPACE}\){_SPACE}"
_TYPES: Final = rf"'[^']*+'|\[{_SPACE}{_FIELD}(?:,{_SPACE}{_FIELD})*+(?:,{_SPACE})?+\]"
_SHAPE: Final = rf"{_SPACE}(?:{_SIDE},{_SPACE}(?:{_SIDE},{_SPACE})*+(?:{_SIDE})?+)?+"
#: What NumPy writes, with any spaces. NumPy reads the same in all that fits: skops lets it read again.
_HEADER: Final = re.compile(
    rf"\{{{_SPACE}'descr'{_SPACE}:{_SPACE}(?P<type>{_TYPES}){_SPACE},"
    rf"{_SPACE}'fortran_order'{_SPACE}:{_SPACE}(?P<fortran>True|False){_SPACE},"
    rf"{_SPACE}'shape'{_SPACE}:{_SPACE}\((?P<shape>{_SHAPE})\){_SPACE}(?:,{_SPACE})?+\}}{_SPACE}"
)
#: Numbers, truth values, texts with at least one character, objects, for a message about them, and padding.
_TYPE: Final = re.compile(r"[<>|=]?(?:[biufc][0-9]{1,2}|[SUV][1-9][0-9]{0,8}|O[0-9]{0,2})")
_PACKINGS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1
#: What :mod:`zipfile` raises for damaged archives, besides ValueError and OSError. RuntimeError includes
#: NotImplementedError and RecursionError.
_OF_ARCHIVES: Final = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, LookupError, RuntimeError, OverflowError,
    MemoryError,
)  # fmt: skip

#: Longest whole number in an error's text, about 60 digits; Python itself refuses to write thousands.
_MOST_BITS: Final = 200


def json_value(
    content: bytes | str,  # UTF-8, 16 or 32 if bytes
    *,
    object_pairs_hook: Callable[[list[tuple[Any, Any]]], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """Return the value of a JSON text."""
    try:
        return json.loads(
            content, object_pairs_hook=object_pairs_hook, parse_constant=parse_constant
        )
    except RecursionError as error:
        raise ValueError(_DEEP) from error


def inflated(content: bytes, most: int, dictionary: bytes) -> bytes:
    """Return what raw deflate data unpack to.

    ``most``: bytes that are unpacked.
    """
    reader = zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary)
    try:
        found = reader.decompress(content, most + 1)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if len(found) > most or not reader.eof or reader.unused_data:
        raise ValueError(f"it does not unpack to {most} bytes at most")
    return found


def toml_table(text: str, *, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the table of a TOML text."""
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {_MOST_PARTS} parts")
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError as error:
        raise ValueError(_DEEP) from error
    except (ValueError, ArithmeticError) as error:
        raise ValueError("it has a number that is too large") from error


class Header(NamedTuple):
    """The header of a ``.npy`` array."""

    shape: tuple[int, ...]  # sides of at most 2^48, of at most as many bytes in all
    column_major: bool  # whether its first index moves fastest
    # of numbers, truth values, texts, fields of these, or objects, which :func:`npy_array` does not
    # read
    dtype: np.dtype[Any]

    @property
    def cells(self) -> int:
        """Number of its values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Length of its content."""
        return self.cells * self.dtype.itemsize


def npy_header(file: IO[bytes]) -> Header:
    """Read the header of a ``.npy`` array, and leave the file at its content."""
    import numpy as np

    start = file.read(len(_MAGIC) + 2)
    if start[:-2] != _MAGIC or len(start) != len(_MAGIC) + 2:
        raise ValueError("it does not begin as one")
    version = (start[-2], start[-1])
    if version not in _LENGTHS:
        raise ValueError(f"it is of a newer version of the format, {version[0]}.{version[1]}")
    length = int.from_bytes(file.read(_LENGTHS[version]), "little")
    text = file.read(min(length, _LONGEST_HEADER))
    found = _HEADER.fullmatch(text.decode("latin-1"))
    if len(text) != length or found is None:
        raise ValueError("its header is not that of an array of numbers or texts")
    shape = tuple(int(side) for side in found["shape"].split(",") if side.strip())
    if len(shape) > _MOST_SIDES or max(shape, default=0) > _LARGEST:
        raise ValueError(f"it is of shape {str(shape)[:60]}")
    named = re.findall(_FIELD, found["type"]) or found["type"].strip("'")
    for each in [named] if isinstance(named, str) else [kind for _, kind in named]:
        if not _TYPE.fullmatch(each):
            raise ValueError(f"it has values of the type {each!r:.40}, not numbers or texts")
    try:
        dtype = np.lib.format.descr_to_dtype(cast("list[tuple[str, str]]", named))
    except TypeError as error:  # as for a float of three bytes
        raise ValueError(f"it has values of the type {shown(named)}") from error
    header = Header(shape, found["fortran"] == "True", dtype)
    if header.bytes > _LARGEST:
        raise ValueError(f"it is of shape {str(shape)[:60]}")
    return header


def npy_array(file: IO[bytes], header: Header) -> NDArray[Any]:
    """Return the content of an array whose header was read, which a caller bounds first; read-only."""
    import numpy as np

    if header.dtype.hasobject:
        raise ValueError("it has Python objects, which are never loaded")
    # One more byte, so that an archive's checksum is verified.
    content = file.read(header.bytes + 1)
    if len(content) != header.bytes:
        raise ValueError("it is not as long as it says")
    if not content:
        return np.zeros(header.shape, header.dtype)
    order: Literal["F", "C"] = "F" if header.column_major else "C"
    return np.frombuffer(content, header.dtype).reshape(header.shape, order=order)


@contextmanager
def zip_file(file: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open a ZIP archive whose members are stored or deflated, as NumPy writes them, for the block."""
    try:
        with zipfile.ZipFile(file) as found:
            for each in found.infolist():
                if each.flag_bits & _ENCRYPTED:
                    raise ValueError(f"its member {each.filename!r:.80} is encrypted")
                if each.compress_type not in _PACKINGS:
                    raise ValueError(
                        f"its member {each.filename!r:.80} is packed by another method"
                    )
            yield found
    except _OF_ARCHIVES as error:
        raise ValueError(str(error) or "it is damaged") from error


class _Short(Repr):
    """Values in some 60 characters each and two levels, whatever the interpreter's limits are."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = 60
        self.maxlevel = 2

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > _MOST_BITS:
            return f"a whole number of {x.bit_length()} bits"
        return super().repr_int(x, level)

    def repr_Decimal(self, x: Decimal, _: int) -> str:  # noqa: N802  (named after the type)
        return str(x)[: self.maxother]


#: Returns a parsed value for an error's text.
shown: Final = _Short().repr
