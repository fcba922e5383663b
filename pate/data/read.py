"""Reading data sets from a path, whatever the format.

Formats: :mod:`pate.data.locate`. With an encoder, records are read one at a time and become embeddings.

Column names, the kind of each column and image sizes are a schema that all parties of a campaign
share; they count as public.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pate.answers import NONE
from pate.data.cells import PLAIN, Reading
from pate.data.encoded import require_encoder
from pate.data.files import images, lines, parquet, pictures, tables
from pate.data.files.npz import Archive
from pate.data.labels import clean_name, encode_labels
from pate.data.locate import TABLE_SUFFIXES, is_table, locate, raw_at, require_there
from pate.data.odd import Odd
from pate.data.read_raw import embedded, read_raw
from pate.data.records import Several, several_dataset
from pate.data.schema import Schema
from pate.data.values import Dataset, Images, Inputs, check_window
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.embeddings import Embeddings
    from pate.data.encoded import Embedder
    from pate.data.values import Window

__all__ = [
    "TABLE_SUFFIXES", "is_wanted", "read_dataset", "read_inputs", "read_table", "require_there",
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
    # makes embeddings of the records, as of :func:`~pate.data.read_raw.read_raw`; not used if they are
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
    asked = _Asked(label, group, several, schema, known, odd, notes, reading, none_fits)
    held = _of_encoder(path, asked, encoder, text, dicom_labels) or _of_file(path, asked, drop)
    if several:
        cells = [held.cells[name] for name in several.columns]
        # An array's numbers have a point, whatever their owner's tables have.
        of_file = reading.of_arrays if _is_archive(held.path) else reading
        return several_dataset(
            held.inputs, several, cells, held.groups, held.path, good=held.good, odd=odd,
            place=held.place, reading=of_file, none_fits=none_fits,
        )  # fmt: skip
    return _dataset(held, held.classes if classes is None else classes, asked)


class _Asked(NamedTuple):
    """What a caller of :func:`read_dataset` wants of its records."""

    label: str | None
    group: str | None
    several: Several
    schema: Schema
    known: bool
    odd: Odd | None
    notes: Odd | None
    reading: Reading
    none_fits: bool


class _Held(NamedTuple):
    """Inputs, and what their file says of each: a class, a group, cells; and which ones are usable."""

    path: Path
    inputs: Inputs
    names: Sequence[str]
    groups: NDArray[np.str_] | None = None
    cells: Mapping[str, Sequence[str]] = MappingProxyType({})
    place: Callable[[int], str] = lambda row: f"record {row + 1}"
    good: NDArray[np.bool_] | None = None
    classes: Sequence[str] | None = None


def _of_file(path: Path, asked: _Asked, drop: Sequence[str]) -> _Held:
    """Return what is in a file or folder, whose own values are the inputs."""
    schema, known = asked.schema, asked.known
    found = locate(path, flat=False)
    if is_table(found):
        _require_kind(found, "a table", not known or schema.numeric is not None, schema)
        return _of_table(found, asked, drop)
    if not (known and schema.encoder is not None):
        _require_kind(found, "images", not known or schema.size is not None, schema)
    if _is_archive(found):
        return _of_archive(found, asked)
    if asked.label is not None or asked.group is not None or asked.several:
        raise UsageError(
            f"{found} has no columns, so --label and --group cannot name one; "
            "for images with groups use an .npz with an array 'groups'"
        )
    require_encoder(schema, None)
    if found.is_dir():
        return _of_folder(found, asked)
    pixels = _in_colour(Images(images.read_idx_images(found), schema.window), schema)
    return _Held(found, pixels, images.read_idx_labels(images.labels_beside(found)))


def _of_table(found: Path, asked: _Asked, drop: Sequence[str]) -> _Held:
    label, group, several, schema = asked[:4]
    if label is None and not several:
        raise UsageError(f"{found} is a table; name its label column with --label")
    if label is not None and label == group:
        raise UsageError(f"column {label!r} cannot be both the label and the group")
    if group in several.columns:
        raise UsageError(f"column {group!r} cannot be both a label and the group")
    roles = (*several.columns, *filter(None, [label, group]))
    wanted = partial(is_wanted, roles, drop, schema.numeric)
    table = read_table(found, asked.odd, asked.reading, wanted=wanted)
    names = [] if label is None else table.column(label, "label")
    cells = {name: table.cells(name, "label") for name in several.columns}
    groups = None if group is None else np.array(table.column(group, "group"), dtype=np.str_)
    inputs = table.table((*roles, *drop), numeric=schema.numeric, notes=asked.notes).plain()
    noted = asked.odd if asked.notes is None else asked.notes
    if several.number is not None and noted is not None:
        table.note_points(several.number, noted)
    return _Held(found, inputs, names, groups, cells, table.place)


def _of_archive(found: Path, asked: _Asked) -> _Held:
    archive = Archive(found, asked.odd, asked.reading, label=asked.label)
    names = [] if asked.several else archive.labels()
    listed = None if asked.several else archive.declared_classes()
    cells = {name: archive.cells(name) for name in asked.several.columns}
    groups = archive.groups(asked.group)
    inputs, good = _inputs_of(archive, asked.schema)
    if not good.any() and not asked.none_fits:
        archive.images(asked.schema.window)  # says what is wrong, and what to do
    return _Held(found, inputs, names, groups, cells, good=good, classes=listed)


def _of_folder(found: Path, asked: _Asked) -> _Held:
    schema, odd = asked.schema, asked.odd
    files = images.class_files(found, odd)
    paths = [file for _, file in files]
    if odd is None:
        held = _in_colour(images.read_images(paths, schema.window, asked.notes), schema)
    else:
        held, kept = images.read_fitting(paths, odd, schema.size, schema.window)
        if not kept and not asked.none_fits:
            reasons = "; ".join(odd.reasons)
            said = f"no image of {found} can be used: {reasons}"
            if pictures.DEEP in reasons:
                raise pictures.DeepImagesError(f"{said}; {pictures.WINDOW}")
            raise SchemaError(said)
        files = [files[at] for at in kept]
    places = [f"{file.parent.name}/{file.name}" for _, file in files]
    names = _with_label([name for name, _ in files], asked.reading)
    return _Held(found, held, names, place=places.__getitem__)


def _of_encoder(
    path: Path, asked: _Asked, encoder: Embedder | None, text: str | None, dicom_labels: Path | None
) -> _Held | None:
    """Return the records as embeddings; None if their own values are the inputs."""
    schema = asked.schema
    raw_only = text is not None or dicom_labels is not None or raw_at(path)
    wanted = None
    if encoder is not None or (schema.encoder is not None and raw_only):
        wanted = require_encoder(schema, encoder)
    _require_encoder(encoder, text, dicom_labels)
    if wanted is None:
        return None
    raw = read_raw(
        path,
        wanted.source,
        text=text,
        dicom_labels=dicom_labels,
        label=asked.label,
        group=asked.group,
        columns=asked.several.columns,
        window=schema.window,
        odd=asked.odd,
        notes=asked.notes,
        reading=asked.reading,
    )
    if raw is None:
        return None
    if raw.names is None and not asked.several:
        raise UsageError(f"{raw.path} is a table; name its label column with --label")
    inputs, good = embedded(raw, wanted, none_fits=asked.none_fits)
    names = _with_label(raw.names or [], asked.reading)
    return _Held(raw.path, inputs, names, raw.groups, raw.cells, raw.place, good)


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
    inputs: Inputs
    odd, raw = Odd(), None
    if encoder is not None:
        raw = read_raw(path, encoder.source, text=text, window=window, flat=True, notes=odd)
    found = locate(path, flat=True) if raw is None else raw.path
    if raw is not None and encoder is not None:
        inputs, _ = embedded(raw, encoder)
    elif is_table(found):
        if window is not None:
            raise UsageError(f"--window is for images, and {found} is a table")
        table = read_table(found, wanted=partial(is_wanted, (), drop, None))
        inputs = table.table(tuple(drop), notes=odd)
    elif _is_archive(found):
        archive = Archive(found, public=True)
        made = archive.embeddings()
        if made is not None and encoder is not None:
            require_encoder(Schema.of(made), encoder)
        inputs = archive.images(window) if made is None else made
    elif found.is_dir():
        inputs = images.read_images(images.all_files(found), window, odd)
    else:
        inputs = Images(images.read_idx_images(found), window)
    if not len(inputs):
        raise DataError(f"{found} holds no records")
    if say is not None:
        for line in odd.lines():
            say(f"{found}: {line}")
    return inputs


def is_wanted(
    roles: Collection[str], drop: Collection[str], features: Collection[str] | None, name: str
) -> bool:
    """Return whether a column has a role or may be a feature."""
    if name in map(clean_name, roles):
        return True
    if name in map(clean_name, drop):
        return False
    return tables.is_named(name) if features is None else name in features


def read_table(
    path: Path,
    odd: Odd | None = None,
    reading: Reading = PLAIN,
    *,
    wanted: Callable[[str], bool] = tables.is_named,
) -> tables.TextTable:
    """Return the unparsed cells of the table at ``path``."""
    found = locate(path, flat=True)
    if not is_table(found):
        raise DataError(f"{found} is no table")
    read = parquet.read_parquet if found.name.casefold().endswith(".parquet") else lines.read_csv
    return read(found, odd, reading=reading, wanted=wanted)


def _require_encoder(encoder: Embedder | None, text: str | None, table: Path | None) -> None:
    if encoder is None and (text is not None or table is not None):
        option = "--text" if text is not None else "--dicom-labels"
        what = "texts" if text is not None else "DICOM files"
        raise UsageError(
            f"{option} is for records that an encoder reads: a campaign of {what} needs one, --encoder DIR"
        )


def _with_label(names: Sequence[str], reading: Reading) -> list[str]:
    """Return names of folders, "" for the words that the owner names."""
    nothing = set(filter(reading.is_missing, names))
    return ["" if name in nothing else name for name in names]


def _require_kind(path: Path, what: str, fits: bool, schema: Schema) -> None:
    if not fits:
        raise SchemaError(f"the campaign's inputs are {schema.in_words()}, {path} holds {what}")


def _inputs_of(archive: Archive, schema: Schema) -> tuple[Images | Embeddings, NDArray[np.bool_]]:
    """Return the images or embeddings of an archive, and (n,) which are usable."""
    embedded = archive.embeddings()
    if embedded is not None:
        if schema not in (Schema(window=schema.window), Schema.of(embedded)):
            raise SchemaError(
                f"the campaign's inputs are {schema.in_words()}, our data is {embedded.schema()}"
            )
        return embedded, np.ones(len(embedded), dtype=np.bool_)
    require_encoder(schema, None)
    held, good = archive.usable_images(schema.window)
    return _in_colour(held, schema), good


def _in_colour(held: Images, schema: Schema) -> Images:
    """Return grey images repeated over the three channels of a campaign in colour."""
    if schema.size is None or schema.size == held.size:
        return held
    if (*held.size[:2], 3) == schema.size and held.size[2] == 1:
        return Images(np.repeat(held.pixels, 3, axis=3), held.window)
    raise SchemaError(
        f"the campaign's inputs are {schema.in_words()}, our data is {Schema.of(held).in_words()}"
    )


def _dataset(held: _Held, classes: Sequence[str] | None, asked: _Asked) -> Dataset:
    """Join inputs, one class each and groups, and exclude the records that lack one."""
    path, inputs, names, groups, _, place, good, _ = held
    odd, none_fits = asked.odd, asked.none_fits
    if len(names) != len(inputs) or (groups is not None and len(groups) != len(inputs)):
        raise DataError(f"{path} has {len(inputs)} inputs and {len(names)} labels")
    if not names and none_fits and classes is not None:
        return Dataset(inputs, np.zeros(0, dtype=np.int64), tuple(classes), groups)
    labels, known = encode_labels(names, classes, path=path, odd=odd, place=place)
    if odd is None:
        return Dataset(inputs, labels, known, groups, said=np.array(names, dtype=np.str_))
    whole = labels >= 0 if good is None else good & (labels >= 0)
    if groups is not None:
        for row in np.flatnonzero(whole & (groups == "")).tolist():
            odd.record("it has no group", place(row))
        whole &= groups != ""
    if not whole.any() and (not none_fits or classes is None):
        encode_labels(names, classes, path=path)  # says so, if it is for the labels
        raise DataError(f"{path} has no record that can take part: {odd.none_left()}")
    kept = np.flatnonzero(whole)
    said = [names[at] for at in kept.tolist()]
    if classes is None:  # without classes that only excluded records have
        labels, known = encode_labels(said, None, path=path)
    else:
        labels = labels[kept]
    return Dataset(
        inputs if whole.all() else inputs.take(kept),
        labels,
        known,
        None if groups is None else groups[kept],
        said=np.array(said, dtype=np.str_),
    )
