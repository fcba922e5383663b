"""Random histories of campaigns, run by real parties against a malicious server, and its knowledge.

Parties are :class:`~party.voting.voter.Voter` with real ledgers, policies and masks. The server has the
campaign's key and every reply. One party colludes with it: it forgets everything between two sums, and
accepts everything.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any

import numpy as np

from aggregator_server.exchange.aggregation import ANSWERS, Batch, MaskedAggregation
from party.backup import back_up, restore
from party.identity.keys import identity_key
from party.policy.policy import Policy
from party.voting.neighbour import NeighbourVotes
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.campaign.roster import RosterParty
from pate.data.values import Dataset, Images, Inputs, batch_hash
from pate.errors import ProtocolError, QuorumError
from pate.masking.party import PartyMasking
from pate.mechanisms import DistributedGNMax, GNMax, Neighbour, TeacherLabels
from tests.support.campaign_messages import (
    CampaignMessage,
    campaign_message,
    terms_message,
)
from tests.support.party.asked import Asked, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pate.campaign.announced import Announced
    from pate.codes import Code
    from pate.votes import Counts

NAMES = ("a", "b", "c", "d", "e")
#: Works with the server.
COLLUDER = "e"
CLASSES = ("x", "y")
_PIXELS = np.random.default_rng(4).integers(0, 255, (7, 4, 4, 1), dtype=np.uint8)
#: Two public sets that share all queries of the first.
PUBLIC = (Images(_PIXELS[:6]), Images(_PIXELS))
HASHES = PUBLIC[1].row_hashes()
#: What votes in a world, and whether the parties add noise.
KINDS = ("teachers", "records", "noise", "labels")
#: How likely each thing is to happen next, in a world of each kind.
CHANCES = {
    "attempt": (0.33, 0.45, 0.20, 0.35),
    "again": (0.30, 0.05, 0.40, 0.15),
    "campaign": (0.08, 0.30, 0.05, 0.25),
    "retrain": (0.14, 0.12, 0.05, 0.05),
    "restore": (0.10, 0.03, 0.25, 0.15),
    "lie": (0.05, 0.05, 0.05, 0.05),
}
#: Batches: they share two queries.
ROWS = ((0, 1, 2), (1, 2, 3))
#: Votes of one party on one count that no party has so many records for.
NO_BOUND = 40
_STRICT = Policy(campaigns="any", least_survivors=3, least_colluders=1, largest_epsilon=None)
_LOOSE = Policy(
    campaigns="any", least_survivors=0, least_colluders=0, least_roster=None, largest_epsilon=None,
    repeat_queries="allow",
)  # fmt: skip


@dataclass
class Teachers:
    """k teachers that answer at random, the same whenever their data and their training are."""

    name: str
    data: int
    training: int = 0
    answer: str = "class"
    classes: tuple[str, ...] = CLASSES
    unit: str = "record"
    schema: str = "images 4x4x1"

    @property
    def teachers(self) -> int:
        return 2 + self.data % 2

    @property
    def fingerprint(self) -> bytes:
        return f"{self.name} {self.data}".encode().ljust(32)

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        """For a class; of two labels one teacher in four casts the second, too, where two count."""
        hashes = public.take(list(rows)).row_hashes()
        votes = np.zeros((len(hashes), len(classes)), dtype=np.int64)
        for at, query in enumerate(hashes):
            seed = [*query[:8], ord(self.name), self.data, self.training]
            for answer in np.random.default_rng(seed).integers(0, len(classes), self.teachers):
                votes[at, list(classes).index(CLASSES[answer])] += 1
        if code.answer.most > 1:
            more = [query[0] % 4 == 0 for query in hashes]
            votes[more] = np.minimum(votes[more] + 1, self.teachers)
        return votes


@dataclass(frozen=True)
class Released:
    """A sum that the server opened.

    Attributes:
        campaign: its number.
        noisy: whether it has the parties' noise in it.
        most: that a party puts on one count; 0 of teachers.
        public: which public set.
        rows: of it, the queries.
        values: what each party of the sum put into it, (queries, classes), columns as in CLASSES.
        data: which data each party had.
    """

    campaign: int
    noisy: bool
    most: int
    public: int
    rows: tuple[int, ...]
    values: dict[str, Counts]
    data: dict[str, int]

    @property
    def total(self) -> Counts:
        found: Counts = np.sum(list(self.values.values()), axis=0, dtype=np.int64)
        return found


@dataclass
class World:
    """Five parties, one of them in league with a server that lies, and what it opened."""

    root: Path
    random: np.random.Generator
    kind: str
    released: list[Released] = field(default_factory=list)
    attempts: int = 0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records, self.noisy = self.kind == "records", self.kind == "noise"
        self.labels = self.kind == "labels"
        self.data = dict.fromkeys(NAMES, 0)
        self.training = dict.fromkeys(NAMES, 0)
        self.voters: dict[str, Voter] = {}
        self.given: dict[tuple[str, bytes], Counts] = {}
        self.campaigns: list[tuple[CampaignMessage, list[RosterParty], int]] = []
        #: Of each campaign, the queries of which records vote on; of teachers a choice.
        self.rows: list[tuple[int, ...]] = []
        self._old: list[tuple[int, tuple[int, ...]]] = []
        for name in NAMES:
            self.start(name)

    # --- what happens at parties --------------------------------------------------------------

    def start(self, name: str) -> None:
        answer = "labels" if self.labels else "class"
        voters = ReadyVoters(
            Teachers(name, self.data[name], self.training[name], answer),
            self.voting_records(name) if self.records else None,
        )
        policy = _LOOSE if name == COLLUDER else _STRICT
        self.voters[name] = Asked(
            self.root / name, voters, name=name, policy=policy, said=self.said
        ).voter
        self.voters[name]._public = _Both()  # type: ignore[assignment]  # it has both public sets

    def voting_records(self, name: str, data: int | None = None) -> NeighbourVotes:
        seed = [ord(name), self.data[name] if data is None else data]
        held = np.random.default_rng(seed)
        pixels = held.integers(0, 255, (int(held.integers(3, 9)), 4, 4, 1), dtype=np.uint8)
        return NeighbourVotes(
            Dataset(Images(pixels), held.integers(0, 2, len(pixels)), CLASSES), name.encode()
        )

    def retrain(self, name: str) -> None:
        """Other data, or another number of teachers."""
        self.data[name] += 1
        self.start(name)

    def restore(self, name: str, *, noise: bool, same: bool) -> None:
        """Lose all but the keys, take the newest copy, and train again.

        Args:
            name: of the party.
            noise: whether the noise is in the copy.
            same: whether the teachers come out as they were.
        """
        home, copy = self.root / name, self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        back_up(home, copy)
        head = self.voters[name]._site.ledger.head
        _lose(home)
        restore(copy, home, head=head)
        if not noise:
            (home / "noise.db").unlink()
        self.training[name] += not same
        self.start(name)

    # --- what the server does ------------------------------------------------------------------

    def campaign(self) -> int:
        """Begin a campaign, of most parties or all of them, and return its number."""
        random = self.random
        names = list(NAMES)
        if self.chance(0.12):
            del names[random.integers(len(names))]
        number = len(self.campaigns)
        most = int(random.choice([1, 2, 3, NO_BOUND], p=[0.25, 0.1, 0.1, 0.55]))
        most = most if self.records else 0
        public = int(self.records and self.chance(0.1))
        self.rows.append(ROWS[int(self.chance(0.3))])
        colluders = 1
        threshold = (len(names) + colluders) // 2 + 1
        roster = [
            RosterParty(
                name,
                identity_key(self.root / name).public_key().public_bytes_raw().hex(),
                most or Teachers(name, self.data[name]).teachers,
                "record",
            )
            for name in names
        ]
        members = [(each.name, bytes.fromhex(each.identity), each.teachers) for each in roster]
        mechanism = (
            Neighbour(3, Fraction(400), 1)
            if self.records
            else DistributedGNMax(Fraction(80), threshold - colluders, 1)
            if self.noisy
            else GNMax(Fraction(400), 1)
        )
        fields: dict[str, Any] = {
            "id": bytes([number + 1]) * 16,
            "classes": CLASSES[:: random.choice([1, -1])],
            "aggregation": "masked",
            "noise": "distributed" if self.noisy else "central",
            "min_parties": threshold,
            "colluders": colluders,
            "epsilon": 100.0,
        }
        if self.records:
            fields |= {"aggregator": "neighbour", "most_votes": most}
        if self.labels:
            code = f"each-{len(self.rows[-1])} labels-{random.integers(1, 3)}-of-2"
            mechanism = TeacherLabels(0, Fraction(400), 1, code=code)
            fields |= {"code": code}
        terms = terms_message(members, [mechanism], composition="zcdp", cap="1")
        message = campaign_message(PUBLIC[public], terms, **fields)
        self.campaigns.append((message, roster, public))
        return number

    def attempt(
        self,
        number: int,
        rows: Sequence[int],
        *,
        dropping: float = 0.0,
        lied: dict[str, CampaignMessage] | None = None,
        unasked: Iterable[str] = (),
    ) -> bool:
        """Take parties through one sum, and return whether it was opened.

        Args:
            number: of the campaign.
            rows: the queries.
            dropping: chance of a party that it drops out, at each step.
            lied: what the campaign is said to be, by the name of the recipient.
            unasked: who is not asked to open the sum.
        """
        self.attempts += 1
        message, roster, public = self.campaigns[number]
        _lose(self.root / COLLUDER)
        self.start(COLLUDER)
        batch = Batch(tuple(rows), batch_hash([HASHES[row] for row in rows]))
        aggregation = MaskedAggregation(message.offer(), roster, batch)
        parties = {each.name: each for each in roster}
        while aggregation.step:
            for name in self.random.permutation(sorted(aggregation.awaited)).tolist():
                last = aggregation.step == "ask_opening"
                if (self.random.random() < dropping) or (last and name in unasked):
                    continue
                about = (lied or {}).get(name, message)
                try:
                    reply = tell(self.voters[name], aggregation.request(name), about)
                    if reply.WhichOneof("body") == ANSWERS[aggregation.step]:
                        aggregation.take(parties[name], reply)
                except ProtocolError:
                    continue  # who was told what cannot be, or something else, is as one that left
            try:
                aggregation.advance()
            except QuorumError:
                return False
        found = aggregation.result()
        order = [list(message.classes).index(name) for name in CLASSES]
        values = {
            name: self.given[name, message.id][:, order]
            for name in found.responders  # what it masked last for this campaign is in this sum
        }
        data = {name: self.data[name] for name in values}
        noisy = message.noise == "distributed"
        self.released.append(
            Released(number, noisy, message.most_votes, public, tuple(rows), values, data)
        )
        self._old.append((number, tuple(rows)))
        np.testing.assert_array_equal(self.released[-1].total, found.total.counts[:, order])
        return True

    def lie(self, number: int) -> dict[str, CampaignMessage]:
        """Return another campaign of the same id, for one party."""
        message, roster, _ = self.campaigns[number]
        told = message.copy()
        assert told.terms is not None
        names = [each.name for each in roster if each.name != COLLUDER]
        victim = str(self.random.choice(names))
        others = [at for at, each in enumerate(roster) if each.name != victim]
        match self.random.choice(["teachers", "roster", "threshold", "classes"]):
            case "teachers":
                told.terms.roster[others[0]].teachers += 1
            case "roster":
                del told.terms.roster[others[-1]]
            case "threshold":
                told.min_parties = len(roster)
            case _:
                told.classes = message.classes[::-1]
        return {victim: told}

    # --- a history -----------------------------------------------------------------------------

    def play(self, steps: int) -> None:
        """Do a number of random things, most of them attempts at a sum."""
        self.campaign()
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        random = self.random
        name = str(random.choice(NAMES[:-1]))
        what = random.choice(
            list(CHANCES), p=[each[KINDS.index(self.kind)] for each in CHANCES.values()]
        )
        if what == "retrain":
            self.retrain(name)
            self.campaign()
        elif what == "restore":
            lost, same = (0.8, 0.9) if self.noisy else (0.5, 0.5)
            self.restore(name, noise=not self.chance(lost), same=self.chance(same))
        elif what == "campaign":
            self.campaign()
        elif what == "again" and self._old:
            # What was opened, as it was or in another campaign.
            number, rows = self._old[random.integers(len(self._old))]
            if self.chance(0.1 if self.noisy else 0.5):
                number = len(self.campaigns) - 1
            self.attempt(number, self.rows[number] if self.records or self.labels else rows)
        else:
            number = len(self.campaigns) - 1
            self.attempt(
                number,
                self.rows[
                    number if self.records or self.labels else random.integers(len(self.rows))
                ],
                dropping=0.05 if self.chance(0.3) else 0.0,
                lied=self.lie(number) if what == "lie" else None,
                unasked=[name] if self.chance(0.5) else [],
            )

    def chance(self, of: float) -> bool:
        return bool(self.random.random() < of)


class _Both:
    """Public sets that need not be sent."""

    own = None

    def find(self, campaign: Announced) -> Inputs:
        return PUBLIC[0] if campaign.queries == len(PUBLIC[0]) else PUBLIC[1]


def _lose(home: Path) -> None:
    for path in list(home.iterdir()):
        if path.name not in ("identity.key", "shard.key"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def watched(monkeypatch: Any, world: World) -> None:
    """Note what parties mask: the truth, that no server has."""
    real = PartyMasking.mask

    def mask(self: PartyMasking, boxes: Any, values: Counts) -> bytes:
        world.given[self.name, self.context.campaign] = np.array(values)
        return real(self, boxes, values)

    monkeypatch.setattr(PartyMasking, "mask", mask)


# --- what can be worked out -----------------------------------------------------------------------


def rank(rows: Iterable[Sequence[int]]) -> int:
    """Return the rank over the rationals."""
    columns = dict.fromkeys(zip(*rows, strict=True))  # a column twice says nothing new
    left = [[Fraction(value) for value in row] for row in zip(*columns, strict=True)]
    found = 0
    for column in range(len(left[0]) if left else 0):
        pivot = next((at for at in range(found, len(left)) if left[at][column]), None)
        if pivot is None:
            continue
        left[found], left[pivot] = left[pivot], left[found]
        for at in range(found + 1, len(left)):
            factor = left[at][column] / left[found][column]
            if factor:
                left[at] = [
                    one - factor * two for one, two in zip(left[at], left[found], strict=True)
                ]
        found += 1
    return found


def alone(sums: Sequence[dict[tuple[str, Any], int]], colluder: str = COLLUDER) -> set[str]:
    """Return the parties of which some combination of sums holds votes, and no other party's.

    Args:
        sums: how often each unknown, of a party, is in each. What the colluder put in is known.

    Returns:
        Names. The combinations that hold nothing but a party's unknowns are as many as the rank is
        lower without these columns.
    """
    known = {each for row in sums for each in row if each[0] == colluder}
    unknowns = sorted({each for row in sums for each in row} - known, key=repr)
    whole = rank([[row.get(each, 0) for each in unknowns] for row in sums])
    return {
        name
        for name in NAMES
        if name != colluder
        and rank([[row.get(u, 0) for u in unknowns if u[0] != name] for row in sums]) < whole
    }


def of_teachers(released: Sequence[Released]) -> set[str]:
    """Return whose votes, or whose change, exact sums of teachers' votes give."""
    found: set[str] = set()
    for query in range(len(HASHES)):
        rows = [
            {
                (name, tuple(votes[each.rows.index(query)].tolist())): 1
                for name, votes in each.values.items()
            }
            for each in released
            if query in each.rows and not each.noisy
        ]
        found |= alone(rows)
    return found


