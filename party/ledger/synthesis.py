"""Synthetic rows in a party's ledger: reserved before the data are read, then spent.

A reserved cost is permanent: after a crash it is unknown
whether the output was seen. Further rows of a paid model cost nothing, and name the release that
paid.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Protocol

from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.storage.ledger import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pate.storage.hash_chain import Entry

#: Units of a row: with at most one row per patient, neighbours are those of patients.
UNITS: Final = ("record", "patient")
RELEASES: Final = ("seedless", "seeded")
_MOST_ROWS: Final = 10**9
_MOST_SETTINGS: Final = 32
_WORD: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_LINE: Final = re.compile(r"[ -~]{1,200}", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Synthesis(Step["HasSyntheses"]):
    """One release of synthetic rows, fixed before the data are read, and the entry that reserves it."""

    kind = "synthesis-reserved"
    id: str
    unit: str  # of privacy: ``record``, or ``patient`` if no patient has two rows
    method: str
    release: str  # ``seedless``, or ``seeded`` (from single records)
    rows: int
    schema: str
    data: str  # keyed digest of the data, hex; only this home can identify them
    epsilon: Fraction | None = None
    rho: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)  # of ``delta``-approximate ``rho``-zCDP
    # id of the release whose model made these rows; None if a new one was fitted
    parent: str | None = None
    model: str | None = None  # digest of that model's file, hex; None if a new one was fitted
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, pattern, may_lack in (
            ("id", _ID, False),
            ("method", _WORD, False),
            ("schema", _DIGEST, False),
            ("data", _DIGEST, False),
            ("parent", _ID, True),
            ("model", _DIGEST, True),
        ):
            value = getattr(self, name)
            _require(
                (may_lack and value is None)
                or (isinstance(value, str) and pattern.fullmatch(value) is not None),
                f"its {name} is {value!r:.40}",
            )
        _require(self.unit in UNITS, f"its unit is {self.unit!r:.40}")
        _require(self.release in RELEASES, f"its kind of release is {self.release!r:.40}")
        _require(
            type(self.rows) is int and 1 <= self.rows <= _MOST_ROWS,
            f"it has {self.rows!r:.40} rows",
        )
        for name in ("epsilon", "rho", "delta"):
            value = getattr(self, name)
            exact = type(value) is Fraction and value >= 0 and (name != "delta" or value < 1)
            _require((name == "epsilon" and value is None) or exact, f"its {name} is {value!r:.40}")
        # epsilon-DP is epsilon^2/2-zCDP: a pure bound below rho, or 0 with another cost, is wrong.
        _require(
            self.epsilon is None or (self.delta == 0 and self.rho <= self.epsilon**2 / 2),
            "its pure epsilon is less than its rho and delta",
        )
        _require(
            (self.parent is None) == (self.model is None), "a parent and its model go together"
        )
        free = self.release == "seedless" and self.rho == self.delta == self.epsilon == 0
        _require(self.parent is None or free, "rows of a paid model cost nothing")
        _require(self.parent is not None or self.rho > 0, "a new model costs something")
        _require(
            len(self.settings) <= _MOST_SETTINGS
            and all(
                isinstance(name, str)
                and _WORD.fullmatch(name)
                and isinstance(value, str)
                and _LINE.fullmatch(value)
                for name, value in self.settings.items()
            ),
            "its settings are not names with lines of text",
        )

    @property
    def free(self) -> bool:
        """Whether it costs nothing: its model was paid for before."""
        return self.parent is not None

    def follow(self, state: HasSyntheses, at: Entry) -> HasSyntheses:
        """Reserve its cost once; rows of a paid model cost nothing, and name the release that paid."""
        records = state.syntheses
        if self.id in records:
            raise RefusedError(f"synthetic rows {self.id[:8]} are already in the ledger")
        if self.parent is not None:
            parent = records.get(self.parent)
            if parent is None or parent.model is None or parent.model != self.model:
                raise RefusedError(
                    f"the model of synthetic rows {self.id[:8]} was not paid for in this ledger"
                )
            for name in ("unit", "method", "schema"):
                if getattr(parent.synthesis, name) != getattr(self, name):
                    raise RefusedError(
                        f"the model of synthetic rows {self.id[:8]} was paid for with another {name}"
                    )
        records[self.id] = SynthesisRecord(self, at.written_at)
        return state


@dataclass(frozen=True)
class Spent(Step["HasSyntheses"]):
    """The rows of a release are in their file; ``model`` is None if its model was not stored."""

    kind = "synthesis-spent"
    id: str
    model: str | None
    output: str

    def follow(self, state: HasSyntheses, at: Entry) -> HasSyntheses:
        """Record the files of a reserved release, once."""
        record = state.syntheses.get(self.id)
        if record is None:
            raise RefusedError("synthetic rows were written that were not paid for")
        if record.spent_at is not None:
            raise RefusedError(f"synthetic rows {self.id[:8]} were written before")
        for what, digest in (("model", self.model), ("file", self.output)):
            lacking = what == "model" and digest is None
            if not lacking and not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
                raise ProtocolError(f"the digest of a {what} of synthetic rows is {digest!r:.40}")
        if record.synthesis.model is not None and self.model is not None:
            raise LedgerError("rows of a paid model, and a new model")
        state.syntheses[self.id] = replace(
            record, spent_at=at.written_at, model=self.model, output=self.output
        )
        return state


@dataclass(frozen=True)
class SynthesisRecord:
    """A release and its state; it counts also if it is not known when its file was complete."""

    synthesis: Synthesis
    reserved_at: str
    spent_at: str | None = None
    model: str | None = None
    output: str | None = None


class HasSyntheses(Protocol):
    """The part of a ledger's state that is about synthetic rows."""

    # by id, in the order in which they were reserved
    syntheses: dict[str, SynthesisRecord]


def unit_of(syntheses: Iterable[Synthesis]) -> str | None:
    """Return the smallest unit that all releases with a cost protect; None without a cost."""
    found = [each.unit for each in syntheses if not each.free]
    return min(found, key=UNITS.index, default=None)


def _require(holds: bool, wrong: str) -> None:
    if not holds:
        raise ProtocolError(f"an impossible release of synthetic rows: {wrong}")
