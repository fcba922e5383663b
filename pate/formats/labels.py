"""The exported labels of a campaign, from which a student can learn without a server.

A label file is one JSON object. Labels are public: they were released, and their cost is in the
privacy statement that the file carries. Reading is strict, because a file may come from anywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import Answer
from pate.codes import NEAREST, code_of
from pate.errors import DataError, ProtocolError
from pate.exact import in_text, parse, read, write
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.rounds.model import RoundModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FORMAT: Final = "pate-labels/2"
#: How a label came about.
SOURCES: Final = ("teachers", "records", "reinforced")
#: Required fields of every privacy statement.
STATEMENT_KEYS: Final = (
    "epsilon", "delta", "unit", "adjacency", "observer", "mechanism", "ledger_head",
)  # fmt: skip

_COUNTS = re.compile(r"-?[0-9]{1,15}(?: -?[0-9]{1,15})*")
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
        noisy = None if self.noisy is None else _Noisy.of(self.noisy)
        file = _File(
            self.campaign, self.classes, self.public_set, self.queries, self.privacy, noisy
        )
        head = {"format": FORMAT, **write(file)}
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
            noisy=None if file.noisy is None else file.noisy.votes(),
        )


@dataclass(frozen=True)
class _Model:
    """A shown model in a file: weights in whole units, one text a direction."""

    cut: int
    weights: tuple[str, ...]

    @classmethod
    def of(cls, model: RoundModel | None) -> _Model | None:
        return None if model is None else cls(model.cut, _texts(model.weights))

    def model(self) -> RoundModel:
        try:
            return RoundModel(_numbers(self.weights), self.cut)
        except ProtocolError as error:
            raise DataError(f"a label file: {error}") from error


@dataclass(frozen=True)
class _Round:
    """A round before the last in a file."""

    sigma: float
    counts: tuple[str, ...]
    shown: _Model | None = field(default=None, metadata=in_text(omitted=True))

    def released(self) -> RoundCounts:
        return RoundCounts(_numbers(self.counts), self.sigma, _model_of(self.shown))


@dataclass(frozen=True)
class _Noisy:
    """Noisy votes in a file: counts are one text a query, with spaces between them."""

    sigma: float
    queries: tuple[int, ...]
    counts: tuple[str, ...]
    #: Omitted from the text for the nearest query.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))
    #: Of campaigns in rounds only.
    shown: _Model | None = field(default=None, metadata=in_text(omitted=True))
    earlier: tuple[_Round, ...] = field(default=(), metadata=in_text(omitted=True))
    model: _Model | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < _ENDLESS:
            raise DataError(f"noise is a finite number from 0, got {self.sigma!r}")
        if not all(0 <= each < _LARGEST for each in self.queries):
            raise DataError("noisy votes are of numbered queries")

    @classmethod
    def of(cls, noisy: NoisyVotes) -> _Noisy:
        return cls(
            float(noisy.sigma),
            tuple(noisy.queries.tolist()),
            _texts(noisy.counts),
            noisy.code,
            _Model.of(noisy.shown),
            tuple(
                _Round(float(each.sigma), _texts(each.counts), _Model.of(each.shown))
                for each in noisy.earlier
            ),
            _Model.of(noisy.model),
        )

    def votes(self) -> NoisyVotes:
        return NoisyVotes(
            np.array(self.queries, dtype=np.int64),
            _numbers(self.counts),
            self.sigma,
            self.code,
            _model_of(self.shown),
            tuple(each.released() for each in self.earlier),
            _model_of(self.model),
        )


def _model_of(stored: _Model | None) -> RoundModel | None:
    return None if stored is None else stored.model()


def _texts(rows: NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(" ".join(map(str, row)) for row in rows.tolist())


def _numbers(texts: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the numbers of texts, a row each."""
    if not all(_COUNTS.fullmatch(row) for row in texts):
        raise DataError("a row of noisy votes is whole numbers with spaces between them")
    rows = [[int(count) for count in row.split(" ")] for row in texts]
    if len({len(row) for row in rows}) != 1:
        raise DataError("rows of noisy votes differ in length, or there are none")
    return np.array(rows, dtype=np.int64)


@dataclass(frozen=True)
class _File:
    """The fields of a label file; each label is [query, label, round, source]."""

    campaign: bytes
    classes: tuple[str, ...]
    public_set: bytes
    queries: int
    privacy: str
    noisy: _Noisy | None
    labels: tuple[tuple[int, int, int, str], ...] = ()


def checked_statement(text: str) -> dict[str, object]:
    """Return the fields of a privacy statement.

    Args:
        text: of ``privacy.json``.

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
