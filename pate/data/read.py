"""Reading data sets from a path, whatever the format.

========================  ==========================================================
what lies at the path     how it is told
========================  ==========================================================
folder of class folders   it has folders that hold image files
IDX files                 ``*images-idx3-ubyte``, labels beside it, each also ``.gz``
NumPy archive             ``.npz``; see :mod:`pate.data.files.npz` for the keys
table                     ``.csv`` or ``.tsv``, each also ``.gz``, or ``.parquet``; see
                          :mod:`pate.data.files.tables` and :mod:`pate.data.files.parquet`
folder                    it holds exactly one of the files above, or ``MNIST/raw``
========================  ==========================================================

Column names, the kind of each column and image sizes are a schema that all parties of a campaign
share; they count as public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np

from pate.answers import NONE
from pate.data.cells import PLAIN, Reading
from pate.data.embeddings import Embeddings
from pate.data.encoded import embedded, embedded_files, require_encoder
from pate.data.files import idx, images, parquet, tables
from pate.data.files.npz import Archive
from pate.data.labels import encode_labels
from pate.data.odd import Odd
from pate.data.schema import Schema
from pate.data.several import Several, several_dataset
from pate.data.values import Dataset, Images, Inputs, check_window
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.encoded import Embedder
    from pate.data.values import Window

#: How the names of tables end.
TABLE_SUFFIXES: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
_FORMATS: Final = f"class folders of images, .npz, IDX files, {', '.join(TABLE_SUFFIXES)}"


def read_dataset(
    path: Path,
    *,
    label: str | None = None,
    group: str | None = None,
    classes: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    window: Window | None = None,
    schema: Schema | None = None,
    odd: Odd | None = None,
    reading: Reading = PLAIN,
    labels: Sequence[str] = (),
    number: str | None = None,
    encoder: Embedder | None = None,
) -> Dataset:
    """Return the labelled records at ``path``.

    Args:
        path: a file or folder in one of the formats of this module.
        label: the label column of a table; for an archive the key of its labels.
        group: the column of a table that names the group (patient) of each row; for an archive
            the key of its groups.
        classes: the class list that labels count in; None takes the classes that occur.
        drop: columns of a table that are no feature, such as a row number; those that it has not
            are no error.
        window: of images of more than 8 bits a pixel, as :func:`read_inputs` takes it; a schema has its
            own.
        schema: what the campaign's inputs are, by which each cell and each image is read; other columns
            are excluded. None: inferred from the file: the most frequent image size, all cells of a
            column.
        odd: collects unreadable cells and records. The records are excluded, each by itself, without
            effect on others. None: the first of them is an error.
        reading: format of a table's cells.
        labels: in place of ``label``, columns of yes or no, or such arrays of an archive.
        number: in place of ``label``, a column of numbers, or such an array of an archive.
        encoder: by which images of any sizes are embedded as they are read; not used if the schema is of
            plain inputs.

    Raises:
        DataError: if there is nothing there, or what is there cannot be used.
        SchemaError: if a label is not in ``classes``, nothing is of the schema, or its encoder is
            another one than ours.
        UsageError: if ``label`` or ``group`` is given for data that has no columns, no
            ``label`` for a table, or more than one of ``label``, ``labels`` and ``number``.
    """
    if (label is not None) + bool(labels) + (number is not None) > 1:
        raise UsageError("records have one class, several labels or a number: name one of them")
    if len(set(labels)) != len(labels) or NONE in labels:
        raise UsageError(f"a label is named twice, or {NONE!r}: {', '.join(labels)}")
    several = Several(tuple(labels), number)
    found = _locate(path, flat=False)
    known = schema is not None
    if window is not None:
        check_window(window)
    schema = schema or Schema(window=window)
    if _is_table(found):
        _require_kind(found, "a table", not known or schema.numeric is not None, schema)
        if label is None and not several:
            raise UsageError(f"{found} is a table; name its label column with --label")
        if label is not None and label == group:
            raise UsageError(f"column {label!r} cannot be both the label and the group")
        _refuse_encoder(found, encoder if schema.numeric is None else None)
        text = _read_table(found, odd)
        if several:
            return _several_of_table(text, several, group, drop, schema.numeric, odd, reading)
        assert label is not None  # noqa: S101 - checked
        return _table_dataset(text, label, group, classes, drop, schema.numeric, odd, reading)
    if not (known and schema.encoder is not None):
        _require_kind(found, "images", not known or schema.size is not None, schema)
    if found.name.casefold().endswith(".npz"):
        archive = Archive(found, odd)
        held: Inputs
        if several:
            held, good = _inputs_of(archive, schema, encoder, odd)
            cells = [archive.cells(name) for name in several.columns]
            return several_dataset(
                held, several, cells, archive.groups(group), found, good=good, odd=odd
            )
        names = archive.labels(label)
        listed = archive.declared_classes() if classes is None else classes
        groups = archive.groups(group)
        held, good = _inputs_of(archive, schema, encoder, odd)
        if not good.any() and not isinstance(held, Embeddings):
            Archive(found).images(schema.window)  # says what is wrong, and what to do
        return _dataset(held, names, listed, groups, found, good=good, odd=odd)
    if label is not None or group is not None or several:
        raise UsageError(
            f"{found} has no columns, so --label and --group cannot name one; "
            "for images with groups use an .npz with an array 'groups'"
        )
    encoder = require_encoder(schema, encoder)
    if found.is_dir():
        files = images.class_files(found, odd)
        if encoder is not None:
            held, good = embedded_files([file for _, file in files], encoder, schema.window, odd)
            if not good.any() and odd is not None:
                _nothing_of(found, odd)
            names = [name for name, _ in files]
            places = [f"{file.parent.name}/{file.name}" for _, file in files]
            return _dataset(
                held, names, classes, None, found, good=good, odd=odd, place=places.__getitem__
            )
        if odd is None:
            held = images.read_images([file for _, file in files], schema.window)
            held = _in_colour(held, schema)
        else:
            paths = [file for _, file in files]
            held, kept = images.read_fitting(paths, odd, schema.size, schema.window)
            if not kept:
                _nothing_of(found, odd)
            files = [files[at] for at in kept]
        names = [name for name, _ in files]
        places = [f"{file.parent.name}/{file.name}" for _, file in files]
        return _dataset(held, names, classes, None, found, odd=odd, place=places.__getitem__)
    names = idx.read_idx_labels(idx.labels_beside(found))
    pictures = Images(idx.read_idx_images(found), schema.window)
    if encoder is not None:
        held, good = embedded(
            pictures.pixels, len(pictures), encoder, window=schema.window, odd=odd
        )
        return _dataset(held, names, classes, None, found, good=good, odd=odd)
    return _dataset(_in_colour(pictures, schema), names, classes, None, found, odd=odd)


def read_inputs(
    path: Path,
    *,
    drop: Sequence[str] = (),
    window: Window | None = None,
    say: Callable[[str], None] | None = None,
    encoder: Embedder | None = None,
) -> Inputs:
    """Return the inputs of a public set; labels are ignored.

    The kinds of a table's columns and its decimal separator are inferred from its cells, which are public.

    Args:
        path: as for :func:`read_dataset`; a folder of images may also be flat.
        drop: columns of a table to leave out; those that it has not are no error.
        window: the values that become black and white in images of more than 8 bits a pixel; server and
            parties read their images by it.
        say: called with a line for each kind of image that may be read otherwise than intended.
        encoder: by which images of any sizes are embedded as they are read.

    Raises:
        DataError: if there is nothing there, or what is there cannot be used.
        SchemaError: if there are embeddings by another encoder.
        UsageError: if a window is given for a table.
    """
    found = _locate(path, flat=True)
    if window is not None:
        check_window(window)
    inputs: Inputs
    odd = Odd()
    if _is_table(found):
        if window is not None:
            raise UsageError(f"--window is for images, and {found} is a table")
        _refuse_encoder(found, encoder)
        text = _read_table(found)
        inputs = text.table(tuple(drop), reading=Reading(comma=text.writes_commas(drop)))
    elif found.name.casefold().endswith(".npz"):
        archive = Archive(found)
        embeddings = archive.embeddings()
        inputs = embeddings or archive.images(window)
        if embeddings is not None and encoder is not None:
            require_encoder(Schema.of(embeddings), encoder)
    elif found.is_dir() and encoder is not None:
        inputs, _ = embedded_files(images.all_files(found), encoder, window, None)
    elif found.is_dir():
        inputs = images.read_images(images.all_files(found), window, odd)
    else:
        inputs = Images(idx.read_idx_images(found), window)
    if isinstance(inputs, Images) and encoder is not None:
        inputs, _ = embedded(inputs.pixels, len(inputs), encoder, window=window)
    if not len(inputs):
        raise DataError(f"{found} holds no records")
    if say is not None:
        for line in odd.lines():
            say(f"{found}: {line}")
    return inputs


def raw_images(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Yield the images at ``path`` as they are, of any sizes; labels are ignored.

    Raises:
        DataError: if there is none, or one cannot be read.
    """
    found = _locate(path, flat=True)
    if _is_table(found):
        raise DataError(f"{found} is a table, not images")
    if found.is_dir():
        for file in images.all_files(found):
            yield images.read_one(file, None)
    elif found.name.casefold().endswith(".npz"):
        yield from Archive(found).images().pixels
    else:
        yield from idx.read_idx_images(found)


