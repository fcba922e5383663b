"""Texts: a column of a table, or files of class folders; each is kept as it is, to the last character.

A text is usable if it is UTF-8, has a character that is no space, and at most :data:`LONGEST` of them.
Nothing is normalised, so an encoder sees what the file holds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import PLAIN, Reading, clean_name
from pate.data.encoded import Raw
from pate.data.files import lines, parquet, tables
from pate.data.files.images import class_files, entries
from pate.data.limits import read_at_most
from pate.data.odd import UnusableRecordError, judged, usable
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pate.data.odd import Odd

#: Most characters of one text.
LONGEST: Final = 100_000
#: How the names of files with a column of texts end.
SUFFIXES: Final = (
    ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz",
)  # fmt: skip
_FORMATS: Final = f"{', '.join(SUFFIXES)}, or class folders of .txt files"
_EMPTY: Final = "the text is empty"
_LONG: Final = f"the text has more than {LONGEST:,} characters"
_NOT_UTF8: Final = "the text is not UTF-8"


def read_texts(
    # a file with a column of texts, a folder with one such file, or with class folders of ``.txt`` files
    path: Path,
    column: str | None,  # of the texts; None for files of one text each
    *,
    # the column of the classes; the folders of ``.txt`` files name theirs
    label: str | None = None,
    group: str | None = None,  # the column of the patients
    columns: Sequence[str] = (),  # of several labels, or of a number
    # whether a folder of ``.txt`` files without classes will do, as for a public set
    flat: bool = False,
    odd: Odd | None = None,  # collects unusable records; None: the first of them is an error
    reading: Reading = PLAIN,  # how a table writes its cells
) -> Raw:
    """Return the texts at ``path``, with their classes, groups or cells where a column names them."""
    if path.is_dir():
        files = _files(path, odd, flat=flat)
        if files:
            if column or label or group or columns:
                raise UsageError(
                    f"{path} has no columns: each .txt file is a text, and its folder its class; leave "
                    "--text, --label and --group out"
                )
            return _of_files(path, files, odd)
        held = [file for file in entries(path) if _is_table(file)]
        if len(held) != 1:
            parquet.require_no_parts(path)
            what = ", ".join(file.name for file in held[:5]) or "no texts"
            raise DataError(f"{path} holds {what}; name one file: {_FORMATS}")
        path = held[0]
    if not path.is_file():
        raise DataError(f"there is no file or folder at {path}; check the path")
    if not _is_table(path):
        raise DataError(f"{path} holds no texts that can be read; use {_FORMATS}")
    if column is None:
        raise UsageError(f"{path} is a table; name its column of texts with --text")
    column = clean_name(column)
    others = [clean_name(each) for each in (label, group, *columns) if each is not None]
    if column in others:
        raise UsageError(f"column {column!r} cannot be the text and a label or group, too")
    name, wanted = path.name.casefold(), [column, *others]
    if "json" in name.removesuffix(".gz").rpartition(".")[2]:
        table = lines.read_json_lines(path, wanted, odd, text=column, reading=reading)
    else:
        table = lines.read_table_file(
            path, odd, text=column, reading=reading, wanted=wanted.__contains__
        )
    found = table.cells(column, "text")

    def stream() -> Iterator[str | None]:
        for at, text in enumerate(found):
            place = table.place(at)
            yield usable(judged(partial(_checked, text, f"{path} {place}")), odd, place)

    names = None if label is None else table.column(label, "label")
    groups = (
        None if group is None else np.array(table.column(group, tables.OF_GROUPS), dtype=np.str_)
    )
    cells = {each: table.cells(each, "label") for each in columns}
    return Raw(path, len(found), stream, names, groups, cells, table.place)


def holds_texts(folder: Path) -> bool:
    """Return whether a folder, or a class folder of it, has ``.txt`` files."""
    return any(
        _is_text_file(each) or (each.is_dir() and any(map(_is_text_file, entries(each))))
        for each in entries(folder)
    )


def usable_text(text: str) -> str:
    """Return why a text cannot be used, or "".

    >>> usable_text("Chest clear."), usable_text("  "), usable_text("x" * 1_000_000)
    ('', 'the text is empty', 'the text has more than 100,000 characters')
    """
    if len(text) > LONGEST:
        return _LONG
    if not text or text.isspace():
        return _EMPTY
    return "" if tables.is_utf8(text) else _NOT_UTF8


def _of_files(path: Path, files: Sequence[tuple[str, Path]], odd: Odd | None) -> Raw:
    def place(at: int) -> str:
        return f"{files[at][1].parent.name}/{files[at][1].name}"

    def stream() -> Iterator[str | None]:
        for at, (_, file) in enumerate(files):
            found = judged(partial(_text_of, file))
            yield usable(found, odd, place(at))

    names = [name for name, _ in files]
    known = None if any(file.parent == path for _, file in files) else names
    return Raw(path, len(files), stream, known, place=place)


def _text_of(file: Path) -> str:
    """Return the text of a file."""
    # A character has at most 4 bytes; one more tells a longer file.
    content = read_at_most(file, 4 * LONGEST + 4)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if len(content) > 4 * LONGEST:  # cut within a character, perhaps
            return _checked(content.decode(errors="replace"), str(file))
        line = content.count(b"\n", 0, error.start) + 1
        raise UnusableRecordError(
            f"{file} line {line} is not UTF-8 text; save it as UTF-8", _NOT_UTF8
        ) from None
    return _checked(text, str(file))


def _checked(text: str, where: str) -> str:
    """Return a usable text."""
    if why := usable_text(text):
        raise UnusableRecordError(f"{where}: {why}; correct it or take it out", why)
    return text


def _files(folder: Path, odd: Odd | None, *, flat: bool) -> list[tuple[str, Path]]:
    """Return the class name and path of each text file: of the folder itself, "" for the class."""
    held = entries(folder)
    found = [("", path) for path in held if _is_text_file(path)]
    homes = [home for home in held if home.is_dir()]
    if found and not flat:
        if any(_is_text_file(path) for home in homes for path in entries(home)) or not any(
            _is_table(path) for path in held
        ):
            raise DataError(f"{folder} holds texts outside of class folders; make a folder a class")
        found = []
    if not found and not any(_is_text_file(path) for home in homes for path in entries(home)):
        return []
    names = ("a .txt file", "texts")
    return found + class_files(folder, odd, is_one=_is_text_file, names=names)


def _is_text_file(path: Path) -> bool:
    return path.suffix.casefold() == ".txt" and path.is_file()


def _is_table(path: Path) -> bool:
    return path.name.casefold().endswith(SUFFIXES) and path.is_file()
