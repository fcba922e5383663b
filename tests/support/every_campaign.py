"""Campaigns of every kind, in this process: real voters, a real ledger, and kills at any failpoint.

A kind is a choice in each column of :data:`COLUMNS`. The columns are the product's own lists, and which
choices go together the product's own specification says.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from aggregator_server.campaign.runner import Campaign
from aggregator_server.exchange.wire import GONE, Arrival
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import read_campaign
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.neighbour import NeighbourVotes
from party.voting.site import Site
from party.voting.voter import Voter
from pate.answers import ANSWERS, CLASS, CONTRAST, LABELS, NUMBER
from pate.campaign.choices import AGGREGATIONS, AGGREGATORS, NOISES, PUBLISH, UNITS
from pate.campaign.settings import make_gate
from pate.codes import CODES, KERNEL
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Inputs, Table, content_hash
from pate.errors import QuorumError, UsageError
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import IN_WORDS
from pate.runtime import failpoints
from tests.support.campaign_messages import SERVER_KEY
from tests.support.server.campaigns import make_spec
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from aggregator_server.ledger.state import CampaignState
    from pate.campaign.spec import CampaignSpec
    from pate.runtime.screen import Screen
    from pate.votes import Counts

_Case = TypeVar("_Case")

NAMES: Final = ("a", "b", "c", "d")
TEACHERS: Final = 30
QUERIES: Final = 24
SIZE: Final = 40
#: In place of an alteration: a party's first record is not there.
REMOVED: Final = -1
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
_K: Final = {"nearest": "nearest", "spread": "spread-3", "dense": "dense-8", KERNEL: "kernel-8"}
_T: Final = {LABELS: "labels-2"}
CLASSES: Final = {CLASS: ("0", "1", "2"), LABELS: ("u", "v", "w", "none"), NUMBER: ("0", "4", "10")}


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

    def __str__(self) -> str:
        plain = ("capped", "record", "alone", "unproved", "gaussian", "class")
        return " ".join(each for each in self if each not in plain)

    @property
    def records_vote(self) -> bool:
        return self.aggregator == "neighbour"

    @property
    def exact(self) -> bool:
        """Whether the server sees sums without noise, and nothing else."""
        return (self.aggregation, self.noise) == ("masked", "central")

    @property
    def mechanism(self) -> str:
        """The name of its last round's mechanism."""
        of_labels = not self.records_vote and self.answer == LABELS
        name = "teacher-labels" if of_labels else self.aggregator
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
        """The specification.

        Raises:
            UsageError: if the product has no such campaigns.
        """
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
            gate = make_gate("gated", 8.0, 1e-5, 4.0, 0.15)
            assert gate is not None
            fields |= {"publish": "gated", "epsilon": 8.0, "sigma2": Fraction(4)} | {
                f"gate_{name}": getattr(gate, name)
                for name in ("order", "target", "test", "failure")
            }
        if self.records_vote:
            code = _K[self.code] + ("" if stated == CLASS else f" {stated}")
            fields |= {
                "representatives": ROWS, "most_votes": 200, "code": code,
                "votes_per_patient": 2 if self.unit == "patient" else 1,
                "delta": 0.0 if self.law == "geometric" else 1e-5,
            }  # fmt: skip
        elif stated != CLASS:
            fields |= {"answer": stated, "classes": columns[:-1]}
        if self.series == "series":
            fields |= {"series": "monthly"}
        if self.aggregator == "interactive-gnmax":
            fields["rounds"] = 2
        fields |= changes
        return make_spec(**fields)


#: Members of each column, from the product's own lists.
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "aggregator": AGGREGATORS,
    "publish": PUBLISH,
    "code": (*CODES, KERNEL),
    "answer": (*ANSWERS, CONTRAST),
    "unit": UNITS,
    "series": ("alone", "series"),
    "aggregation": AGGREGATIONS,
    "noise": NOISES,
    "law": tuple(IN_WORDS),
    "inputs": tuple(PUBLIC),
    "proofs": ("unproved", "proved"),
}
_HASHES: Final = {name: content_hash(public).hex() for name, public in PUBLIC.items()}


@cache
def every_kind() -> tuple[Kind, ...]:
    """All kinds that the product has."""
    found = []
    of_records = ("code", "law", "series")
    for aggregator in AGGREGATORS:
        columns = dict(COLUMNS, aggregator=(aggregator,))
        if aggregator != "neighbour":  # terms that a campaign of teachers has no place for
            columns |= {name: columns[name][:1] for name in of_records}
        for choice in product(*columns.values()):
            kind = Kind(*choice)
            try:
                kind.spec()
            except UsageError:
                continue
            found.append(kind)
    return tuple(found)


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

    def _most(self, inputs: Inputs) -> list[int]:
        return [each[0] % 3 for each in inputs.row_hashes()]

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        for row, most in enumerate(self._most(inputs)):
            votes[row, most] = self.teachers - 2 - self.salt
            votes[row, (most + 1) % 3] = 2 + self.salt
        return votes

    def vote_labels(self, inputs: Inputs, classes: Sequence[str], most: int) -> Counts:
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        for row, first in enumerate(self._most(inputs)):
            votes[row, first] = self.teachers
            votes[row, (first + 1) % 3] = 5 + self.salt
        return votes


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
    if kind.answer == LABELS:
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


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def kills(at: Callable[[str], bool]) -> Iterator[None]:
    """Have every module of the product end its process at failpoints for which ``at`` is true."""

    def reach(name: str) -> None:
        assert name in failpoints.NAMES
        if at(name):
            raise Killed(name)

    true = failpoints.reach
    places = [each for each in [*sys.modules.values()] if vars(each).get("reach") is true]
    for each in places:
        vars(each)["reach"] = reach
    try:
        yield
    finally:
        for each in places:
            vars(each)["reach"] = true


