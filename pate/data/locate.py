"""Finding the data set that a path stands for, whatever the format.

========================  ==========================================================
what lies at the path     how it is told
========================  ==========================================================
folder of class folders   it has folders that hold image files
IDX files                 ``*images-idx3-ubyte``, labels beside it, each also ``.gz``
NumPy archive             ``.npz``; see :mod:`pate.data.files.npz` for the keys
table                     ``.csv`` or ``.tsv``, each also ``.gz``, or ``.parquet``; see
                          :mod:`pate.data.files.lines` and :mod:`pate.data.files.parquet`
folder                    it holds exactly one of the files above, or ``MNIST/raw``; a table in
                          parts, as Spark writes it, has to be joined first
========================  ==========================================================

An encoder also takes texts (:mod:`pate.data.files.texts`) and DICOM files (:mod:`pate.data.files.dicom`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.data.files import dicom, images, parquet, texts
from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

#: How the names of tables end.
TABLE_SUFFIXES: Final = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
_FORMATS: Final = f"class folders of images, .npz, IDX files, {', '.join(TABLE_SUFFIXES)}"


def require_there(path: Path, *, flat: bool = False) -> None:
    """Check that ``path`` exists in a readable format; its content is not read."""
    if not raw_at(path):
        locate(path, flat=flat)


def locate(path: Path, *, flat: bool) -> Path:
    """Return the one file, or the folder of images, that ``path`` stands for."""
    if path.is_file():
        if _is_readable(path):
            return path
        _require_no_raw(path)
        raise DataError(f"{path} is of no format that can be read; use {_FORMATS}")
    if not path.is_dir():
        raise DataError(f"there is no file or folder at {path}; check the path")
    if (path / "MNIST" / "raw").is_dir():  # where torchvision keeps MNIST
        path = path / "MNIST" / "raw"
    held = images.entries(path)
    sets = images.image_files(path)
    if len(sets) > 1 and not flat:
        # MNIST's own layout: the test images are not training data.
        sets = [file for file in sets if file.name.startswith("train")] or sets
    readable = [
        *sets,
        *(file for file in held if _is_readable(file) and not images.is_idx_images(file)),
    ]
    if _holds_class_folders(path):
        return path
    if flat and images.holds_images(path):
        return path
    if len(readable) == 1:
        return readable[0]
    if readable:
        parquet.require_no_parts(path)
        names = ", ".join(file.name for file in readable[:5])
        raise DataError(f"{path} holds several data files ({names}); give the path of one")
    if images.holds_images(path):
        raise DataError(f"{path} holds images outside of class folders; make one folder a class")
    _require_no_raw(path)
    parquet.require_no_parts(path)
    around = [folder.name for folder in held if folder.is_dir() and _holds_class_folders(folder)]
    if around:
        names = ", ".join(around[:5])
        raise DataError(f"{path} holds folders of class folders ({names}); give the path of one")
    raise DataError(f"{path} holds nothing that can be read; use {_FORMATS}")


def _holds_class_folders(folder: Path) -> bool:
    return any(each.is_dir() and images.holds_images(each) for each in images.entries(folder))


def is_table(path: Path) -> bool:
    """Return whether a path is the file of a table, by its name."""
    return path.is_file() and path.name.casefold().endswith(TABLE_SUFFIXES)


def _is_readable(path: Path) -> bool:
    return path.is_file() and (
        is_table(path) or path.name.casefold().endswith(".npz") or images.is_idx_images(path)
    )


def _require_no_raw(path: Path) -> None:
    if what := raw_at(path):
        table = "" if path.is_dir() or what != "texts" else "; a table may be CSV or Parquet"
        raise DataError(
            f"{path} holds {what}, which are read by an encoder only: --encoder DIR{table}"
        )


def raw_at(path: Path) -> str:
    """Return what at a path only an encoder takes, "" if there is nothing of the kind."""
    if path.is_file():
        if is_table(path):
            return ""
        text = path.name.casefold().endswith(texts.SUFFIXES)
    elif path.is_dir():
        text = texts.holds_texts(path)
    else:
        return ""
    return "texts" if text else "DICOM files" if dicom.holds_dicom(path) else ""


def only_dicom(path: Path) -> bool:
    """Return whether there are DICOM files, and not images in other files."""
    if not path.is_dir():
        return path.is_file() and dicom.holds_dicom(path)
    held = [path, *(each for each in images.entries(path) if each.is_dir())]
    return not any(map(images.holds_images, held)) and dicom.holds_dicom(path)
