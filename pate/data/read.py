"""Reading data sets from a path, whatever the format.

========================  ==========================================================
what lies at the path     how it is told
========================  ==========================================================
folder of class folders   it has folders that hold image files
IDX files                 ``*images-idx3-ubyte``, labels beside it, each also ``.gz``
NumPy archive             ``.npz``; see :mod:`pate.data.npz` for the keys
table                     ``.csv``, ``.csv.gz`` or ``.parquet``; see :mod:`pate.data.tables`
folder                    it holds exactly one of the files above, or ``MNIST/raw``
========================  ==========================================================

Column names, the kind of each column and image sizes are a schema that all parties of a campaign
share; they count as public.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data import idx, images, tables
from pate.data.labels import encode_labels
from pate.data.npz import Archive
from pate.data.values import Dataset, Images, Inputs
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TABLE_SUFFIXES: Final = (".csv", ".csv.gz", ".parquet")
_FORMATS: Final = "class folders of images, .npz, IDX files, .csv, .csv.gz or .parquet"


def read_dataset(
    path: Path,
    *,
    label: str | None = None,
    group: str | None = None,
    classes: Sequence[str] | None = None,
    drop: Sequence[str] = (),
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

    Raises:
        DataError: if there is nothing there, or what is there cannot be used.
        SchemaError: if a label is not in ``classes``.
        UsageError: if ``label`` or ``group`` is given for data that has no columns, or no
            ``label`` for a table.
    """
    found = _locate(path, flat=False)
    if _is_table(found):
        return _table_dataset(found, label, group, classes, drop)
    if found.name.casefold().endswith(".npz"):
        archive = Archive(found)
        names = archive.labels(label)
        listed = archive.declared_classes() if classes is None else classes
        groups = archive.groups(group)
        return _dataset(archive.images(), names, listed, groups, found)
    if label is not None or group is not None:
        raise UsageError(
            f"{found} has no columns, so --label and --group cannot name one; "
            "for images with groups use an .npz with an array 'groups'"
        )
    if found.is_dir():
        files = images.class_files(found)
        held = images.read_images([file for _, file in files])
        return _dataset(held, [name for name, _ in files], classes, None, found)
    pixels = Images(idx.read_idx_images(found))
    return _dataset(pixels, idx.read_idx_labels(idx.labels_beside(found)), classes, None, found)


def read_inputs(path: Path, *, drop: Sequence[str] = ()) -> Inputs:
    """Return the inputs of a public set; labels are not needed, and are ignored where present.

    Args:
        path: as for :func:`read_dataset`; a folder of images may also be flat.
        drop: columns of a table to leave out; those that it has not are no error.

    Raises:
        DataError: if there is nothing there, or what is there cannot be used.
    """
    found = _locate(path, flat=True)
    inputs: Inputs
    if _is_table(found):
        inputs = _read_table(found).table(tuple(drop))
    elif found.name.casefold().endswith(".npz"):
        inputs = Archive(found).images()
    elif found.is_dir():
        inputs = images.read_images(images.all_files(found))
    else:
        inputs = Images(idx.read_idx_images(found))
    if not len(inputs):
        raise DataError(f"{found} holds no records")
    return inputs


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
    return path.is_file() and path.name.casefold().endswith(_TABLE_SUFFIXES)


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        _is_table(path) or path.name.casefold().endswith(".npz") or idx.is_idx_images(path)
    )


def _read_table(path: Path) -> tables.TextTable:
    if path.name.casefold().endswith(".parquet"):
        return tables.read_parquet(path)
    return tables.read_csv(path)


def _table_dataset(
    path: Path,
    label: str | None,
    group: str | None,
    classes: Sequence[str] | None,
    drop: Sequence[str],
) -> Dataset:
    if label is None:
        raise UsageError(f"{path} is a table; name its label column with --label")
    if label == group:
        raise UsageError(f"column {label!r} cannot be both the label and the group")
    text = _read_table(path)
    names = text.column(label, "label")
    groups = None if group is None else np.array(text.column(group, "group"), dtype=np.str_)
    told = (label,) if group is None else (label, group)
    inputs = text.table((*told, *drop))
    return _dataset(inputs, names, classes, groups, path)


def _dataset(
    inputs: Inputs,
    names: Sequence[str],
    classes: Sequence[str] | None,
    groups: np.ndarray[tuple[int], np.dtype[np.str_]] | None,
    path: Path,
) -> Dataset:
    if len(names) != len(inputs):
        raise DataError(f"{path} has {len(inputs)} inputs and {len(names)} labels")
    labels, known = encode_labels(names, classes, path=path)
    return Dataset(inputs, labels, known, groups)
