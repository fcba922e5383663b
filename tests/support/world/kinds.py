"""Campaigns of every kind, in this process: real voters, a real ledger, and kills at any failpoint.

A kind is a choice in each column of :data:`COLUMNS`. The columns are the product's own lists, and which
choices go together the product's own specification says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np

from aggregator_server.ledger.ledger import Ledger
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import ReadyVoters
from pate.answers import ANSWERS, CLASS, LABELS, NUMBER, RESIDUAL, RESIDUAL_LABELS
from pate.campaign.choices import (
    AGGREGATIONS,
    AGGREGATORS,
    BALANCED_COUNTS,
    BY_LABEL,
    COUNTS,
    NOISES,
    PUBLISH,
    UNITS,
)
from pate.campaign.settings import make_gate
from pate.codes import AXES, CODES
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Inputs, Table, content_hash
from pate.errors import QuorumError, UsageError
from pate.noise.share_laws import IN_WORDS
from pate.runtime import failpoints
from tests.support.campaign_messages import SERVER_KEY
from tests.support.server.campaigns import make_spec
from tests.support.world.in_process import Killed, World, kills

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from party.voting.voter import Voter
    from pate.campaign.spec import CampaignSpec
    from pate.codes import Code
    from pate.votes import Counts

_Case = TypeVar("_Case")

NAMES: Final = ("a", "b", "c", "d")
TEACHERS: Final = 30
QUERIES: Final = 24
SIZE: Final = 40
#: In place of an alteration: a party's first record is not there.
REMOVED: Final = -1
#: In which they vote, where they do so in rounds.
ROUNDS: Final = 3
#: Where records vote.
ROWS: Final = (0, 3, 4, 9, 11, 17, 20, 22)
_RNG = np.random.default_rng(11)
_WIDTH: Final = 6
PUBLIC: Final[dict[str, Inputs]] = {
    "table": Table(
        ("x", "y", "kind"),
        (
            _RNG.normal(size=QUERIES),
            np.arange(QUERIES, dtype=np.float64) / 3,
            np.array(list("uvw") * (QUERIES // 3), dtype=np.str_),
        ),
    ),
    "images": Images(_RNG.integers(0, 256, (QUERIES, 6, 6, 1), dtype=np.uint8)),
    "embeddings": Embeddings(
        _RNG.integers(-9000, 9000, (QUERIES, _WIDTH)).astype(np.int16), "texts", "ab" * 32
    ),
}  # fmt: skip
_K: Final = {"nearest": "nearest", "dense": "dense-8"}
_T: Final = {LABELS: "labels-2"}
_LABELLED: Final = ("u", "v", "w", "none")
CLASSES: Final = {
    CLASS: ("0", "1", "2"), LABELS: _LABELLED, RESIDUAL_LABELS: _LABELLED, NUMBER: ("0", "4", "10"),
}  # fmt: skip


class Kind(NamedTuple):
    """One kind of campaign; see :data:`COLUMNS`."""

    aggregator: str
    publish: str
    code: str
    answer: str
    unit: str
    series: str
    aggregation: str
    noise: str
    law: str
    inputs: str
    proofs: str
    release: str

    def __str__(self) -> str:
        plain = ("capped", "record", "alone", "unproved", "gaussian", "class", BY_LABEL)
        return " ".join(each for each in self if each not in plain)

    @property
    def records_vote(self) -> bool:
        return self.aggregator == "neighbour"

    @property
    def rounds(self) -> int:
        """In how many rounds records vote; 0: in none."""
        return ROUNDS if self.answer in (RESIDUAL, RESIDUAL_LABELS) else 0

    @property
    def several(self) -> bool:
        """Whether votes are for several labels."""
        return self.answer in (LABELS, RESIDUAL_LABELS)

    @property
    def exact(self) -> bool:
        """Whether the server sees sums without noise, and nothing else."""
        return (self.aggregation, self.noise) == ("masked", "central")

    @property
    def mechanism(self) -> str:
        """The name of its last round's mechanism."""
        at_once = self.release != BY_LABEL or (not self.records_vote and self.answer == LABELS)
        name = "teacher-labels" if at_once else self.aggregator
        return f"distributed-{name}" if self.noise == "distributed" else name

    @property
    def currency(self) -> str:
        """The name of the composition in which its costs add up."""
        if self.publish == "gated":
            return "gate"
        if self.law == "geometric":
            return "pure"
        return "zcdp" if self.aggregator == "lnmax" else "gdp"

    def spec(self, **changes: Any) -> CampaignSpec:
        """The specification."""
        public = PUBLIC[self.inputs]
        stated = _T.get(self.answer, self.answer)
        columns = CLASSES.get(self.answer, CLASSES[CLASS])
        fields: dict[str, Any] = {
            "aggregator": self.aggregator, "unit": self.unit, "aggregation": self.aggregation,
            "noise": self.noise, "public_set": _HASHES[self.inputs], "queries": QUERIES,
            "schema": public.schema(), "parties": NAMES, "min_parties": 3, "epsilon": 400.0,
            "vote_proofs": self.proofs == "proved", "classes": columns,
        }  # fmt: skip
        if self.inputs == "embeddings":
            fields["encoder"] = f"tiny (SHA-256 {'ab' * 32})"
        if self.publish == "gated":
            fields |= {"publish": "gated", "epsilon": 8.0, "sigma2": Fraction(4), **_gate()}
        if self.records_vote:
            code = _K[self.code] + ("" if stated == CLASS else f" {stated}")
            fields |= {
                "representatives": ROWS, "most_votes": 200, "code": code,
                "votes_per_patient": 2 if self.unit == "patient" and not self.rounds else 1,
                "delta": 0.0 if self.law == "geometric" else 1e-5,
            }  # fmt: skip
        elif stated != CLASS:
            fields |= {"answer": stated, "classes": columns[:-1]}
        if self.release != BY_LABEL:
            fields |= {"release": self.release}
        if self.series == "series":
            fields |= {"series": "monthly"}
        if self.aggregator == "interactive-gnmax":
            fields["rounds"] = 2
        if self.rounds:
            fields["rounds"] = self.rounds
        fields |= changes
        return make_spec(**fields)


