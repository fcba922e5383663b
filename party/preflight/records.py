"""Checks of the party's own data: readable, of the campaign's schema, and enough for its teachers.

The coordinator may see findings: numbers of records are reported only with ``--counts``.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from party.preflight.network import server_of
from party.preflight.site import last_campaign, policy_at
from party.voting.own_file import OwnFile, against_schema, alike, described, listed, warnings
from party.voting.voters import check_fits
from pate.answers import LABELS, NONE
from pate.campaign.choices import RECORDS_EACH, TEACHERS_EACH
from pate.data.odd import Odd, Problem
from pate.data.read import read_inputs
from pate.data.records import require_records, require_trainable
from pate.data.schema import Schema
from pate.data.values import Images, Table, is_numeric
from pate.encoders.reading import Reader
from pate.errors import DataError, PateError, SchemaError
from pate.formats.synthesis_schema import numeric_of
from pate.preflight import Finding, Skipped
from pate.printable import listed as some_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from party.options import CheckOptions
    from pate.campaign.offer import Offer
    from pate.data.values import Dataset, Inputs

_FEWER: Final = (
    "ask for fewer --teachers; where the server's advice asks for more of them than your records allow, "
    "neighbour votes need none (--votes neighbour)"
)


class Known(NamedTuple):
    """What is known of a campaign before a start."""

    # of its inputs, with the source of each: this party's copy of the public set; ``--schema``;
    # what the server has declared, if the party has joined its campaign already
    schemas: dict[Schema, str]
    public: Inputs | None
    notes: list[str]  # what may be read otherwise in it
    offer: Offer | None


def known(options: CheckOptions) -> Known:
    """Return what is known of the campaign; errors as of the files that say it."""
    joined = last_campaign(options)
    found = Known({}, None, [], None if joined is None else joined.offer)
    if options.public is not None:
        public = read_inputs(
            options.public,
            drop=options.dropped,
            say=found.notes.append,
            encoder=Reader.open(options.encoder),
            text=options.text,
        )
        found = found._replace(public=public)
        found.schemas[Schema.of(public)] = f"the public set {options.public}"
    if options.schema is not None:
        found.schemas.setdefault(_stated(options.schema), "the schema given")
    if found.offer is not None:
        schema = found.offer.announced.schema
        found.schemas.setdefault(Schema.parse(schema), "the campaign that we joined")
    return found


class Records(NamedTuple):
    """The records, what of them cannot be read, and the schema by which they were read, if any."""

    data: Dataset
    odd: Odd
    schema: Schema | None


def read(options: CheckOptions, campaign: Future[Known]) -> Records:
    """Read the records as a start would: by the campaign's schema if it is known."""
    if options.data is None:
        raise Skipped("no data is named: --data")
    file = own_file(options)
    waits = file.encoder is None and file.needs_encoder
    if waits and policy_at(options, server_of(options)).encoders != ():
        raise Skipped(
            "only a campaign's encoder reads them, which its server sends; to check them now, name its "
            "folder with --encoder"
        )
    with contextlib.suppress(PateError):  # another check says which is at fault
        if (found := campaign.result()).schemas:
            schema = next(iter(found.schemas))
            return Records(*file.read(schema, _classes(found)), schema)
    return Records(*file.read(None, None), None)


def _classes(campaign: Known) -> tuple[str, ...] | None:
    return None if campaign.offer is None else campaign.offer.announced.classes


def own_file(options: CheckOptions) -> OwnFile:
    """Return the file as a start would read it, with the encoder; what is embedded stays in memory."""
    return OwnFile.of(options, Reader.open(options.encoder))


def check_records(options: CheckOptions, records: Records) -> list[Finding]:
    """Report the kind of the records, and each thing that is odd about them."""
    data, odd, schema = records
    require_records(data)
    what = f"{len(data.classes)} {'classes' if data.kind == 'class' else 'labels'}"
    text = f"{kind_of(data.inputs)}, {'a number' if data.kind == 'number' else what}"
    if data.groups is not None:
        text += ", patients known"
    if options.counts:
        text += f"; {_numbers(data, odd)}"
    kind = Finding.ok(text)
    if data.kind == "class" and len(np.unique(data.labels)) < 2:
        text += "; all records are of one class"
        kind = Finding.warning(text, "check the labels")
        if options.votes != "neighbour":
            kind = Finding.failed(
                DataError,
                f"{text}: no teacher can learn from them",
                "check the labels; a party with one class can only take part with --votes neighbour",
            )
    problems = odd.problems(counts=options.counts)
    problems += alike("classes", data.classes) if data.kind == "class" else []
    if schema is None:  # else the columns are compared with it
        problems += warnings(data.inputs, None, odd.names)
    found = [kind, *_warnings(problems)]
    lines = list(_of_labels(data, odd, counts=options.counts))
    if columns := described(data.inputs, odd, counts=options.counts):
        lines += ["private, what each column looks like:", *columns]
    found[-1] = replace(found[-1], lines=tuple(lines))
    return found


def _of_labels(data: Dataset, odd: Odd, *, counts: bool) -> Iterator[str]:
    """Yield lines on classes without a record, and labels without a class: one may be the other misspelt.

    Which classes occur among our records is private, and so for our own screen only.
    """
    if data.kind == "class":
        number = np.bincount(data.labels, minlength=len(data.classes)).tolist()
        none = [repr(name) for name, n in zip(data.classes, number, strict=True) if not n]
        if none:
            yield f"private, classes of the list without a record: {some_of(none)}"
    if counts and odd.not_listed:
        said = [f"{name!r:.80} ({n})" for name, n in odd.not_listed.most_common()]
        yield f"private, labels that are not in the class list: {some_of(said)}"


