"""DICOM files as hospitals keep them: one file, a folder with all below it, or a DICOMDIR.

A frame is a record. Its group is the patient, by PatientID. Its class is the name of its top folder, or in a
table that names the class of each study or image by its UID. Nothing else of a header is kept, and errors
name files only.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pate.data.cells import PLAIN, Reading, clean_name, plain_name
from pate.data.encoded import Raw
from pate.data.files import dicom_image
from pate.data.files.dicom_image import UnusableError, is_dicom, read_header
from pate.data.files.images import entries
from pate.data.files.lines import read_table_file
from pate.data.odd import (
    DEEP,
    WINDOW,
    DeepImagesError,
    Unusable,
    UnusableRecordError,
    judged,
    usable,
)
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.files.dicom_image import Header
    from pate.data.odd import Odd
    from pate.data.values import Window

#: Most files that are looked at, and how deep folders may lie within each other.
_MOST_FILES: Final = 1_000_000
_DEEPEST: Final = 16
#: Files that are looked at to tell whether a folder has DICOM files.
_LOOKED_AT: Final = 1_000
_INDEX: Final = "dicomdir"
#: What can name the group of an image: values of its header.
_GROUPS: Final = {
    "PatientID": "patient", "StudyInstanceUID": "study", "SeriesInstanceUID": "series"
}  # fmt: skip
#: What a table of labels can go by, the finer first.
_KEYS: Final = {"SOPInstanceUID": "image", "StudyInstanceUID": "study"}


class _File(NamedTuple):
    path: Path
    place: str
    folder: str
    header: Header


def holds_dicom(path: Path) -> bool:
    """Return whether there is a DICOM file at a path, or in a folder: a DICOMDIR, or an early file."""
    if path.is_file():
        return path.name.casefold() == _INDEX or _says_so(path)
    if any(file.name.casefold() == _INDEX for file in entries(path)):
        return True
    return any(_says_so(file) for file in islice(_below(path, 0), _LOOKED_AT))


def read_dicom(
    path: Path,  # one file, a folder, or a DICOMDIR, which stands for the folder that it is in
    *,
    # the values that become black and white, after each file's own slope and intercept
    window: Window | None = None,
    # CSV or Parquet with a column ``StudyInstanceUID`` or ``SOPInstanceUID``; None: the folders directly
    # in ``path`` name the classes
    table: Path | None = None,
    label: str | None = None,  # its column of classes
    # ``PatientID``, which is the default, ``StudyInstanceUID`` or ``SeriesInstanceUID``
    group: str | None = None,
    columns: Sequence[str] = (),  # its columns of several labels, or of a number
    flat: bool = False,  # whether neither classes nor groups are wanted, as of a public set
    # collects unusable files and frames; None: the first of them is an error
    odd: Odd | None = None,
    # how the table writes its cells; its words for no value are those of headers, too
    reading: Reading = PLAIN,
) -> Raw:
    """Return the frames at ``path``; headers are read at once, pixels only with the stream."""
    if group is not None and group not in _GROUPS:
        raise UsageError(f"of DICOM files --group takes {', '.join(_GROUPS)}, not {group!r:.80}")
    if table is None and (label is not None or columns):
        raise UsageError("labels of DICOM files are in a table: name it with --dicom-labels")
    if table is not None and label is None and not columns:
        raise UsageError(f"name the column of {table} that has the class with --label")
    files = list(_headers(path, odd, by_folder=table is None and not flat))
    of_record = [each for each in files for _ in range(each.header.frames)]
    starts = np.cumsum([0, *(each.header.frames for each in files)])

    def place(at: int) -> str:
        file = of_record[at]
        if file.header.frames == 1:
            return file.place
        return (
            f"{file.place} frame {at - int(starts[np.searchsorted(starts, at, 'right') - 1]) + 1}"
        )

    def stream() -> Iterator[NDArray[np.uint8] | None]:
        for file in files:
            yield from _frames(file, window, odd)

    names: list[str] | None = None
    cells: dict[str, list[str]] = {}
    if table is not None and not flat:
        told = _labels(table, label, columns, odd, reading)
        cells = {
            name: [by.get(getattr(each.header, key), "") for each in of_record]
            for name, key, by in told
        }
        names = cells.pop(label) if label is not None else None
    elif not flat:
        names = [each.folder for each in of_record]
    groups = None
    if not flat:
        held = [getattr(each.header, _GROUPS[group or "PatientID"]) for each in of_record]
        by_value = reading.identities(held, labels=False)
        groups = np.array([by_value[value] for value in held], dtype=np.str_)
        if odd is None and (groups == "").any():
            first = place(int(np.flatnonzero(groups == "")[0]))
            raise DataError(f"{path}: {first} has no {group or 'PatientID'}; take it out")
    return Raw(path, len(of_record), stream, names, groups, cells, place)


def _frames(
    file: _File, window: Window | None, odd: Odd | None
) -> Iterator[NDArray[np.uint8] | None]:
    """Yield each frame of a file; None from the first one on that cannot be read."""
    with closing(_pixels_of(file, window)) as frames:
        for at in range(file.header.frames):
            found = judged(lambda: next(frames))
            yield usable(found, odd, file.place)
            if isinstance(found, Unusable):  # what ends the file ends its other frames, too
                for _ in range(at + 1, file.header.frames):
                    yield usable(found, odd, file.place)
                return


def _pixels_of(file: _File, window: Window | None) -> Generator[NDArray[np.uint8], None, None]:
    """Yield each frame of a file."""
    why = "a frame is missing"
    try:
        with file.path.open("rb") as opened:
            yield from dicom_image.frames(opened, file.header, window)
    except UnusableError as error:
        why = str(error)
        if DEEP in why:
            raise DeepImagesError(f"{file.path} {DEEP}; {WINDOW}", why) from error
    except OSError as error:
        why = f"the file cannot be read ({error.strerror})"
    raise UnusableRecordError(f"{file.path}: {why}", why)


def _headers(path: Path, odd: Odd | None, *, by_folder: bool) -> Iterator[_File]:
    """Yield the files whose header can be used; others are noted."""
    if path.is_file() and path.name.casefold() != _INDEX:
        root, found = path.parent, [path]
    else:
        root = path.parent if path.is_file() else path
        if not root.is_dir():
            raise DataError(f"there is no file or folder at {path}; check the path")
        found = list(_below(root, 0))
    if by_folder and any(file.parent == root for file in found):
        raise DataError(
            f"{root} holds DICOM files outside of class folders: make a folder a class, or name the file "
            "with their labels with --dicom-labels"
        )
    # Next to the index of a disc lies the program that shows it.
    indexed = any(each.name.casefold() == _INDEX for each in entries(root))
    for file in found:
        place = file.relative_to(root).as_posix()
        if indexed and not _says_so(file):
            continue
        header = usable(judged(partial(_header_of, file)), odd, place)
        if header is not None:
            yield _File(file, place, plain_name(file.relative_to(root).parts[0]), header)


def _header_of(file: Path) -> Header:
    """Return the header of a file."""
    try:
        if not _says_so(file):
            raise UnusableError("it is no DICOM file")
        with file.open("rb") as opened:
            return read_header(opened)
    except (UnusableError, OSError) as error:
        why = str(error) if isinstance(error, UnusableError) else "the file cannot be read"
        raise UnusableRecordError(f"{file}: {why}", why) from None


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files of a folder and all below it, by name; not the index of a disc."""
    if depth > _DEEPEST:
        raise DataError(f"{folder} lies more than {_DEEPEST} folders deep, or in a circle of links")
    count = 0
    for each in entries(folder):
        held = _below(each, depth + 1) if each.is_dir() else iter([each])
        for file in held:
            count += 1
            if count > _MOST_FILES:
                raise DataError(f"{folder} has more than {_MOST_FILES:,} files; take some of them")
            if file.name.casefold() != _INDEX:
                yield file