def of_records(world: World) -> set[str]:
    """Return whose counts, or whose change, exact sums of records' votes give.

    The unknowns are how many records of a class a party has that vote for just these queries, one of
    each batch. Counts that are cut off are no sums of those: there all counts of the parties are
    tried that give the sums.
    """
    exact = [each for each in world.released if not each.noisy]
    forms = sorted({(each.public, each.rows) for each in exact})
    rows = []
    for each in exact:
        if each.most < NO_BOUND:
            continue
        at = forms.index((each.public, each.rows))
        for column, query in product(range(len(CLASSES)), each.rows):
            rows.append(
                {
                    (name, (each.data[name], column, profile)): 1
                    for name in each.values
                    for profile in product(*(rows for _, rows in forms))
                    if profile[at] == query
                }
            )
    found = alone(rows)
    groups = defaultdict(list)
    for each in exact:
        groups[each.public, each.rows, tuple(sorted(each.data.items()))].append(each)
    for same in groups.values():
        if _histogram(same):
            found.add("somebody")
    return found


def _histogram(same: Sequence[Released]) -> bool:
    """Return whether sums that were cut off elsewhere tell the honest parties' counts, in some order."""
    bounds = sorted({each.most for each in same})
    if len(bounds) < 2:
        return False
    sums = {each.most: each.total - each.values.get(COLLUDER, 0) for each in same}
    honest = len(same[0].values.keys() - {COLLUDER})
    for cell in np.ndindex(*same[0].total.shape):
        fits = [
            counts
            for counts in combinations_with_replacement(range(10), honest)
            if all(sum(min(count, m) for count in counts) == sums[m][cell] for m in bounds)
        ]
        singly = [
            counts
            for counts in combinations_with_replacement(range(10), honest)
            if sum(min(count, bounds[-1]) for count in counts) == sums[bounds[-1]][cell]
        ]
        if len(fits) == 1 < len(singly):
            return True
    return False


def of_noise(released: Sequence[Released]) -> set[str]:
    """Return of whom two sums have the same votes under other noise."""
    seen: dict[tuple[str, int, tuple[int, ...]], Counts] = {}
    found = set()
    for each in released:
        for name, values in each.values.items():
            first = seen.setdefault((name, each.campaign, each.rows), values)
            if each.noisy and name != COLLUDER and not np.array_equal(first, values):
                found.add(name)
    return found
