"""Checks of the party's own data: readable, of the campaign's schema, and enough for its teachers.

What is told may be shown to the coordinator, who should not learn how many records there are or how
they divide into classes: numbers are told only where they are asked for (``--counts``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.check.rules import last_campaign
from party.reading import check_fits
from party.teachers.schema import schema_of
from pate.data.checks import require_records, require_trainable
from pate.data.read import read_dataset, read_inputs
from pate.data.values import Images, Table, is_numeric
from pate.errors import DataError, SchemaError, UsageError
from pate.runtime.preflight.finding import Finding
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from party.check.asked import Asked
    from pate.data.values import Dataset, Inputs

#: With fewer a teacher, or a teacher and class, on average, a vote is little better than a guess.
_FEW: Final = 20
_FEW_OF_A_CLASS: Final = 10


def read(asked: Asked) -> Dataset:
    """Read the records as a start would.

    Raises:
        DataError, SchemaError, UsageError: as :func:`pate.data.read.read_dataset`.
    """
    if asked.data is None:
        raise UsageError("no data is named: --data")
    return read_dataset(
        asked.data, label=asked.label, group=asked.group, classes=asked.classes, drop=asked.drop
    )


def read_public(asked: Asked) -> Inputs | None:
    """Read this party's own copy of the public set, None if none is named."""
    return None if asked.public is None else read_inputs(asked.public, drop=asked.drop)


def check_records(asked: Asked, data: Dataset) -> Finding:
    """Say what the records are, and whether there is anything odd about them."""
    require_records(data)
    text = f"{kind_of(data.inputs)}, {len(data.classes)} classes"
    if data.groups is not None:
        text += ", patients known"
    present, odd = np.unique(data.labels), _odd_columns(data.inputs)
    if asked.counts:
        text += f"; {_numbers(data)}"
    if len(present) < 2:
        why = "all records are of one class"
        if asked.votes != "neighbour":
            return Finding.failed(
                DataError,
                f"{text}; {why}: no teacher can learn from them",
                "check the labels; a party with one class can only take part with --votes neighbour",
            )
        return Finding.warning(f"{text}; {why}", "check the labels")
    if odd:
        return Finding.warning(
            f"{text}; {', '.join(odd[:3])}{' and others' if len(odd) > 3 else ''}",
            "leave such columns out with --drop, at every party alike",
        )
    return Finding.ok(text)


def kind_of(inputs: Inputs) -> str:
    """Return what inputs are, in few words.

    >>> kind_of(Images(np.zeros((3, 8, 8, 1), np.uint8)))
    'images 8x8x1'
    """
    if isinstance(inputs, Images):
        return inputs.schema()
    numbers = sum(map(is_numeric, inputs.columns))
    return (
        f"a table of {len(inputs.names)} columns ({numbers} of numbers, "
        f"{len(inputs.names) - numbers} of categories)"
    )


def _odd_columns(inputs: Inputs) -> list[str]:
    if not isinstance(inputs, Table):
        return []
    found = []
    for name, column in zip(inputs.names, inputs.columns, strict=True):
        if np.isnan(column).all() if is_numeric(column) else (column == "").all():
            found.append(f"column {name!r} is empty")
    return found


def _numbers(data: Dataset) -> str:
    counts = np.bincount(data.labels, minlength=len(data.classes)).tolist()
    each = ", ".join(f"{name}: {n}" for name, n in zip(data.classes, counts, strict=True))
    missing = ""
    if isinstance(data.inputs, Table):
        empty = [
            np.isnan(column).mean() if is_numeric(column) else (column == "").mean()
            for column in data.inputs.columns
        ]
        missing = f"; {100 * float(np.mean(empty)):.1f} % of the cells are empty"
    patients = "" if data.groups is None else f" of {len(np.unique(data.groups))} patients"
    return f"private: {len(data)} records{patients} ({each}){missing}"