#: Members of each column, from the product's own lists.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "aggregator": AGGREGATORS,
    "publish": PUBLISH,
    "code": CODES,
    "answer": (*ANSWERS, RESIDUAL, RESIDUAL_LABELS),
    "unit": UNITS,
    "series": ("alone", "series"),
    "aggregation": AGGREGATIONS,
    "noise": NOISES,
    "law": tuple(IN_WORDS),
    "inputs": tuple(PUBLIC),
    "proofs": ("unproved", "proved"),
    "release": (BY_LABEL, COUNTS, BALANCED_COUNTS, f"{AXES}-4"),
}
_HASHES: Final = {name: content_hash(public).hex() for name, public in PUBLIC.items()}


@cache
def _gate() -> dict[str, object]:
    """What a specification says of the gate; thousands of kinds have it."""
    gate = make_gate("gated", 8.0, 1e-5, 4.0, 0.15)
    assert gate is not None
    return {f"gate_{name}": getattr(gate, name) for name in ("order", "target", "test", "failure")}


#: Columns whose first member goes with all that another one goes with.
_PLAIN_FIRST: Final = ("publish", "unit", "series", "law", "inputs", "proofs")
#: Columns of which votes of teachers have the first member only.
_OF_RECORDS: Final = ("code", "law", "series")


def possible(kind: Kind) -> bool:
    """Whether the product has such campaigns."""
    if not kind.records_vote and any(
        getattr(kind, name) != COLUMNS[name][0] for name in _OF_RECORDS
    ):
        return False
    try:
        kind.spec()
    except UsageError:
        return False
    return True


@cache
def every_kind() -> tuple[Kind, ...]:
    """All kinds that the product has."""
    # Plain kinds first, and then one column after the other: of all products few are possible.
    plain = (names[:1] if name in _PLAIN_FIRST else names for name, names in COLUMNS.items())
    found = [kind for choice in product(*plain) if possible(kind := Kind(*choice))]
    for name in _PLAIN_FIRST:
        others = (kind._replace(**{name: member}) for kind in found for member in COLUMNS[name][1:])
        found += [kind for kind in [*others] if possible(kind)]
    at = {(name, member): i for name, names in COLUMNS.items() for i, member in enumerate(names)}
    return tuple(sorted(found, key=lambda kind: [at[each] for each in kind._asdict().items()]))


def fewest(cases: Iterable[_Case], parts: Callable[[_Case], Iterable[object]]) -> list[_Case]:
    """Few of the cases, the most telling first: each part of any case is one of theirs."""
    of = {case: frozenset(parts(case)) for case in cases}
    left = frozenset[object]().union(*of.values())
    chosen = []
    while left:
        chosen.append(max(of, key=lambda case: len(of[case] & left)))
        left -= of[chosen[-1]]
    return chosen


def members(kind: Kind) -> list[tuple[str, str]]:
    """Columns, each with what the kind has there."""
    return [*zip(COLUMNS, kind, strict=True), ("mechanism", kind.mechanism)]


@cache
def covering() -> tuple[Kind, ...]:
    """Few kinds in which every two members of two columns meet that meet in any kind."""
    return tuple(fewest(every_kind(), lambda kind: combinations(members(kind), 2)))