def _says_so(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return is_dicom(opened.read(132))
    except OSError:
        return False


def _labels(
    table: Path, label: str | None, columns: Sequence[str], odd: Odd | None, reading: Reading
) -> list[tuple[str, str, dict[str, str]]]:
    """Return for each wanted column its name, the header's value that it goes by, and cells by that."""
    if not table.is_file():
        raise DataError(f"there is no file at {table}: --dicom-labels")
    wanted = set(map(clean_name, filter(None, (*_KEYS, *columns, label))))
    held = read_table_file(table, odd, reading=reading, wanted=wanted.__contains__)
    of_column = next((name for name in _KEYS if name in held.columns), None)
    if of_column is None:
        raise DataError(
            f"{table} has no column {' or '.join(reversed(_KEYS))}; it names each label's images"
        )
    uids = held.cells(of_column, "UID")
    made = []
    for name in (*columns, *([] if label is None else [label])):
        cells = held.column(name, "label") if name == label else held.cells(name, "label")
        by: dict[str, str] = {}
        for row, (uid, cell) in enumerate(zip(uids, cells, strict=True)):
            if by.setdefault(uid, cell) == cell:
                continue
            if odd is None:
                raise DataError(
                    f"{table} {held.place(row)} has a second {name!r} for a {of_column}"
                )
            if by[uid]:
                odd.cell(name, f"is a second one for a {of_column}", held.place(row))
            by[uid] = ""
        by.pop("", None)  # of rows without a UID
        made.append((name, _KEYS[of_column], by))
    return made
