"""Raw records for a public encoder: texts, DICOM files, or images of any sizes, read one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pate.data.cells import PLAIN, Reading
from pate.data.embeddings import Embeddings
from pate.data.encoded import Raw
from pate.data.files import images
from pate.data.files.dicom import holds_dicom, read_dicom
from pate.data.files.npz import Archive
from pate.data.files.pictures import DEEP, OUTSIDE, WINDOW, DeepImagesError
from pate.data.files.texts import read_texts
from pate.data.locate import is_table, locate
from pate.data.odd import usable
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.encoded import Embedder, Record
    from pate.data.odd import Odd
    from pate.data.values import Window


def read_raw(
    # texts as of :func:`~pate.data.files.texts.read_texts`, DICOM files as of
    # :func:`~pate.data.files.dicom.read_dicom`, class folders of images of any sizes, an ``.npz`` or IDX
    # files
    path: Path,
    source: str,  # ``images`` or ``texts``, which the encoder takes
    *,
    text: str | None = None,  # the column of texts
    dicom_labels: Path | None = None,  # the table of the labels of DICOM files
    label: str | None = None,  # the column of the class, or the array of an archive
    # the column of the patient, or the array of an archive; of DICOM files what names the group
    group: str | None = None,
    columns: Sequence[str] = (),  # of several labels, or of a number
    window: Window | None = None,  # of images of more than 8 bits a pixel
    flat: bool = False,  # whether neither classes nor groups are wanted, as of a public set
    odd: Odd | None = None,  # collects unusable records; None: the first of them is an error
    notes: Odd | None = None,  # collects what is lost in reading images
    # how a table writes its cells; its words for no value are those of all labels and groups
    reading: Reading = PLAIN,
) -> Raw | None:
    """Return the raw records at ``path``; None if they are embeddings already."""
    if path.is_file() and path.name.casefold().endswith(".npz") and Archive(path).has_embeddings:
        return None
    if source == "texts":
        if dicom_labels is not None or window is not None:
            raise UsageError("--dicom-labels and --window are for images; the encoder takes texts")
        return read_texts(
            path, text, label=label, group=group, columns=columns, flat=flat, odd=odd, reading=reading
        )  # fmt: skip
    if text is not None:
        raise UsageError("--text is for an encoder of texts; this one takes images")
    if dicom_labels is not None or _is_dicom(path):
        return read_dicom(
            path,
            window=window,
            table=dicom_labels,
            label=label,
            group=group,
            columns=columns,
            flat=flat,
            odd=odd,
            reading=reading,
        )
    found = locate(path, flat=flat)
    if is_table(found):
        raise UsageError(f"--encoder is for images, and {found} is a table")
    stated = "images" if window is None else "images window {} {}".format(*window)
    if found.name.casefold().endswith(".npz"):
        archive = Archive(found, odd, reading, label=label, public=flat)
        if archive.has_embeddings:
            return None
        count, stream = archive.one_by_one(window)
        return Raw(
            found,
            stated,
            count,
            stream,
            lambda row: f"record {row + 1}",
            None if flat or columns else archive.labels(),
            None if flat else archive.groups(group),
            {name: archive.cells(name) for name in columns},
            odd,
        )
    if label is not None or group is not None or columns:
        raise UsageError(
            f"{found} has no columns, so --label and --group cannot name one; "
            "for images with groups use an .npz with an array 'groups', or DICOM files"
        )
    if found.is_dir():
        return _of_folder(found, window, stated, flat=flat, odd=odd, notes=notes)
    pixels = images.read_idx_images(found)
    return Raw(
        found,
        stated,
        len(pixels),
        lambda: iter(pixels),
        lambda row: f"record {row + 1}",
        None if flat else images.read_idx_labels(images.labels_beside(found)),
        None,
        {},
        odd,
    )


def _is_dicom(path: Path) -> bool:
    """Return whether there are DICOM files, and not images in other files."""
    if not path.is_dir():
        return path.is_file() and holds_dicom(path)
    held = [path, *(each for each in images.entries(path) if each.is_dir())]
    return not any(map(images.holds_images, held)) and holds_dicom(path)


def _of_folder(
    folder: Path,
    window: Window | None,
    source: str,
    *,
    flat: bool,
    odd: Odd | None,
    notes: Odd | None,
) -> Raw:
    """Return images of any sizes in class folders, each file read as it is asked for."""
    files = (
        [("", path) for path in images.all_files(folder)]
        if flat
        else images.class_files(folder, odd)
    )

    def place(at: int) -> str:
        return f"{files[at][1].parent.name}/{files[at][1].name}"

    def stream() -> Iterator[NDArray[np.uint8] | None]:
        for at, (_, path) in enumerate(files):
            picture = usable(images.judged_picture(path, window), odd, place(at))
            noted = notes if odd is None else odd
            if noted is not None and picture is not None:
                images.note(picture.notes, path, noted)
            yield None if picture is None else picture.pixels

    names = None if flat else [name for name, _ in files]
    return Raw(folder, source, len(files), stream, place, names, None, {}, odd)


def embedded(
    raw: Raw, encoder: Embedder, *, none_fits: bool = False
) -> tuple[Embeddings, NDArray[np.bool_]]:
    """Return the embeddings of n records, and (n,) which of them are usable; others are zero."""
    kept: list[int] = []

    def readable() -> Iterator[Record]:
        for at, record in enumerate(raw.stream()):
            if record is not None:
                kept.append(at)
                yield record

    # An encoder may ask for records ahead of its work: `kept` has at least those that it names.
    rows, made = encoder.embed(
        readable(), raw.count, odd=raw.odd, place=lambda row: raw.place(kept[row])
    )
    if not made.any() and not none_fits:
        reasons = raw.odd.none_left() if raw.odd is not None else "there is none"
        if DEEP in reasons or OUTSIDE in reasons:
            raise DeepImagesError(f"no image of {raw.path} can be used: {reasons}; {WINDOW}")
        raise DataError(f"{raw.path} has no record that can take part: {reasons}")
    good = np.zeros(raw.count, dtype=np.bool_)
    good[kept] = made
    values = np.zeros((raw.count, encoder.width), dtype=np.int16)
    values[kept] = rows
    return Embeddings(values, raw.source, encoder.digest), good