# --- the parties ------------------------------------------------------------------------------------


@dataclass
class Teachers:
    """Teachers whose votes follow from the row of a query, and from ``salt``."""

    kind: Kind
    salt: int = 0
    teachers: int = TEACHERS
    fingerprint: bytes = b"f" * 32

    @property
    def classes(self) -> tuple[str, ...]:
        return CLASSES[LABELS][:-1] if self.answer == LABELS else CLASSES[CLASS]

    @property
    def answer(self) -> str:
        return LABELS if self.kind.answer == LABELS else CLASS

    @property
    def unit(self) -> str:
        return "patient" if self.kind.unit == "patient" else "record"

    @property
    def schema(self) -> str:
        return PUBLIC[self.kind.inputs].schema()

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        second = (5 if code.answer.of else 2) + self.salt
        for row, hashed in enumerate(public.take(list(rows)).row_hashes()):
            most = hashed[0] % 3
            votes[row, most] = self.teachers - (0 if code.answer.of else second)
            votes[row, (most + 1) % 3] = second
        votes *= code.grid
        return votes // (2 * code.places) if code.in_directions else votes


def records_of(kind: Kind, party: int, salt: int = 0) -> Dataset:
    """A party's records: public rows with other labels or numbers; ``salt`` alters the first one.

    :data:`REMOVED` takes it out.
    """
    if salt == REMOVED:
        return records_of(kind, party).take(range(1, SIZE))
    public = PUBLIC[kind.inputs]
    rng = np.random.default_rng([5, party])
    rows = rng.integers(0, QUERIES, SIZE)
    labels = rng.integers(0, 3, SIZE)
    labels[0] = (labels[0] + salt) % 3
    groups = np.array([f"p{at % 13}" for at in range(SIZE)])
    data = Dataset(public.take(rows.tolist()), labels, CLASSES[CLASS], groups)
    if kind.several:
        flags = rng.random((SIZE, 3)) < 0.4
        flags[0] ^= bool(salt)
        return replace(
            data, labels=np.zeros(SIZE, np.int64), classes=("u", "v", "w"), answers=flags
        )
    if kind.answer == NUMBER:
        numbers = rng.uniform(0, 10, SIZE)
        numbers[0] = (numbers[0] + 5 * salt) % 10
        return replace(data, labels=np.zeros(SIZE, np.int64), classes=(), answers=numbers)
    return data


class EveryWorld(World):
    """One server and its four parties, over campaigns of any kinds.

    ``kind``: of the last campaign; ``salts``: by party, alterations of its data since its first
    campaign, under the same fingerprint.
    """

    def __init__(self, root: Path, kind: Kind) -> None:
        super().__init__(root, NAMES, PUBLIC[kind.inputs])
        self.kind = kind
        self.salts: dict[str, int] = {}

    def voter(self, name: str, **changes: Any) -> Voter:
        salt, kind = self.salts.get(name, 0), self.kind
        if not kind.records_vote:
            return super().voter(name, voters=ReadyVoters(Teachers(kind, salt)), **changes)
        records = NeighbourVotes(records_of(kind, NAMES.index(name), salt), b"key")
        return super().voter(name, voters=ReadyVoters(records=records), **changes)

    def create(self, number: int = 0, kind: Kind | None = None, **changes: Any) -> Path:
        """Make the ledger of a campaign, and start all parties."""
        self.kind = kind or self.kind
        self.public = PUBLIC[self.kind.inputs]
        spec = self.kind.spec(id=f"{number + 1:032x}", name=f"month-{number}", **changes)
        if spec.series is not None:
            spec = replace(spec, series_key=SERVER_KEY.public_key().public_bytes_raw().hex())
        Ledger.create(self.place(number), spec).close()
        for name in NAMES:
            self.parties.start(name)
        return self.place(number)

    def pause(self) -> Callable[[float], None]:
        left = iter(range(400))

        def pause(_: float) -> None:
            if next(left, None) is None:
                raise QuorumError(f"nothing happens: {self.lines.said[-5:]}")

        return pause

    def killed(self, number: int = 0, *, but: Sequence[str] = ()) -> list[str]:
        """Run a campaign in which each failpoint that is passed kills once; return their names."""
        seen: list[str] = []

        def at(name: str) -> bool:
            if name in seen or name in but:
                return False
            seen.append(name)
            return True

        with kills(at):
            for _ in range(len(failpoints.NAMES)):
                try:
                    self.serve(number)
                except (
                    Killed,
                    QuorumError,
                ):  # three attempts at a sum failed: the operator resumes
                    continue
                return seen
        raise AssertionError(f"it never ends: {seen}, {self.lines.said[-9:]}")
