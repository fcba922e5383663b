"""Reading data sets from a path, whatever the format.

Formats: :mod:`pate.data.locate`. With an encoder, records are read one at a time and become embeddings.

Column names, the kind of each column and image sizes are a schema that all parties of a campaign
share; they count as public.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pate.answers import NONE
from pate.data.cells import PLAIN, Reading
from pate.data.encoded import Raw, embedded, require_encoder
from pate.data.files import images, lines
from pate.data.files.dicom import read_dicom
from pate.data.files.npz import Archive
from pate.data.files.tables import OF_GROUPS, is_named, is_wanted
from pate.data.files.texts import read_texts
from pate.data.locate import TABLE_SUFFIXES, is_table, locate, only_dicom, raw_at, require_there
from pate.data.odd import DeepImagesError, Odd, none_usable
from pate.data.records import Several, joined
from pate.data.schema import Schema
from pate.data.values import Dataset, Images, Inputs, Table, check_window
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.encoded import Embedder
    from pate.data.files.tables import TextTable
    from pate.data.values import Window

__all__ = [
    "TABLE_SUFFIXES", "is_wanted", "read_dataset", "read_inputs", "read_raw", "read_table",
    "require_there",
]  # fmt: skip


def read_dataset(
    path: Path,  # a file or folder in one of the formats of this module
    *,
    label: str | None = None,  # the label column of a table; for an archive the key of its labels
    # the column of a table that names the group (patient) of each row; for an archive the key of its
    # groups
    group: str | None = None,
    # the class list that labels count in; None takes the classes that occur
    classes: Sequence[str] | None = None,
    # columns of a table that are no feature, such as a row number; those that it has not are no error
    drop: Sequence[str] = (),
    # of images of more than 8 bits a pixel, as :func:`read_inputs` takes it; a schema has its own
    window: Window | None = None,
    # what the campaign's inputs are, by which each cell and each image is read; other columns are
    # excluded. None: inferred from the file: the most frequent image size, all cells of a column.
    schema: Schema | None = None,
    # collects unreadable cells and records. The records are excluded, each by itself, without effect on
    # others. None: the first of them is an error.
    odd: Odd | None = None,
    # format of a table's cells; its words for no value are those of all labels and groups
    reading: Reading = PLAIN,
    # in place of ``label``, columns of yes or no, or such arrays of an archive
    labels: Sequence[str] = (),
    # in place of ``label``, a column of numbers, or such an array of an archive
    number: str | None = None,
    # makes embeddings of the records, as of :func:`read_raw`; not used if they are
    # embeddings already, or a schema is of other inputs
    encoder: Embedder | None = None,
    text: str | None = None,  # the column of texts that an encoder takes
    dicom_labels: Path | None = None,  # the table of the labels of DICOM files
    # whether records of which none can be used are a data set without records, and no error: whether one
    # of them can be is nobody else's business. For problems that are collected, and a class list.
    none_fits: bool = False,
    # collects what is lost in reading images, and what may be read otherwise than intended, where ``odd``
    # does not
    notes: Odd | None = None,
) -> Dataset:
    """Return the labelled records at ``path``."""
    if (label is not None) + bool(labels) + (number is not None) > 1:
        raise UsageError("records have one class, several labels or a number: name one of them")
    if len(set(labels)) != len(labels) or NONE in labels:
        raise UsageError(f"a label is named twice, or {NONE!r}: {', '.join(labels)}")
    if window is not None:
        check_window(window)
    several, known = Several(tuple(labels), number), schema is not None
    schema = schema or Schema(window=window)
    wanted = None
    if encoder is not None or (
        schema.encoder is not None
        and (text is not None or dicom_labels is not None or raw_at(path))
    ):
        wanted = require_encoder(schema, encoder)
    _require_encoder(encoder, text, dicom_labels)
    asked = _Asked(label, group, several, schema, known, odd, notes, reading, drop, none_fits)
    found = _found(path, asked, wanted, text, dicom_labels)
    # An array's numbers have a point, whatever their owner's tables have.
    of_file = reading.of_arrays if _is_archive(found.raw.path) else reading
    return joined(
        found.raw, found.inputs, several, classes=found.classes if classes is None else classes,
        good=found.good, odd=odd, reading=of_file, none_fits=none_fits,
    )  # fmt: skip


class _Asked(NamedTuple):
    """What a caller wants of the records of a file."""

    label: str | None
    group: str | None
    several: Several
    schema: Schema
    known: bool  # whether the schema is a campaign's
    odd: Odd | None
    notes: Odd | None
    reading: Reading
    drop: Sequence[str]
    none_fits: bool = False
    flat: bool = False  # whether neither classes nor groups are wanted, as of a public set


class _Found(NamedTuple):
    """Records and what became of them: inputs, and which are usable; None: all."""

    raw: Raw
    inputs: Inputs
    good: NDArray[np.bool_] | None = None
    classes: Sequence[str] | None = None  # the file's own list


def _found(
    path: Path, asked: _Asked, encoder: Embedder | None, text: str | None, dicom_labels: Path | None
) -> _Found:
    """Return the records at a path: as embeddings, or by their own values."""
    if encoder is not None:
        raw = _raw(path, encoder.source, asked, text, dicom_labels)
        if raw is not None:
            if raw.names is None and not asked.several and not asked.flat:
                raise UsageError(f"{raw.path} is a table; name its label column with --label")
            raw = replace(raw, names=_with_label(raw.names, asked.reading))
            window = asked.schema.window
            return _Found(
                raw, *embedded(raw, encoder, window, asked.odd, none_fits=asked.none_fits)
            )
    schema, known = asked.schema, asked.known
    found = locate(path, flat=asked.flat)
    if is_table(found):
        _require_kind(found, "a table", not known or schema.numeric is not None, schema)
        return _of_table(found, asked)
    if not (known and schema.encoder is not None):
        _require_kind(found, "images", not known or schema.size is not None, schema)
    if _is_archive(found):
        return _of_archive(found, asked, encoder)
    _require_no_columns(found, asked)
    require_encoder(schema, None)
    if found.is_dir():
        return _of_folder(found, asked)
    pixels = images.read_idx_images(found)
    held = _in_colour(Images(pixels, schema.window), schema)
    return _Found(_of_idx(found, pixels, flat=asked.flat), held)


def read_raw(path: Path, source: str, *, flat: bool = False, odd: Odd | None = None) -> Raw | None:
    """Return the raw records at ``path`` for an encoder of a source; None if they are embeddings already."""
    asked = _Asked(None, None, Several((), None), Schema(), False, odd, odd, PLAIN, (), flat=flat)
    return _raw(path, source, asked, None, None)


def _raw(
    path: Path, source: str, asked: _Asked, text: str | None, dicom_labels: Path | None
) -> Raw | None:
    """Return texts, DICOM files, or images of any sizes, each read as it is asked for."""
    window, flat, odd, reading = asked.schema.window, asked.flat, asked.odd, asked.reading
    if path.is_file() and _is_archive(path) and Archive(path).has_embeddings:
        return None
    roles: Any = {
        "label": asked.label, "group": asked.group, "columns": asked.several.columns, "flat": flat,
        "odd": odd, "reading": reading,
    }  # fmt: skip
    if source == "texts":
        if dicom_labels is not None or window is not None:
            raise UsageError("--dicom-labels and --window are for images; the encoder takes texts")
        return read_texts(path, text, **roles)
    if text is not None:
        raise UsageError("--text is for an encoder of texts; this one takes images")
    if dicom_labels is not None or only_dicom(path):
        return read_dicom(path, window=window, table=dicom_labels, **roles)
    found = locate(path, flat=flat)
    if is_table(found):
        raise UsageError(f"--encoder is for images, and {found} is a table")
    if _is_archive(found):
        archive = Archive(found, odd, reading, label=asked.label, public=flat)
        if archive.has_embeddings:
            return None
        shape, stream = archive.one_by_one(window)
        return _of_arrays(archive, found, shape[0], asked, stream)
    _require_no_columns(found, asked)
    if found.is_dir():
        return _of_files(found, asked)[0]
    return _of_idx(found, images.read_idx_images(found), flat=flat)


def _of_idx(found: Path, pixels: NDArray[np.uint8], *, flat: bool) -> Raw:
    names = None if flat else images.read_idx_labels(images.labels_beside(found))
    return Raw(found, len(pixels), lambda: iter(pixels), names)


def _of_table(found: Path, asked: _Asked) -> _Found:
    label, group, several, schema = asked[:4]
    if label is None and not several and not asked.flat:
        raise UsageError(f"{found} is a table; name its label column with --label")
    if label is not None and label == group:
        raise UsageError(f"column {label!r} cannot be both the label and the group")
    if group in several.columns:
        raise UsageError(f"column {group!r} cannot be both a label and the group")
    roles = (*several.columns, *filter(None, [label, group]))
    wanted = partial(is_wanted, roles, asked.drop, schema.numeric)
    table = read_table(found, asked.odd, asked.reading, wanted=wanted)
    names = None if label is None else table.column(label, "label")
    cells = {name: table.cells(name, "label") for name in several.columns}
    groups = None if group is None else np.array(table.column(group, OF_GROUPS), dtype=np.str_)
    inputs = table.table((*roles, *asked.drop), numeric=schema.numeric, notes=asked.notes)
    noted = asked.odd if asked.notes is None else asked.notes
    if several.number is not None and noted is not None:
        table.note_points(several.number, noted)
    raw = Raw(found, len(inputs), lambda: iter(()), names, groups, cells, table.place)
    return _Found(raw, inputs if asked.flat else inputs.plain())


def _of_archive(found: Path, asked: _Asked, encoder: Embedder | None) -> _Found:
    """Return the images or embeddings of an archive."""
    schema = asked.schema
    archive = Archive(found, asked.odd, asked.reading, label=asked.label, public=asked.flat)
    raw = _of_arrays(archive, found, 0, asked)
    listed = None if asked.flat or asked.several else archive.declared_classes()
    made = archive.embeddings()
    if made is not None:
        if encoder is not None and asked.flat:
            require_encoder(Schema.of(made), encoder)
        if schema not in (Schema(window=schema.window), Schema.of(made)):
            raise SchemaError(
                f"the campaign's inputs are {schema.in_words()}, our data is {made.schema()}"
            )
        return _Found(raw, made, classes=listed)
    require_encoder(schema, None)
    held, good = archive.images(schema.window)
    if not good.any() and not asked.none_fits and not asked.flat:
        raise none_usable(found, asked.odd)
    return _Found(raw, _in_colour(held, schema), good, listed)


def _of_arrays(
    archive: Archive,
    found: Path,
    count: int,
    asked: _Asked,
    stream: Callable[[], Iterator[NDArray[np.uint8] | None]] = lambda: iter(()),
) -> Raw:
    """Return what an archive's arrays say of its records."""
    if asked.flat:
        return Raw(found, count, stream)
    columns = asked.several.columns
    names = None if columns else archive.labels()
    groups = archive.groups(asked.group)
    return Raw(found, count, stream, names, groups, {name: archive.cells(name) for name in columns})