@dataclass
class World:
    """One server and its four parties, over any number of campaigns.

    Attributes:
        salts: by party, alterations of its data since its first campaign, under the same fingerprint.
        sent: all bytes that went to a party, and its replies.
    """

    root: Path
    kind: Kind
    salts: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[bytes, bytes]] = field(default_factory=list)
    lines: Lines = field(default_factory=Lines)
    _nodes: dict[int, str] = field(default_factory=dict)
    _voters: dict[str, Voter] = field(default_factory=dict)
    _waiting: list[Arrival] = field(default_factory=list)
    _count: int = 0

    def ledger(self, name: str) -> PartyLedger:
        return PartyLedger(self.root / name / LEDGER_FILE)

    def start(self, name: str) -> None:
        """Start a party's process, anew if it ran."""
        home = self.root / name
        home.mkdir(parents=True, exist_ok=True)
        salt, kind = self.salts.get(name, 0), self.kind
        ensemble = None if kind.records_vote else Teachers(kind, salt)
        records = None
        if kind.records_vote:
            records = NeighbourVotes(records_of(kind, NAMES.index(name), salt), b"key")
        self._voters[name] = Voter(
            name=name, identity=identity_key(home), ensemble=ensemble, records=records, home=home,
            site=Site(Policy.default(loopback=True), self.ledger(name)), noise=SystemNoise(),
            say=lambda line: self.lines.say(f"{name}: {line}"),
        )  # fmt: skip
        self._nodes = {node: whose for node, whose in self._nodes.items() if whose != name}
        self._count += 1
        self._nodes[self._count] = name

    # --- the wire ---

    def nodes(self) -> frozenset[int]:
        return frozenset(self._nodes)

    def send(self, node: int, body: bytes) -> str:
        handle = f"{len(self.sent)}"
        self.sent.append((body, b""))
        name = self._nodes.get(node)
        if name is None:
            self._waiting.append(Arrival(handle, node, None, GONE))
            return handle
        try:
            reply = self._voters[name].handle(body)
        except Killed:
            self._waiting.append(Arrival(handle, node, None, GONE))
            self.start(name)
        else:
            self.sent[-1] = (body, reply)
            self._waiting.append(Arrival(handle, node, reply, None))
        return handle

    def receive(self) -> list[Arrival]:
        arrivals, self._waiting = self._waiting, []
        return arrivals

    def close(self) -> None:
        self._waiting.clear()

    # --- the server ---

    def place(self, number: int) -> Path:
        return self.root / f"campaign {number}" / "ledger.db"

    def create(self, number: int = 0, kind: Kind | None = None, **changes: Any) -> Path:
        """Make the ledger of a campaign."""
        self.kind = kind or self.kind
        spec = self.kind.spec(id=f"{number + 1:032x}", name=f"month-{number}", **changes)
        if spec.series is not None:
            spec = replace(spec, series_key=SERVER_KEY.public_key().public_bytes_raw().hex())
        Ledger.create(self.place(number), spec).close()
        for name in NAMES:
            self.start(name)
        return self.place(number)

    def serve(self, number: int = 0) -> None:
        """Run one server process from the state of its ledger to the end."""
        self.close()
        pauses = 0

        def pause(_: float) -> None:
            nonlocal pauses
            pauses += 1
            if pauses > 400:
                raise QuorumError(f"nothing happens: {self.lines.said[-5:]}")

        def predict(round_: int) -> None:
            state = ledger.state()
            made = np.full((QUERIES, len(state.classes)), 0.01, dtype=np.float32)
            made[:, 0] = 1 - 0.01 * (len(state.classes) - 1)
            ledger.record_predictions(round_, made)

        with Ledger.open(self.place(number)) as ledger:
            campaign = Campaign(
                ledger, PUBLIC[self.kind.inputs], self, noise=SystemNoise(),
                screen=cast("Screen", self.lines), signing_key=SERVER_KEY, patience=0.0,
                await_predictions=predict, pause=pause,
            )  # fmt: skip
            campaign.run()
            campaign.farewell()

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

    def state(self, number: int = 0) -> CampaignState:
        return read_campaign(self.place(number))[0]
