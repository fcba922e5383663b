"""The exported labels of a campaign, from which a student can learn without a server.

A label file is one JSON object. Labels are public: they were released, and their cost is in the
privacy statement that the file carries. Reading is strict, because a file may come from anywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pate.answers import Answer
from pate.codes import code_of
from pate.errors import DataError
from pate.exact import parse, read, write
from pate.formats.noisy_counts import NoisyVotes  # noqa: TC001 - its reader looks it up

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "pate-labels/2"
#: How a label came about.
SOURCES: Final = ("teachers", "records", "reinforced")
#: Required fields of every privacy statement.
STATEMENT_KEYS: Final = (
    "epsilon", "delta", "unit", "adjacency", "observer", "mechanism", "ledger_head",
)  # fmt: skip

#: Fields of noisy votes, of their rounds and models, as they stand in a file.
_ORDER: Final = (
    "cut", "weights", "sigma", "queries", "counts", "code", "shown", "earlier", "model",
)  # fmt: skip
_LARGEST: Final = 2**31
#: Most characters of a label file, or of a statement.
_LONGEST: Final = 2**30
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
        rows: the labels; no query twice. Of several labels, or a number, there are none.
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
        if self.answer.in_rounds and (self.noisy is None or self.noisy.model is None):
            raise DataError("the labels of a campaign in rounds have no model")
        checked_statement(self.privacy)

    @property
    def answer(self) -> Answer:
        """What was voted for."""
        return Answer() if self.noisy is None else code_of(self.noisy.code).answer

    @property
    def content_in_words(self) -> str:
        """What a student learns from."""
        # Dense sums say what a student can learn even where no label was clear.
        if self.noisy is None or self.rows or (self.answer.labelled and not self.noisy.dense):
            return f"{len(self.rows)} labels"
        return self.noisy.in_words

    def to_json(self) -> str:
        """Return the text of a label file, one label a line."""
        file = _File(
            self.campaign, self.classes, self.public_set, self.queries, self.privacy, self.noisy
        )
        head = {"format": FORMAT, **write(file)}
        head["noisy"] = _ordered(head["noisy"])
        del head["labels"]
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
        what = "a label file"
        fields = parse(text, most=_LONGEST, error=DataError, what=what, form=FORMAT)
        file = read(_File, fields, error=DataError, what=what)
        return cls(
            campaign=file.campaign,
            classes=file.classes,
            public_set=file.public_set,
            queries=file.queries,
            rows=tuple(LabelRow(*row) for row in file.labels),
            privacy=file.privacy,
            noisy=file.noisy,
        )


def _ordered(value: Any) -> Any:
    """Return noisy votes with their fields in the order of the file."""
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _ordered(value[name]) for name in sorted(value, key=_ORDER.index)}


@dataclass(frozen=True)
class _File:
    """The fields of a label file; each label is [query, label, round, source]."""

    campaign: bytes
    classes: tuple[str, ...]
    public_set: bytes
    queries: int
    privacy: str
    noisy: NoisyVotes | None
    labels: tuple[tuple[int, int, int, str], ...] = ()


def checked_statement(text: str) -> dict[str, object]:
    """Return the fields of a privacy statement, the text of ``privacy.json``.

    Raises:
        DataError: if it is not a JSON object, or lacks its epsilon (finite, not negative),
            delta (from 0, below 1), unit, adjacency, observer, mechanism and ledger head.
    """
    fields = parse(text, most=_LONGEST, error=DataError, what="a privacy statement")
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