def _of_files(folder: Path, asked: _Asked) -> tuple[Raw, list[Path]]:
    """Return what the names in a folder of images say, and its files."""
    odd = asked.odd
    if asked.flat:
        files = [("", path) for path in images.all_files(folder)]
    else:
        files = images.class_files(folder, odd)
    paths = [path for _, path in files]
    names = None if asked.flat else _with_label([name for name, _ in files], asked.reading)
    notes = asked.notes if odd is None else odd
    stream = partial(images.each_picture, paths, asked.schema.window, odd, notes)

    def place(at: int) -> str:
        return f"{paths[at].parent.name}/{paths[at].name}"

    return Raw(folder, len(paths), stream, names, place=place), paths


def _of_folder(found: Path, asked: _Asked) -> _Found:
    """Return the images of a folder that have one size."""
    (raw, paths), schema, odd = _of_files(found, asked), asked.schema, asked.odd
    if odd is None:
        held = images.read_images(paths, schema.window, asked.notes)
        return _Found(raw, _in_colour(held, schema))
    held, kept = images.read_fitting(paths, odd, schema.size, schema.window)
    if not kept and not asked.none_fits:
        error = none_usable(found, odd)
        why = f"no image of {found} can be used: {'; '.join(odd.reasons)}"
        raise error if isinstance(error, DeepImagesError) else SchemaError(why)
    names = [(raw.names or [])[at] for at in kept]
    return _Found(replace(raw, names=names, place=lambda at: raw.place(kept[at])), held)


