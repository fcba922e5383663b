"""The party's own file: how it is read, and its table on its owner's screen, with warnings.

Warnings contain only names of columns, no cell and no number, and may be passed on. The description
contains the form of cells, never their content, and stays on the party's own screen.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from party.teachers.ensemble import columns_of
from pate.answers import CLASS, LABELS, NONE, NUMBER
from pate.data.cells import PLAIN, Reading, may_be_number
from pate.data.encoded import require_encoder
from pate.data.files.images import sizes_differ
from pate.data.labels import can_be_class, look_alike, sorted_classes
from pate.data.locate import raw_at
from pate.data.odd import Odd, Problem
from pate.data.read import read_dataset
from pate.data.schema import Schema
from pate.data.values import Table, is_numeric
from pate.errors import DataError, ProtocolError, UsageError
from pate.printable import number_of, printable
from protos.bounds import check_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from party.options import OwnOptions
    from pate.data.encoded import Embedder
    from pate.data.values import Column, Dataset, Inputs

    Classes = tuple[str, ...] | None

#: Share of distinct cells from which on a column of text is an identifier.
_DISTINCT: Final = 0.9
#: The same for free text, if half of the cells have two words.
_DISTINCT_TEXT: Final = 0.5
#: Share of numbers among present cells from which on the other cells look like typing errors.
_MOSTLY: Final = 0.8
#: Fewer rows are not judged; of more, only the first ones are read.
_FEWEST: Final = 20
_MOST: Final = 10_000
_NAMED: Final = 8
#: Most columns with their own line, and most characters of a name there.
_LINES: Final = 16
_NAME: Final = 24
_DATE: Final = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{2,4})([ T].*)?", re.ASCII
)
_NUMERIC_DATE: Final = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """The options about the party's records by their names, and the open encoder."""

    data: Path
    label: str | None = None
    group: str | None = None
    classes: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    strict: bool = False
    reading: Reading = PLAIN
    labels: tuple[str, ...] = ()
    number: str | None = None
    text: str | None = None
    dicom_labels: Path | None = None
    encoder: Embedder | None = None

    @classmethod
    def of(cls, options: OwnOptions, encoder: Embedder | None = None) -> Self:
        """Return the data options of a command, with the open encoder of ``--encoder``."""
        if options.data is None:
            raise UsageError("no data is named: --data")
        return cls(
            data=options.data,
            label=options.label,
            group=options.group,
            classes=options.class_list,
            drop=options.dropped,
            strict=options.strict,
            reading=options.reading,
            labels=options.label_list,
            number=options.number,
            text=options.text,
            dicom_labels=options.dicom_labels,
            encoder=encoder,
        )

    @property
    def answer(self) -> str:
        """What our records can say: ``class``, ``labels`` or ``number``."""
        return LABELS if self.labels else CLASS if self.number is None else NUMBER

    @property
    def known_by(self) -> str:
        """How this file is read, where that decides whether two of its rows are one unit."""
        missing = sorted(self.reading.missing)
        # Left out where there are none, so that a series goes on.
        more = [[*self.labels], self.number] if self.labels or self.number is not None else []
        more += [] if self.text is None else ["text", self.text]
        thousands = self.reading.thousands
        more += [] if thousands is None else ["thousands", thousands]
        return json.dumps([self.label, self.group, self.reading.comma, missing, *more])

    @property
    def no_features(self) -> tuple[str, ...]:
        """Columns that have another role."""
        told = (self.label, self.number, self.group, self.text)
        return (*filter(None, told), *self.labels, *self.drop)

    @property
    def needs_encoder(self) -> bool:
        """Whether only an encoder reads it: texts, DICOM files, or images of several sizes."""
        if self.text is not None or self.dicom_labels is not None or raw_at(self.data):
            return True
        return self.data.is_dir() and sizes_differ(self.data)

    def read(
        self, schema: Schema | None, classes: Classes, *, none_fits: bool = False
    ) -> tuple[Dataset, Odd]:
        """Return the usable records, and the problems of others.

        With ``strict`` each cell or record that would be excluded is an error, unless
        ``none_fits``: what a campaign chooses must not make one record refuse it.
        """
        of_class = self.answer == CLASS
        if self.classes is not None:
            if not of_class:
                raise UsageError("--classes is for --label: leave it out")
            if classes is not None:
                columns_of(self.classes, classes)
        odd = Odd()
        # In one order, whatever the list's, so that a reordered list needs no new training.
        listed = None if self.classes is None else sorted_classes(self.classes)
        if classes is not None:  # of several labels the campaign's list has one column more
            classes = sorted_classes(each for each in classes if of_class or each != NONE)
        dataset = read_dataset(
            self.data,
            label=self.label if of_class else None,
            labels=sorted_classes(self.labels),
            number=self.number,
            group=self.group,
            classes=(listed or classes) if of_class else None,
            drop=self.drop,
            schema=schema,
            odd=None if self.strict and not none_fits else odd,
            reading=self.reading,
            text=self.text,
            dicom_labels=self.dicom_labels,
            encoder=self.encoder,
            none_fits=none_fits,
        )
        if classes is not None and dataset.classes != classes:
            dataset = dataset.with_classes(classes)
        if self.answer != NUMBER:
            require_sendable(dataset.classes)
        return dataset, odd

    def require_encoder(self, line: str) -> None:
        """Check before a record is read that the encoder of a campaign's inputs is here, if they need one.

        An archive may have embeddings already: it is looked into when it is read.
        """
        schema = Schema.parse(line)
        if schema.encoder is not None and not self.data.name.casefold().endswith(".npz"):
            require_encoder(schema, self.encoder)