def read_table(path: Path, odd: Odd | None = None) -> tables.TextTable:
    """Return the unparsed cells of the table at ``path``.

    Args:
        path: a file, or a folder with one.
        odd: as of :func:`read_dataset`.

    Raises:
        DataError: if there is no table, or it cannot be read.
    """
    found = _locate(path, flat=True)
    if not _is_table(found):
        raise DataError(f"{found} is no table")
    return _read_table(found, odd)


def require_there(path: Path) -> None:
    """Check that ``path`` exists in a readable format; its content is not read.

    Raises:
        DataError: if not.
    """
    _locate(path, flat=False)


def _locate(path: Path, *, flat: bool) -> Path:
    """Return the one file, or the folder of images, that ``path`` stands for."""
    if path.is_file():
        if _is_readable(path):
            return path
        raise DataError(f"{path} is of no format that can be read; use {_FORMATS}")
    if not path.is_dir():
        raise DataError(f"there is no file or folder at {path}; check the path")
    if (path / "MNIST" / "raw").is_dir():  # where torchvision keeps MNIST
        path = path / "MNIST" / "raw"
    held = images.entries(path)
    sets = idx.image_files(path)
    if len(sets) > 1 and not flat:
        # MNIST's own layout: the test images are not training data.
        sets = [file for file in sets if file.name.startswith("train")] or sets
    readable = [
        *sets,
        *(file for file in held if _is_readable(file) and not idx.is_idx_images(file)),
    ]
    if any(folder.is_dir() and images.holds_images(folder) for folder in held):
        return path
    if flat and images.holds_images(path):
        return path
    if len(readable) == 1:
        return readable[0]
    if readable:
        names = ", ".join(file.name for file in readable[:5])
        raise DataError(f"{path} holds several data files ({names}); give the path of one")
    if images.holds_images(path):
        raise DataError(f"{path} holds images outside of class folders; make one folder a class")
    raise DataError(f"{path} holds nothing that can be read; use {_FORMATS}")