def _is_archive(path: Path) -> bool:
    return path.name.casefold().endswith(".npz")


def read_inputs(
    path: Path,  # as for :func:`read_dataset`; a folder of images may also be flat
    *,
    drop: Sequence[str] = (),  # columns of a table to leave out; those that it has not are no error
    # the values that become black and white in images of more than 8 bits a pixel; server and parties
    # read their images by it
    window: Window | None = None,
    # called with a line for each kind of image that may be read otherwise than intended
    say: Callable[[str], None] | None = None,
    encoder: Embedder | None = None,  # as of :func:`read_dataset`
    text: str | None = None,  # as of :func:`read_dataset`
) -> Inputs:
    """Return the inputs of a public set; labels are ignored.

    The kinds of a table's columns are inferred from its cells, which are public. Its format is not: numbers
    with a separator of thousands or a decimal comma are an error.
    """
    if window is not None:
        check_window(window)
    _require_encoder(encoder, text, None)
    odd = Odd()
    asked = _Asked(
        None, None, Several((), None), Schema(window=window), False, None, odd, PLAIN, drop, flat=True
    )  # fmt: skip
    found = _found(path, asked, encoder, text, None)
    if isinstance(found.inputs, Table) and window is not None:
        raise UsageError(f"--window is for images, and {found.raw.path} is a table")
    if not len(found.inputs):
        raise DataError(f"{found.raw.path} holds no records")
    if say is not None:
        for line in odd.lines():
            say(f"{found.raw.path}: {line}")
    return found.inputs