def check_teachers(asked: Asked, data: Dataset) -> Finding:
    """Say whether there are records enough for so many teachers, and whether the model fits them."""
    if asked.votes == "neighbour":
        return Finding.skipped("none: with --votes neighbour the records vote themselves")
    if len(np.unique(data.labels)) < 2:
        return Finding.skipped("the data has no two classes to learn")
    require_trainable(data, asked.teachers)
    from party.teachers.registry import kind_for

    kind_for(asked.model, data.inputs, "cpu")
    units = len(data) if data.groups is None else len(np.unique(data.groups))
    what = "records" if data.groups is None else "patients"
    rarest = int(np.bincount(data.labels)[np.unique(data.labels)].min())
    each, of_a_class = units / asked.teachers, units / asked.teachers / len(np.unique(data.labels))
    text = f"{asked.teachers} of the kind {asked.model}"
    if asked.counts:
        text += f"; private: about {each:.0f} {what} each, {of_a_class:.0f} of a class"
    fewer = "ask for fewer --teachers: each should have a hundred records or more"
    if each < _FEW or of_a_class < _FEW_OF_A_CLASS:
        return Finding.warning(f"{text}; so many have very few {what} each", fewer)
    if rarest < asked.teachers:
        return Finding.warning(f"{text}; some of them will never see the rarest class", fewer)
    return Finding.ok(f"{text}, with {what} enough for each")


@dataclass(frozen=True)
class _Ours:
    """What of our data a campaign has to fit."""

    classes: tuple[str, ...]
    unit: str
    schema: str


def check_schema(asked: Asked, data: Dataset, public: Inputs | None) -> Finding:
    """Compare the data with what the campaign's queries are, as far as that is known.

    What is known: this party's copy of the public set; the line that ``--schema`` repeats; what the
    server has declared, if the party has joined its campaign already.
    """
    joined = last_campaign(asked)
    offer = None if joined is None else joined.offer
    schema = asked.schema or (None if offer is None else offer.schema)
    unit = asked.unit or (None if offer is None else offer.unit)
    known = []
    if public is not None:
        schema_of(data.inputs).conform(public)
        known.append(f"the public set {asked.public} has what our teachers take")
    if schema is not None:
        _compare(schema, data.inputs)
        known.append(
            "the schema given is ours" if asked.schema else "the campaign that we joined has ours"
        )
    if unit is not None or offer is not None:
        campaign = vote_pb2.Campaign(
            schema=data.inputs.schema(),
            unit=unit or "record",
            classes=(offer.classes or ()) if offer is not None else (),
        )
        ours = _Ours(data.classes, "record" if data.groups is None else "patient", campaign.schema)
        check_fits(campaign, ours)
        known.append(f"a campaign that protects a {unit or 'record'} can be served")
    if not known:
        return Finding.skipped("nothing to compare the data with: --public, --schema or --unit")
    return Finding.ok("; ".join(known))


def _compare(schema: str, inputs: Inputs) -> None:
    """Check that inputs of a schema could be voted on by teachers of our data.

    Raises:
        SchemaError: if they could not.
    """
    ours = inputs.schema()
    if ours == schema:
        return
    if isinstance(inputs, Images) or not schema.startswith("table "):
        raise SchemaError(f"the campaign's inputs are {schema:.80}, our data is {kind_of(inputs)}")
    # Column by column: the campaign's may be in another order, and have more than ours.
    columns = set(schema.removeprefix("table ").split(", "))
    wanted = [
        (name, f"{name}:{'number' if is_numeric(column) else 'category'}")
        for name, column in zip(inputs.names, inputs.columns, strict=True)
    ]
    named = {column.rpartition(":")[0] for column in columns}
    if missing := [name for name, _ in wanted if name not in named]:
        raise SchemaError(
            f"the campaign has no columns {', '.join(missing[:5])}: leave them out with --drop"
        )
    if other := [name for name, column in wanted if column not in columns]:
        raise SchemaError(
            f"columns {', '.join(other[:5])} are numbers on one side and categories on the other"
        )
