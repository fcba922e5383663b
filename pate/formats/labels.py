"""The exported labels of a campaign: what a student may learn from without a server.

A label file is one JSON object. Labels are public: they were released, and their cost is in the
privacy statement that the file carries. Reading is strict, because a file may come from anywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError
from pate.formats.noisy_counts import NoisyVotes

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "pate-labels/2"
#: How a label came about.
SOURCES: Final = ("teachers", "records", "reinforced")
#: What every privacy statement says, whatever else it says.
STATEMENT_KEYS: Final = (
    "epsilon",
    "delta",
    "unit",
    "adjacency",
    "observer",
    "mechanism",
    "ledger_head",
)

_FIELDS: Final = {
    "format", "campaign", "classes", "public_set", "queries", "labels", "privacy", "noisy",
}  # fmt: skip
_HEX_32 = re.compile(r"[0-9a-f]{64}")
_COUNTS = re.compile(r"-?[0-9]{1,15}(?: -?[0-9]{1,15})*")
_HEX_ANY = re.compile(r"(?:[0-9a-f]{2}){1,64}")
_LARGEST: Final = 2**31
#: Above any number in a statement; also above which a whole number of JSON may not be a float.
_ENDLESS: Final = 1e300


@dataclass(frozen=True, order=True)
class LabelRow:
    """One released label.

    Attributes:
        query: index into the public set, from 0.
        label: index into the classes, from 0.
        round: the round of its release, from 1.
        source: ``teachers``, their noisy vote; ``records``, that of the records themselves; or
            ``reinforced``, the student's own prediction that the teachers did not contradict.
    """

    query: int
    label: int
    round: int
    source: str

    def __post_init__(self) -> None:
        for name, value in (("query", self.query), ("label", self.label), ("round", self.round)):
            if type(value) is not int or not 0 <= value < _LARGEST:
                raise DataError(f"a label's {name} is a whole number from 0, got {value!r}")
        if self.round < 1:
            raise DataError("rounds are counted from 1, got a label of round 0")
        if self.source not in SOURCES:
            raise DataError(f"a label's source is one of {', '.join(SOURCES)}, got {self.source!r}")


@dataclass(frozen=True)
class LabelSet:
    """All released labels of a campaign and what they cost.

    Attributes:
        campaign: identity of the campaign, 1 to 64 bytes.
        classes: class names, at least two, in the order that labels count in.
        public_set: content hash of the public set, 32 bytes.
        queries: number of inputs in the public set.
        rows: the labels; no query twice.
        privacy: the text of ``privacy.json``, byte for byte as the server wrote it.
        noisy: the noisy counts of neighbour votes, which the labels were made of; else None.
    """

    campaign: bytes
    classes: tuple[str, ...]
    public_set: bytes
    queries: int
    rows: tuple[LabelRow, ...]
    privacy: str
    noisy: NoisyVotes | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.campaign) <= 64:
            raise DataError(f"a campaign's identity is 1 to 64 bytes, got {len(self.campaign)}")
        if len(self.public_set) != 32:
            raise DataError(f"a public set's hash is 32 bytes, got {len(self.public_set)}")
        if len(self.classes) < 2 or len(set(self.classes)) != len(self.classes):
            raise DataError(f"a campaign has at least two classes, all different: {self.classes}")
        if type(self.queries) is not int or not 1 <= self.queries < _LARGEST:
            raise DataError(f"a public set has at least one query, got {self.queries!r}")
        seen: set[int] = set()
        for row in self.rows:
            if row.query >= self.queries:
                raise DataError(f"query {row.query} lies outside a public set of {self.queries}")
            if row.label >= len(self.classes):
                raise DataError(f"query {row.query}: no class has the number {row.label}")
            if row.query in seen:
                raise DataError(f"query {row.query} has two labels")
            seen.add(row.query)
        if self.noisy is not None and (
            self.noisy.counts.shape[1] != len(self.classes)
            or (len(self.noisy.queries) and self.noisy.queries[-1] >= self.queries)
        ):
            raise DataError("noisy votes of other classes or queries than the labels have")
        checked_statement(self.privacy)

    def to_json(self) -> str:
        """Return the text of a label file, one label a line."""
        head = {
            "format": FORMAT,
            "campaign": self.campaign.hex(),
            "classes": list(self.classes),
            "public_set": self.public_set.hex(),
            "queries": self.queries,
            "privacy": self.privacy,
            "noisy": None
            if self.noisy is None
            else {
                "sigma": self.noisy.sigma,
                "queries": self.noisy.queries.tolist(),
                "counts": [" ".join(map(str, row)) for row in self.noisy.counts.tolist()],
            },
        }
        lines = ",\n".join(
            "    " + json.dumps([row.query, row.label, row.round, row.source]) for row in self.rows
        )
        start = json.dumps(head, indent=2, ensure_ascii=False).removesuffix("\n}")
        return start + ',\n  "labels": [' + (f"\n{lines}\n  " if lines else "") + "]\n}\n"

    @classmethod
    def from_json(cls, text: str) -> LabelSet:
        """Return the labels of a file's text.

        Raises:
            DataError: if the text is not a label file of this format, or anything in it is
                missing, unknown, out of range or there twice.
        """
        fields = _object(text, "a label file")
        if fields.get("format") != FORMAT:
            raise DataError(f"not a label file of format {FORMAT}: {fields.get('format')!r}")
        if set(fields) != _FIELDS:
            odd = ", ".join(sorted(set(fields) ^ _FIELDS))
            raise DataError(f"a label file with fields missing or unknown: {odd}")
        classes, rows = fields["classes"], fields["labels"]
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise DataError("a label file's classes are a list of names")
        if not isinstance(rows, list):
            raise DataError("a label file's labels are a list")
        if type(fields["queries"]) is not int or not isinstance(fields["privacy"], str):
            raise DataError("a label file's queries are a number, its privacy statement is a text")
        return cls(
            campaign=_bytes(fields, "campaign", _HEX_ANY),
            classes=tuple(classes),
            public_set=_bytes(fields, "public_set", _HEX_32),
            queries=fields["queries"],
            rows=tuple(_row(row) for row in rows),
            privacy=fields["privacy"],
            noisy=_noisy(fields["noisy"]),
        )


def checked_statement(text: str) -> dict[str, object]:
    """Return the fields of a privacy statement.

    Args:
        text: of ``privacy.json``.

    Raises:
        DataError: if it is not a JSON object, or does not say its epsilon (finite, not negative),
            delta (from 0, below 1), unit, adjacency, observer, mechanism and ledger head.
    """
    fields = _object(text, "a privacy statement")
    missing = [key for key in STATEMENT_KEYS if fields.get(key) in (None, "", [], {})]
    if missing:
        raise DataError(f"a privacy statement that does not say its {', '.join(missing)}")
    epsilon, delta = _number(fields, "epsilon"), _number(fields, "delta")
    if epsilon < 0:
        raise DataError(f"a privacy statement with epsilon {epsilon}")
    if not 0 <= delta < 1:
        raise DataError(f"a privacy statement with delta {delta}")
    for key in ("unit", "adjacency", "observer", "ledger_head"):
        if not isinstance(fields[key], str):
            raise DataError(f"a privacy statement's {key} is a text, got {fields[key]!r}")
    return fields


def _number(fields: Mapping[str, object], key: str) -> float:
    value = fields[key]
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _ENDLESS:
        raise DataError(f"a privacy statement's {key} is a finite number, got {value!r}")
    return float(value)


def _object(text: str, what: str) -> dict[str, object]:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise DataError(f"{what} that says something twice")
        return made

    def refuse(name: str) -> object:
        raise DataError(f"{what} holds {name}, which is not JSON")

    try:
        fields = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what} that is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise DataError(f"{what} is a JSON object, got a {type(fields).__name__}")
    return fields


def _bytes(fields: Mapping[str, object], key: str, form: re.Pattern[str]) -> bytes:
    value = fields[key]
    if not isinstance(value, str) or not form.fullmatch(value):
        raise DataError(f"a label file's {key} is not small hexadecimal digits of the right length")
    return bytes.fromhex(value)


def _noisy(body: object) -> NoisyVotes | None:
    """Return the noisy votes of a file: counts are one text a query, with spaces between them."""
    if body is None:
        return None
    if not isinstance(body, dict) or set(body) != {"sigma", "queries", "counts"}:
        raise DataError("a label file's noisy votes have sigma, queries and counts")
    sigma, queries, counts = body["sigma"], body["queries"], body["counts"]
    if type(sigma) is not float or not 0 <= sigma < _ENDLESS:
        raise DataError(f"a label file's noise is a finite number, got {sigma!r}")
    if not isinstance(queries, list) or not all(
        type(each) is int and 0 <= each < _LARGEST for each in queries
    ):
        raise DataError("a label file's noisy votes are of numbered queries")
    if not isinstance(counts, list) or not all(
        isinstance(row, str) and _COUNTS.fullmatch(row) for row in counts
    ):
        raise DataError("a row of noisy votes is whole numbers with spaces between them")
    rows = [[int(count) for count in row.split(" ")] for row in counts]
    if len({len(row) for row in rows}) > 1 or not rows:
        raise DataError("rows of noisy votes differ in length, or there are none")
    return NoisyVotes(np.array(queries, dtype=np.int64), np.array(rows, dtype=np.int64), sigma)


def _row(row: object) -> LabelRow:
    if not isinstance(row, list) or len(row) != 4:
        raise DataError(f"a label is [query, label, round, source], got {str(row)[:80]}")
    query, label, number, source = row
    if not isinstance(source, str):
        raise DataError(f"a label's source is a text, got {source!r}")
    return LabelRow(query, label, number, source)