def read_table(
    path: Path,
    odd: Odd | None = None,
    reading: Reading = PLAIN,
    *,
    wanted: Callable[[str], bool] = is_named,
) -> TextTable:
    """Return the unparsed cells of the table at ``path``."""
    found = locate(path, flat=True)
    if not is_table(found):
        raise DataError(f"{found} is no table")
    return lines.read_table_file(found, odd, reading=reading, wanted=wanted)


def _require_encoder(encoder: Embedder | None, text: str | None, table: Path | None) -> None:
    if encoder is None and (text is not None or table is not None):
        option = "--text" if text is not None else "--dicom-labels"
        what = "texts" if text is not None else "DICOM files"
        raise UsageError(
            f"{option} is for records that an encoder reads: a campaign of {what} needs one, --encoder DIR"
        )


def _require_no_columns(found: Path, asked: _Asked) -> None:
    if asked.label is not None or asked.group is not None or asked.several:
        raise UsageError(
            f"{found} has no columns, so --label and --group cannot name one; "
            "for images with groups use an .npz with an array 'groups', or DICOM files"
        )


def _with_label(names: Sequence[str] | None, reading: Reading) -> list[str]:
    """Return names of folders, "" for the words that the owner names."""
    names = names or []
    nothing = set(filter(reading.is_missing, names))
    return ["" if name in nothing else name for name in names]


def _require_kind(path: Path, what: str, fits: bool, schema: Schema) -> None:
    if not fits:
        raise SchemaError(f"the campaign's inputs are {schema.in_words()}, {path} holds {what}")


def _in_colour(held: Images, schema: Schema) -> Images:
    """Return grey images repeated over the three channels of a campaign in colour."""
    if schema.size is None or schema.size == held.size:
        return held
    if (*held.size[:2], 3) == schema.size and held.size[2] == 1:
        return Images(np.repeat(held.pixels, 3, axis=3), held.window)
    raise SchemaError(
        f"the campaign's inputs are {schema.in_words()}, our data is {Schema.of(held).in_words()}"
    )