def require_sendable(classes: tuple[str, ...]) -> None:
    """Check before hours of training that classes can be sent to a server."""
    try:
        # A single class is allowed here: records may vote only for it.
        check_classes(classes if len(classes) > 1 else (*classes, "-"))
    except ProtocolError as error:
        odd = [name for name in classes if not can_be_class(name)]
        raise DataError(
            f"the labels cannot be a campaign's classes: {error}"
            f"{f', {odd[0]!r:.80}' if odd else ''}; correct them, or name the list with --classes"
        ) from error


def warnings(inputs: Inputs, schema: Schema | None, told: Collection[str] = ()) -> list[Problem]:
    """Return warnings about the columns that are not reported elsewhere: ``told`` are."""
    if not isinstance(inputs, Table):
        return []
    known = None if schema is None else schema.numeric
    held = dict(zip(inputs.names, inputs.columns, strict=True))
    empty = [n for n, column in held.items() if n not in told and _missing(column).all()]
    held = {name: column[:_MOST] for name, column in held.items()}
    like: dict[str, list[str]] = {"date": [], "free text": [], "identifier": []}
    for name, column in held.items():
        if (kind := _looks_like(column)) is not None:
            like[kind].append(name)
    texts = {n: c for n, c in held.items() if n not in empty and not is_numeric(c)}
    shares = {
        name: _share(column, lambda cell: PLAIN.number(cell) is not None)
        for name, column in texts.items()
    }
    separated = [
        n for n, column in texts.items() if _share(column, may_be_number) > shares[n] + 1 - _MOSTLY
    ]
    slips = [name for name, share in shares.items() if _MOSTLY <= share < 1]
    numbers = [name for name, share in shares.items() if known is not None and share == 1]
    absent = [name for name in known or () if name not in held and name not in told]
    drop = "leave such out with --drop"
    has = "read as text, as the campaign has it"
    found = {
        f"without a value that can be read: {drop}": empty,
        f"of dates: {drop}": like["date"],
        f"of free text: {drop}": like["free text"],
        f"with another value in nearly every row, as an identifier has: {drop} or, if it names the "
        "patient, give it to --group": like["identifier"],
        "of numbers with separators of decimals or thousands: say which with --decimal and --thousands": (
            separated
        ),
        "of numbers, but for cells that are none (such as <5), "
        + (
            "read as text, since the campaign's schema is not known yet" if known is None else has
        ): slips,
        f"of numbers here, {has}": numbers,
        "of the campaign, absent from our table and so from our votes": absent,
    }
    agree = "correct the names or the cells, or agree with the coordinator"
    return [Problem(f"{listed(names)} ", why, agree) for why, names in found.items() if names]


def against_schema(file: OwnFile, dataset: Dataset, odd: Odd, schema: Schema) -> list[Problem]:
    """Return what differs between our columns and a campaign's."""
    found = [left_out(odd.left_out)] if odd.left_out else []
    found += alike("columns", (*(schema.numeric or ()), *odd.left_out))
    return found + warnings(dataset.inputs, schema, (*file.no_features, *odd.names))


def left_out(names: Sequence[str]) -> Problem:
    """Return the problem of columns that the campaign does not have."""
    return Problem(
        f"{listed(names)} ",
        "that the campaign does not have, left out",
        "nothing, if they are meant to be; else correct their names, or agree with the coordinator",
    )


