"""Reading a student's files for its commands: labels, public sets, labelled data, and its token."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pate.data.values import Images, Inputs, Window
    from pate.formats.labels import LabelSet
    from pate.runtime.screen import Screen
    from student.evaluation.evaluate import LabelledData
    from student.options import TrainOptions

#: What labelled data have: ``class`` with the classes, if known, ``labels`` with their names, or ``number``.
Columns: TypeAlias = tuple[str, tuple[str, ...]]


def label_file(path: Path) -> LabelSet:
    """Return the labels in a file."""
    from pate.formats.labels import LabelSet

    try:
        return LabelSet.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the labels in {path}: {error}") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error


def public_inputs(
    path: Path,
    drop: Sequence[str],
    window: Window | None,
    screen: Screen,
    encoder: Path | None = None,
    *,
    text: str | None = None,
) -> Inputs:
    """Return a public set; warnings go to the screen. Errors: :func:`pate.data.read.read_inputs`."""
    from pate.data.read import read_inputs
    from pate.encoders.reading import Reader

    warn = partial(screen.say, level="warning")
    opened = Reader.open(encoder, bar=screen.bar)
    return read_inputs(path, drop=tuple(drop), window=window, say=warn, encoder=opened, text=text)


def teaches_own_network(options: TrainOptions) -> bool:
    """Return whether a network learns from images what votes over their embeddings say."""
    from student.training import OWN_NETWORK

    return options.encoder is not None and options.model == OWN_NETWORK


def public_set(options: TrainOptions, screen: Screen) -> tuple[Inputs, Images | None]:
    """Return the public set of ``train``, and for an own network its images, of one size."""
    from pate.data.embeddings import Embeddings
    from pate.data.values import Images
    from pate.encoders.encoder import Encoder
    from pate.encoders.reading import Reader
    from student.training import NO_PIXELS, OWN_NETWORK

    own = teaches_own_network(options)
    read = partial(public_inputs, options.public, options.drop or (), options.window, screen)
    if not own or options.encoder is None:
        inputs = read(options.encoder, text=options.text)
        if options.model == OWN_NETWORK and isinstance(inputs, Embeddings):
            raise UsageError(NO_PIXELS)
        return inputs, None
    encoder = Reader(Encoder.open(options.encoder), bar=screen.bar)
    pixels = read(text=options.text)
    if encoder.source != "images" or not isinstance(pixels, Images):
        raise UsageError(NO_PIXELS)
    # By these very images: their order is that of the rows.
    rows, _ = encoder.embed(
        pixels.pixels, len(pixels), odd=None, place=lambda row: f"image {row + 1}"
    )
    return encoder.encoder.embeddings(rows, options.window), pixels


def is_table(inputs: Inputs) -> bool:
    """Return whether inputs are rows of a table."""
    from pate.data.values import Table

    return isinstance(inputs, Table)


def columns_of(released: LabelSet | None) -> Columns:
    """Return what labelled data need for a student of released counts."""
    from pate.answers import LABELS, NONE, NUMBER
    from pate.codes import code_of

    if released is None or released.noisy is None:
        return "class", () if released is None else released.classes
    kind = code_of(released.noisy.code).answer.name
    if kind == LABELS:
        return "labels", tuple(name for name in released.classes if name != NONE)
    return ("number", ()) if kind == NUMBER else ("class", released.classes)


def test_data(options: TrainOptions, released: LabelSet | None, screen: Screen) -> LabelledData:
    """Return the data of ``--test`` for a student of what was released; see :func:`labelled_data`."""
    assert options.test is not None  # noqa: S101 - by both callers
    return labelled_data(
        options.test,
        options.label,
        options.group_column if columns_of(released)[0] == "class" else None,
        options.patient_column,
        options.window,
        columns_of(released),
        None if teaches_own_network(options) else options.encoder,
        text=options.text,
        dicom_labels=options.dicom_labels,
        screen=screen,
    )


def labelled_data(
    path: Path,
    label: str | None,
    groups: str | None,
    patients: str | None = None,
    window: Window | None = None,
    asked: Columns = ("class", ()),
    encoder: Path | None = None,
    *,
    text: str | None = None,
    dicom_labels: Path | None = None,
    screen: Screen | None = None,
) -> LabelledData:
    """Return labelled data; a column of groups remains a feature, an array of groups is none.

    ``label`` is the column of the class, or of the number: several labels have columns of their names.
    Intervals count the patients of a column, if it is given. Errors: :func:`pate.data.read.read_dataset`.
    """
    from pate.data.odd import Odd
    from pate.data.read import read_dataset
    from pate.data.values import Table
    from pate.encoders.cache import Memory
    from pate.encoders.encoder import Encoder
    from pate.encoders.reading import Reader
    from student.evaluation.evaluate import LabelledData
    from student.evaluation.fairness import group_column, require_groups

    kind, listed = asked
    if kind == "labels" and label is not None:
        raise UsageError("several labels are in columns of their names: leave --label out")
    if kind == "number" and label is None:
        raise UsageError("name the column of the number with --label")
    read = partial(
        read_dataset,
        path,
        label=label if kind == "class" else None,
        classes=listed if kind == "class" and listed else None,
        labels=listed if kind == "labels" else (),
        number=label if kind == "number" else None,
        window=window,
        text=text,
        dicom_labels=dicom_labels,
        # Read again for each further column, embedded once.
        encoder=None if encoder is None else Reader(Encoder.open(encoder), memory=Memory()),
    )
    notes = Odd()
    data = read(notes=notes)
    if screen is not None:
        for line in notes.lines():
            screen.say(f"{path}: {line}", "warning")
    if groups is not None and isinstance(data.inputs, Table):
        data = group_column(data, groups)
    elif groups is not None:
        grouped = read(group=groups)
        data = require_groups(grouped, groups)
    names = None
    if patients is not None:
        names = read(group=patients).groups
    # The name of a file can be bytes that are no text.
    name = path.resolve().name.encode(errors="replace").decode()
    return LabelledData(data, name, names)


def token_for(given: Path | None, host: str) -> str | None:
    """Return the token for a server, None if there is none.

    ``given``: a named file, None to search for it; ``host``: of the server. The user's state
    directory is searched only for a server on this machine: its token belongs to this user's local
    server and no other.
    """
    from pate.runtime.child import is_loopback
    from pate.runtime.home import STUDENT_TOKEN, default_home, read_token

    if given is not None:
        return read_token(given)
    found = default_home("server") / STUDENT_TOKEN
    return read_token(found) if is_loopback(host) and os.access(found, os.R_OK) else None