def _is_table(path: Path) -> bool:
    return path.is_file() and path.name.casefold().endswith(TABLE_SUFFIXES)


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        _is_table(path) or path.name.casefold().endswith(".npz") or idx.is_idx_images(path)
    )


def _read_table(path: Path, odd: Odd | None = None) -> tables.TextTable:
    if path.name.casefold().endswith(".parquet"):
        return parquet.read_parquet(path, odd)
    return tables.read_csv(path, odd)


def _require_kind(path: Path, what: str, fits: bool, schema: Schema) -> None:
    if not fits:
        raise SchemaError(f"the campaign's inputs are {schema.in_words()}, {path} holds {what}")


def _inputs_of(
    archive: Archive, schema: Schema, encoder: Embedder | None, odd: Odd | None
) -> tuple[Images | Embeddings, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return the images or embeddings of an archive, and (n,) which are usable."""
    embeddings = archive.embeddings()
    if embeddings is not None:
        if schema not in (Schema(window=schema.window), Schema.of(embeddings)):
            raise SchemaError(
                f"the campaign's inputs are {schema.in_words()}, our data is {embeddings.schema()}"
            )
        return embeddings, np.ones(len(embeddings), dtype=np.bool_)
    encoder = require_encoder(schema, encoder)
    pictures, good = archive.usable_images(schema.window)
    if encoder is None:
        return _in_colour(pictures, schema), good
    rows = np.flatnonzero(good).tolist()
    held, fine = embedded(
        (pictures.pixels[at] for at in rows), len(rows), encoder, window=schema.window, odd=odd,
        place=lambda row: f"record {rows[row] + 1}",
    )  # fmt: skip
    values = np.zeros((len(pictures), encoder.width), dtype=np.int16)
    values[good] = held.values
    usable = np.zeros(len(pictures), dtype=np.bool_)
    usable[good] = fine
    return Embeddings(values, held.source, held.encoder), usable


def _nothing_of(found: Path, odd: Odd) -> NoReturn:
    """Say why no image of a folder can be used."""
    reasons = "; ".join(odd.reasons)
    if images.DEEP in reasons:
        raise images.DeepImagesError(f"no image of {found} can be used: {reasons}; {images.WINDOW}")
    raise SchemaError(f"no image of {found} can be used: {reasons}")


def _refuse_encoder(found: Path, encoder: Embedder | None) -> None:
    if encoder is not None:
        raise UsageError(f"--encoder is for {encoder.source}, and {found} is a table")


def _in_colour(held: Images, schema: Schema) -> Images:
    """Return grey images repeated over the three channels of a campaign in colour."""
    if schema.size is None or schema.size == held.size:
        return held
    if (*held.size[:2], 3) == schema.size and held.size[2] == 1:
        return Images(np.repeat(held.pixels, 3, axis=3), held.window)
    raise SchemaError(
        f"the campaign's inputs are {schema.in_words()}, our data is {Schema.of(held).in_words()}"
    )


def _several_of_table(
    text: tables.TextTable,
    several: Several,
    group: str | None,
    drop: Sequence[str],
    numeric: Mapping[str, bool] | None,
    odd: Odd | None,
    reading: Reading,
) -> Dataset:
    if group in several.columns:
        raise UsageError(f"column {group!r} cannot be both a label and the group")
    cells = [text.cells(name, "label") for name in several.columns]
    groups = None if group is None else np.array(text.column(group, "group"), dtype=np.str_)
    told = (*several.columns, *drop) if group is None else (*several.columns, group, *drop)
    inputs = text.table(told, numeric=numeric, reading=reading).plain()
    return several_dataset(
        inputs, several, cells, groups, text.path, odd=odd, place=text.place, reading=reading
    )


def _table_dataset(
    text: tables.TextTable,
    label: str,
    group: str | None,
    classes: Sequence[str] | None,
    drop: Sequence[str],
    numeric: Mapping[str, bool] | None,
    odd: Odd | None,
    reading: Reading,
) -> Dataset:
    path = text.path
    names = text.column(label, "label")
    groups = None if group is None else np.array(text.column(group, "group"), dtype=np.str_)
    told = (label,) if group is None else (label, group)
    inputs = text.table((*told, *drop), numeric=numeric, reading=reading).plain()
    return _dataset(inputs, names, classes, groups, path, odd=odd, place=text.place)


def _dataset(
    inputs: Inputs,
    names: Sequence[str],
    classes: Sequence[str] | None,
    groups: np.ndarray[tuple[int], np.dtype[np.str_]] | None,
    path: Path,
    *,
    good: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None,
    odd: Odd | None,
    place: Callable[[int], str] = lambda row: f"record {row + 1}",
) -> Dataset:
    """Join inputs, labels and groups, and exclude the records that lack one."""
    if len(names) != len(inputs) or (groups is not None and len(groups) != len(inputs)):
        raise DataError(f"{path} has {len(inputs)} inputs and {len(names)} labels")
    labels, known = encode_labels(names, classes, path=path, odd=odd, place=place)
    if odd is None:
        return Dataset(inputs, labels, known, groups)
    whole = labels >= 0 if good is None else good & (labels >= 0)
    if groups is not None:
        for row in np.flatnonzero(whole & (groups == "")).tolist():
            odd.record("it has no group", place(row))
        whole &= groups != ""
    if not whole.any():
        encode_labels(names, classes, path=path)  # says so, if it is for the labels
        raise DataError(f"{path} has no record that can take part: {'; '.join(odd.reasons)}")
    if whole.all():
        return Dataset(inputs, labels, known, groups)
    kept = np.flatnonzero(whole)
    if classes is None:  # without classes that only excluded records have
        labels, known = encode_labels([names[at] for at in kept.tolist()], None, path=path)
    else:
        labels = labels[kept]
    return Dataset(inputs.take(kept), labels, known, None if groups is None else groups[kept])