def _warnings(problems: Iterable[Problem]) -> list[Finding]:
    return [Finding.warning(*each.parted()) for each in dict.fromkeys(problems)]


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


def _numbers(data: Dataset, odd: Odd) -> str:
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
    many = odd.taking_part(len(data)) if odd.reasons else f"{len(data)} records"
    return f"private: {many}{patients}{each and f' ({each})'}{missing}"


def check_teachers(options: CheckOptions, data: Dataset) -> Finding:
    """Report whether there are records enough for the teachers, and whether the model fits them."""
    if options.only_records:
        return Finding.skipped("none: the records vote themselves")
    if data.kind == "class" and len(np.unique(data.labels)) < 2:
        return Finding.skipped("the data has no two classes to learn")
    joined = last_campaign(options)
    wanted = None if joined is None else joined.offer.announced.wanted_teachers
    teachers = options.teachers or wanted or TEACHERS_EACH
    require_trainable(data, teachers)
    from party.teachers.training import kind_for

    if kind_for(options.model, data.inputs, "cpu").name == "prior" and data.kind == "class":
        from party.teachers.by_records import require_few

        require_few(data.classes)
    what, units = "records", len(data)
    if data.groups is not None:
        what, units = "patients", len(np.unique(data.groups))
    each, kind = units / teachers, "class"
    if data.kind == "labels" and data.answers is not None:
        kind, rarest = "label", int(data.answers.sum(axis=0).min())
        of_a_class = rarest / teachers
    else:
        of_class = np.unique_counts(data.labels).counts
        of_a_class, rarest = each / len(of_class), int(of_class.min())
    text = f"{teachers} of the kind {options.model}"
    if options.teachers is None:
        text += ", as the campaign wants" if wanted else "; a campaign may want another number"
    if options.counts:
        of_one = "a class" if kind == "class" else "the rarest label"
        text += f"; private: about {each:.0f} {what} each, {of_a_class:.0f} of {of_one}"
    need = "teacher needs" if teachers == 1 else "teachers need"
    enough = f"{teachers} {need} {RECORDS_EACH * teachers} {what} in all"
    if units < RECORDS_EACH * teachers:
        return Finding.warning(f"{text}; {enough}, and there are fewer", _FEWER)
    if rarest < teachers:
        return Finding.warning(f"{text}; some of them will never see the rarest {kind}", _FEWER)
    return Finding.ok(f"{text}; {enough}, and you have enough")


class _Ours(NamedTuple):
    """The properties of our data that a campaign must match."""

    classes: tuple[str, ...]
    unit: str
    schema: str


def check_schema(options: CheckOptions, campaign: Known, records: Records) -> list[Finding]:
    """Compare the records with the campaign, as far as it is known."""
    offer, classes, data = campaign.offer, _classes(campaign), records.data
    unit = options.unit or (None if offer is None else offer.announced.unit)
    file = own_file(options)
    fits: list[str] = []
    problems = [Problem(note, "", "prepare the public set anew") for note in campaign.notes]
    for schema, source in campaign.schemas.items():
        read_so = records
        if schema != records.schema:
            try:
                read_so = Records(*file.read(schema, classes), schema)
            except SchemaError as error:
                if not (to_do := _remedy(schema, data.inputs)):
                    raise  # it says what to do
                return [Finding.failed(SchemaError, str(error), to_do)]
            problems += read_so.odd.problems(counts=options.counts)
        data, odd, _ = read_so
        problems += against_schema(file, data, odd, schema)
        problems += _unseen(data.inputs, campaign.public)
        fits.append(f"our data can be read as {source} says")
    if unit is not None or offer is not None:
        ours = _Ours(
            (*data.classes, NONE) if data.kind == LABELS else data.classes,
            "record" if data.groups is None else "patient",
            data.inputs.schema(),
        )
        check_fits(ours, unit=unit or "record", schema=ours.schema, classes=classes)
        fits.append(f"a campaign that protects a {unit or 'record'} can be served")
    if not fits:
        return [Finding.skipped("nothing to compare the data with: --public, --schema or --unit")]
    return [Finding.ok("; ".join(fits)), *_warnings(problems)]


def _remedy(schema: Schema, ours: Inputs) -> str:
    """Return what helps where data cannot be read by a schema, "" if their kind and size are not why."""
    if isinstance(ours, Table) != (schema.numeric is not None):
        return "name data of that kind with --data, or ask the coordinator which campaign is meant"
    if isinstance(ours, Images) and schema.size is not None:
        height, width = schema.size[:2]
        if ours.pixels.shape[1:3] != (height, width):
            return f"bring them to that size: `pate prepare FOLDER OUT --size {height}x{width}`"
    return ""


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


def _unseen(ours: Inputs, public: Inputs | None) -> list[Problem]:
    """Return the problem of columns whose texts are not in the public set."""
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
    if not names:
        return []
    spelled = "correct values that are spelled otherwise; the others say nothing in this campaign"
    return [Problem(f"{listed(names)} ", "with values that the public set does not have", spelled)]