def alike(what: str, names: Collection[str]) -> list[Problem]:
    """Return the problem of each few names of one kind that look like one name."""
    return [
        Problem(
            f"{what} {', '.join(map(repr, some[:_NAMED]))} ",
            "differ by case, spaces or punctuation only",
            "if they are one, write it in one way",
        )
        for some in look_alike(names)
    ]


def described(inputs: Inputs, odd: Odd, *, counts: bool) -> list[str]:
    """Return a line for each column: its kind, the form of its cells, and what is read as missing.

    In a wide table, columns that look like no feature or have missing cells come first, and the
    rest are counted. ``counts``: whether to report how many cells are missing per word, or only the
    words.
    """
    if not isinstance(inputs, Table):
        return []
    rows = []
    for name, column in zip(inputs.names, inputs.columns, strict=True):
        kind = "number" if is_numeric(column) else "category"
        words = {word: n for word, n in odd.missing.get(name, {}).items() if n}
        none = ", ".join(
            (f"{n} " if counts else "") + (repr(word) if word else "empty")
            for word, n in sorted(words.items())
        )
        column = column[:_MOST]  # noqa: PLW2901 - enough to see the form of the cells
        rows.append((name, kind, _form(column) + (f"; missing: {none}" if none else ""), column))
    shown = rows
    if len(rows) > _LINES:
        shown = sorted(
            rows, key=lambda row: _looks_like(row[3]) is None and "missing" not in row[2]
        )
        shown = shown[: _LINES - 1]
    widest = min(_NAME, max(len(name) for name, *_ in shown))
    lines = [f"{_cut(name, widest)}  {kind:<8}  {form}" for name, kind, form, _ in shown]
    return lines if shown is rows else [*lines, f"and {len(rows) - len(shown)} more"]


def _form(column: Column) -> str:
    """Return the form of a column's cells: their length, not their content."""
    present = np.unique(column[~_missing(column)])
    if not len(present):
        return "no value"
    like = _looks_like(column)
    if is_numeric(column):
        texts = [f"{abs(value):.15g}" for value in present.tolist()]
        decimals = max(len(text.partition("e")[0].partition(".")[2]) for text in texts)
        if decimals:
            return f"up to {number_of(decimals, 'decimal')}"
        lengths = f"whole numbers of {_span(texts, 'digit')}"
        return f"{like}s? {lengths}" if like else lengths
    lengths = _span(present.tolist(), "character")
    if like is not None:
        return f"{like}{'' if like == 'free text' else 's'}? {lengths}"
    return f"{number_of(len(present), 'value')} of {lengths}"


def _span(texts: Sequence[str], what: str) -> str:
    low, high = min(map(len, texts)), max(map(len, texts))
    return number_of(high, what) if low == high else f"{low} to {number_of(high, what)}"


def _cut(name: str, width: int) -> str:
    return printable(name, width).ljust(width)


def _missing(column: Column) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isnan(column) if is_numeric(column) else column == ""
    return found


def _looks_like(column: Column) -> str | None:
    """Return ``date``, ``free text`` or ``identifier`` if a column is probably no feature."""
    present = column[~_missing(column)]
    if len(present) < _FEWEST:
        return None
    distinct = len(np.unique(present)) / len(present)
    if is_numeric(column):
        if not bool((present == np.floor(present)).all()):
            return None
        if (
            _share(
                np.array([f"{value:.15g}" for value in present.tolist()]), _NUMERIC_DATE.fullmatch
            )
            == 1
        ):
            return "date"
        # Measured values are distinct, too; distinct whole numbers are more likely row numbers.
        return "identifier" if distinct == 1 and len(present) == len(column) else None
    if _share(column, _DATE.fullmatch) >= _MOSTLY:
        return "date"
    words = np.median([len(str(cell).split()) for cell in present.tolist()])
    if distinct >= _DISTINCT_TEXT and words > 1:
        return "free text"
    return (
        "identifier" if distinct >= _DISTINCT and _share(column, may_be_number) < _MOSTLY else None
    )


def _share(column: Column, fits: Callable[[str], object]) -> float:
    """Return the share of present cells that fit; 0 for few cells."""
    present = [str(cell) for cell in column.tolist() if cell != ""]
    if len(present) < _FEWEST:
        return 0.0
    return sum(bool(fits(cell)) for cell in present) / len(present)


def listed(names: Sequence[str]) -> str:
    """Return the names of the first few columns."""
    shown = ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"
