"""Checks of the party's own data: readable, of the campaign's schema, and enough for its teachers.

Findings may be shown to the coordinator, who should not learn how many records there are or how they
divide into classes: numbers are reported only with ``--counts``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from party.preflight.handshake import server_of
from party.preflight.rules import last_campaign, policy_at
from party.voting.columns import alike, described, left_out, listed, warnings
from party.voting.own_data import OwnFile
from party.voting.request import check_fits
from pate.answers import LABELS, NONE
from pate.data.checks import require_records, require_trainable
from pate.data.odd import Odd
from pate.data.read import read_inputs
from pate.data.schema import Schema
from pate.data.values import Table, is_numeric
from pate.encoders.reading import Reader
from pate.errors import DataError, SchemaError
from pate.formats.synthesis_schema import numeric_of
from pate.preflight import Finding, Skipped
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from party.options import CheckOptions
    from pate.data.values import Dataset, Inputs

#: With fewer records per teacher, or per teacher and class, on average, a vote is little better than a guess.
_FEW: Final = 20
_FEW_OF_A_CLASS: Final = 10


def read(options: CheckOptions) -> tuple[Dataset, Odd]:
    """Read the records, and what of them cannot be read, as a start without a known campaign would.

    Raises:
        Skipped: if none are named, or a start would wait for a campaign's encoder to read them.
        DataError, SchemaError, UsageError: as :meth:`party.voting.own_data.OwnFile.read`.
    """
    if options.data is None:
        raise Skipped("no data is named: --data")
    file = own_file(options)
    waits = file.encoder is None and file.needs_encoder
    if waits and policy_at(options, server_of(options)).encoders != ():
        raise Skipped(
            "only a campaign's encoder reads them, which its server sends; to check them now, name its "
            "folder with --encoder"
        )
    return file.read(None, None)


def own_file(options: CheckOptions) -> OwnFile:
    """Return the file as a start would read it, with the encoder; what is embedded stays in memory.

    Raises:
        DataError: as :meth:`pate.encoders.encoder.Encoder.open`.
    """
    return OwnFile.of(options, Reader.open(options.encoder))


def check_records(options: CheckOptions, data: Dataset, odd: Odd) -> Finding:
    """Report the kind of the records, and anything odd about them."""
    # If a campaign's schema is known, the columns are judged by it.
    known = bool(options.public or options.schema)
    found = _look_at(options, data, odd, [] if known else warnings(data.inputs, None, odd.names))
    return found if known else _with_columns(found, options, data.inputs, odd)


def _with_columns(found: Finding, options: CheckOptions, inputs: Inputs, odd: Odd) -> Finding:
    lines = described(inputs, odd, counts=options.counts)
    if not lines:
        return found
    return replace(found, lines=("private, what each column looks like:", *lines))


def _look_at(options: CheckOptions, data: Dataset, odd: Odd, columns: list[str]) -> Finding:
    require_records(data)
    what = f"{len(data.classes)} {'classes' if data.kind == 'class' else 'labels'}"
    text = f"{kind_of(data.inputs)}, {'a number' if data.kind == 'number' else what}"
    if data.groups is not None:
        text += ", patients known"
    if options.counts:
        text += f"; {_numbers(data)}"
    if data.kind == "class" and len(np.unique(data.labels)) < 2:
        why = "all records are of one class"
        if options.votes != "neighbour":
            return Finding.failed(
                DataError,
                f"{text}; {why}: no teacher can learn from them",
                "check the labels; a party with one class can only take part with --votes neighbour",
            )
        return Finding.warning(f"{text}; {why}", "check the labels")
    unread = unread_of(options, odd)
    columns = [*columns, *(alike("classes", data.classes) if data.kind == "class" else ())]
    if not (columns or unread):
        return Finding.ok(text)
    return Finding.warning(
        "; ".join([text, *unread, *columns]),
        "columns that are no feature: --drop, at every party alike"
        if not unread
        else "mend the file, or go on without: --counts says how many and where; --strict refuses",
    )


def unread_of(options: CheckOptions, odd: Odd) -> list[str]:
    """Return what cannot be read of the file; how much, and where, only with ``--counts``."""
    if options.counts:
        return odd.lines()
    left = (f"records take no part: {why}" for why in odd.reasons)
    return [*odd.columns(), *left, *(f"some records: {why}" for why in odd.notes)]


def kind_of(inputs: Inputs) -> str:
    """Return the kind of inputs, in few words.

    >>> kind_of(Images(np.zeros((3, 8, 8, 1), np.uint8)))
    'images 8x8x1'
    """
    if not isinstance(inputs, Table):
        return inputs.schema()
    kinds = list(zip(inputs.names, map(is_numeric, inputs.columns), strict=True))
    numbers = [name for name, number in kinds if number]
    texts = [name for name, number in kinds if not number]
    return (
        f"a table of {len(kinds)} columns ({len(numbers)} of numbers, {len(texts)} of categories)"
    )


def _numbers(data: Dataset) -> str:
    if data.answers is None:
        counts = np.bincount(data.labels, minlength=len(data.classes)).tolist()
    elif data.kind == "labels":
        counts = data.answers.sum(axis=0).astype(int).tolist()
    else:
        counts = []
    each = ", ".join(f"{name}: {n}" for name, n in zip(data.classes, counts, strict=False))
    missing = ""
    if isinstance(data.inputs, Table):
        empty = [
            np.isnan(column).mean() if is_numeric(column) else (column == "").mean()
            for column in data.inputs.columns
        ]
        missing = f"; {100 * float(np.mean(empty)):.1f} % of the cells are empty"
    patients = "" if data.groups is None else f" of {len(np.unique(data.groups))} patients"
    return f"private: {len(data)} records{patients}{each and f' ({each})'}{missing}"


def check_teachers(options: CheckOptions, data: Dataset) -> Finding:
    """Report whether there are enough records for the teachers, and whether the model fits the data."""
    if options.only_records:
        return Finding.skipped("none: the records vote themselves")
    if data.kind == "class" and len(np.unique(data.labels)) < 2:
        return Finding.skipped("the data has no two classes to learn")
    require_trainable(data, options.teachers)
    from party.teachers.registry import kind_for

    if kind_for(options.model, data.inputs, "cpu").name == "prior" and data.kind == "class":
        from party.teachers.prior.teacher import require_few

        require_few(data.classes)
    what, units = "records", len(data)
    if data.groups is not None:
        what, units = "patients", len(np.unique(data.groups))
    each, kind = units / options.teachers, "class"
    if data.kind == "labels" and data.answers is not None:
        kind, rarest = "label", int(data.answers.sum(axis=0).min())
        of_a_class = rarest / options.teachers
    else:
        of_class = np.unique_counts(data.labels).counts
        of_a_class, rarest = each / len(of_class), int(of_class.min())
    text = f"{options.teachers} of the kind {options.model}"
    if options.counts:
        of_one = "a class" if kind == "class" else "the rarest label"
        text += f"; private: about {each:.0f} {what} each, {of_a_class:.0f} of {of_one}"
    fewer = "ask for fewer --teachers: each should have a hundred records or more"
    if each < _FEW or of_a_class < _FEW_OF_A_CLASS:
        return Finding.warning(f"{text}; so many have very few {what} each", fewer)
    if rarest < options.teachers:
        return Finding.warning(f"{text}; some of them will never see the rarest {kind}", fewer)
    return Finding.ok(f"{text}, with {what} enough for each")


class _Ours(NamedTuple):
    """The properties of our data that a campaign must match."""

    classes: tuple[str, ...]
    unit: str
    schema: str


def check_schema(options: CheckOptions, data: Dataset) -> Finding:
    """Read the data as the campaign would, as far as its schema is known, and report differences.

    Sources of the schema: this party's copy of the public set; ``--schema``; what the server has
    declared, if the party has joined its campaign already.
    """
    joined = last_campaign(options)
    offer = None if joined is None else joined.offer
    unit = options.unit or (None if offer is None else offer.unit)
    sources: dict[Schema, str] = {}
    public: Inputs | None = None
    noted: list[str] = []
    if options.public is not None:
        public = read_inputs(
            options.public,
            drop=options.dropped,
            say=noted.append,
            encoder=Reader.open(options.encoder),
            text=options.text,
        )
        sources[Schema.of(public)] = f"the public set {options.public}"
    if options.schema is not None:
        sources.setdefault(_stated(options.schema), "the schema given")
    if offer is not None and offer.schema:
        sources.setdefault(Schema.parse(offer.schema), "the campaign that we joined")
    classes, file = None if offer is None else offer.classes, own_file(options)
    known, told, odd = [], noted, Odd()
    for schema, source in sources.items():
        data, odd = file.read(schema, classes)
        told += unread_of(options, odd)
        told += [left_out(odd.left_out)] if odd.left_out else []
        told += alike("columns", (*(schema.numeric or ()), *odd.left_out))
        told += warnings(data.inputs, schema, (*file.no_features, *odd.names))
        told += _unseen(data.inputs, public)
        known.append(f"our data can be read as {source} says")
    if unit is not None or offer is not None:
        ours = _Ours(
            (*data.classes, NONE) if data.kind == LABELS else data.classes,
            "record" if data.groups is None else "patient",
            data.inputs.schema(),
        )
        campaign = vote_pb2.Campaign(
            schema=ours.schema, unit=unit or "record", classes=classes or ()
        )
        check_fits(campaign, ours)
        known.append(f"a campaign that protects a {unit or 'record'} can be served")
    if not known:
        return Finding.skipped("nothing to compare the data with: --public, --schema or --unit")
    found = Finding.ok("; ".join(known))
    if told:
        found = Finding.warning(
            "; ".join([*known, *dict.fromkeys(told)]),
            "mend the file or the names of its columns, or agree with the coordinator",
        )
    return _with_columns(found, options, data.inputs, odd) if sources else found


def _stated(schema: str) -> Schema:
    """Return the schema that ``--schema`` gives: a line, or a file."""
    if not Path(schema).is_file():
        return Schema.parse(schema)
    try:
        return Schema(numeric=numeric_of(Path(schema).read_bytes()))
    except OSError as error:
        raise SchemaError(f"cannot read {schema}: {error.strerror or error}") from error
    except SchemaError as error:
        raise SchemaError(f"{schema}: {error}") from error


def _unseen(ours: Inputs, public: Inputs | None) -> list[str]:
    """Return a line about columns whose texts are not in the public set."""
    if not (isinstance(ours, Table) and isinstance(public, Table)):
        return []
    theirs = dict(zip(public.names, public.plain().columns, strict=True))
    names = [
        name
        for name, column in zip(ours.names, ours.columns, strict=True)
        if name in theirs
        and not is_numeric(column)
        and not set(column.tolist()) <= {"", *theirs[name].tolist()}
    ]
    return [f"{listed(names)} with values that the public set does not have"] if names else []
