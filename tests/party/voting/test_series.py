"""Series of campaigns, looked at from outside with the true units in hand.

Every public input is a representative, and every record is a copy of one of them. So a record's vote is
in the cell of its own input and label, and counts say which contents voted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

import party.voting.casting
import party.voting.site
import party.voting.voters
import pate.storage.ledger
from party.cli.main import app
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import series_voters
from pate.accounting.composition import Gdp, total_cost
from pate.accounting.filters import Delta
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Table
from pate.errors import ProtocolError
from pate.formats.privacy_statement import rounded_up
from pate.votes import Counts
from tests.party.voting.test_neighbour_voter import (
    CLASSES,
    COST,
    NAMES,
    PART,
    PUBLIC,
    SHARES,
    Hospitals,
    Site,
    of_patients,
)
from tests.support.party.offers import settled

EVERY: Final = tuple(range(len(PUBLIC)))
#: One record: who it is of, and which public input it is a copy of; its label is fixed by both.
Row = tuple[str, int]
#: Where a party is killed: in the transaction, after it, and after its votes are on disk.
CRASHES: Final = ("party-entry-written", "answer-recorded", "votes-cached", "voting")
PLACES: Final = (
    pate.storage.ledger,
    party.voting.site,
    party.voting.casting,
)


class Killed(BaseException):
    """The process ends here."""


def table(rows: Sequence[Row], *, patients: bool) -> Dataset:
    """The table of a party; a copy of input i has label i % 2."""
    inputs = [at for _, at in rows]
    groups = np.array([who for who, _ in rows], dtype=np.str_)
    labels = np.array([at % 2 for at in inputs], dtype=np.int64)
    return Dataset(PUBLIC.take(inputs), labels, CLASSES, groups if patients else None)


@dataclass
class World:
    """One party over a series; it is started anew for each round."""

    home: Path
    patients: int | None = None
    left: dict[int, Counts] = field(default_factory=dict)
    site: Site | None = None

    def start(self, rows: Sequence[Row]) -> Site:
        self.site = Site(self.home, table(rows, patients=self.patients is not None))
        return self.site

    def campaign(self, number: int, **changes: Any) -> Any:
        assert self.site is not None
        mechanism = of_patients(self.patients or 1)
        unit = "record" if self.patients is None else "patient"
        fields = {"unit": unit, "series": "monthly", "id": bytes([number + 1]) * 16} | changes
        return self.site.campaign([mechanism], **fields)

    def ask(self, number: int, rows: Sequence[Row], **changes: Any) -> Counts:
        """Votes of a round, which must be as they were if it was asked before."""
        site = self.start(rows)
        votes = site.votes(self.campaign(number, **changes), EVERY)
        if number in self.left:
            np.testing.assert_array_equal(votes, self.left[number])
        self.left[number] = votes
        return votes

    def crash(
        self, number: int, rows: Sequence[Row], point: str, patch: pytest.MonkeyPatch
    ) -> None:
        def reach(name: str) -> None:
            if name == point:
                raise Killed

        (self.home / "votes.db").unlink(missing_ok=True)  # else equal votes are not computed again
        site = self.start(rows)
        with patch.context() as patched:
            for module in PLACES:
                patched.setattr(module, "reach", reach)
            with pytest.raises(Killed):
                site.ask(self.campaign(number), EVERY)

    def per_input(self) -> Counts:
        """(rounds, inputs) votes for each public input."""
        return np.array([votes.sum(axis=1) for _, votes in sorted(self.left.items())])


@dataclass(frozen=True)
class Plan:
    """A random series: the table at each round, and what happens in it.

    Attributes:
        tables: the rows at each round.
        crashes: where the party is killed before it votes; "" nowhere.
        lost: whether the round is never asked again after that.
        again: whether it is asked twice.
    """

    tables: tuple[tuple[Row, ...], ...]
    crashes: tuple[str, ...]
    lost: tuple[bool, ...]
    again: tuple[bool, ...]

    def without(self, unit: Row | str, copy: int = 0) -> Plan:
        """The same series in which a patient, or one copy of a record, never was."""
        return replace(self, tables=tuple(_without(rows, unit, copy) for rows in self.tables))

    def run(self, world: World, patch: pytest.MonkeyPatch) -> Counts:
        """Votes of all rounds, (rounds, inputs); of a lost round none have left."""
        for number, rows in enumerate(self.tables):
            if self.crashes[number]:
                world.crash(number, rows, self.crashes[number], patch)
                if self.lost[number]:
                    world.left[number] = np.zeros((len(EVERY), len(CLASSES)), dtype=np.int64)
                    continue
            for _ in range(1 + self.again[number]):
                world.ask(number, rows)
        return world.per_input()


def _without(rows: tuple[Row, ...], unit: Row | str, copy: int) -> tuple[Row, ...]:
    if isinstance(unit, str):
        return tuple(row for row in rows if row[0] != unit) or (("nobody", 0),)
    same = [at for at, row in enumerate(rows) if row == unit]
    gone = same[copy : copy + 1]
    return tuple(row for at, row in enumerate(rows) if at not in gone)


def random_plan(seed: int, *, patients: bool, grows: bool = True) -> Plan:
    """A series of four rounds or so; of patients each has inputs that no other has."""
    random = np.random.default_rng([31, seed])
    rounds = int(random.integers(3, 6))
    #: One row that stays, so that no table is empty.
    rows: list[Row] = [("nobody", 0)]
    tables = []
    for _ in range(rounds):
        for _ in range(int(random.integers(0, 5))):  # in some rounds nobody is new
            if patients:
                who = int(random.integers(0, 4))
                rows.append((f"p{who}", 1 + 3 * who + int(random.integers(3))))
            else:
                rows.append(("", int(random.integers(0, 5))))  # many are copies
        if not grows:
            rows[1:] = [row for row in rows[1:] if random.random() > 0.25]
        random.shuffle(rows)
        tables.append(tuple(rows))
    crashes = [str(random.choice(CRASHES)) if random.random() < 0.4 else "" for _ in tables]
    lost = [bool(each) and random.random() < 0.4 for each in crashes]
    again = [random.random() < 0.3 for _ in tables]
    return Plan(tuple(tables), tuple(crashes), tuple(lost), tuple(again))


def records_of(plan: Plan) -> Counts:
    """(inputs,) the most copies of each input in one table."""
    copies = [np.bincount([at for _, at in rows], minlength=len(EVERY)) for rows in plan.tables]
    most: Counts = np.max(copies, axis=0)
    return most


def check_votes(votes: Counts, most: Counts) -> None:
    """Check that no unit voted more often than it may, in all rounds together."""
    assert (votes.sum(axis=0) <= most).all(), (votes, most)


def check_moved(votes: Counts, others: Counts, most: int) -> None:
    """Check how many votes of all rounds together moved as one unit was taken out."""
    assert np.abs(votes - others).sum() <= most, votes - others


SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_votes_twice_and_one_less_moves_one_vote(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = random_plan(seed, patients=False)
    votes = plan.run(World(tmp_path / "with"), monkeypatch)
    check_votes(votes, records_of(plan))
    if not any(plan.lost):
        # And all have voted, in the first round that they were there for.
        np.testing.assert_array_equal(votes.sum(axis=0), records_of(plan))
    unit = plan.tables[-1][seed % len(plan.tables[-1])]
    if unit == ("nobody", 0):
        return
    less = plan.without(unit).run(World(tmp_path / "without"), monkeypatch)
    check_moved(votes, less, 1)
    assert (less <= votes).all()


@pytest.mark.parametrize(("seed", "cap"), [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_a_patient_has_a_cap_for_life_whatever_leaves_the_table(
    tmp_path: Path, seed: int, cap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = random_plan(seed, patients=True, grows=seed % 2 == 0)
    votes = plan.run(World(tmp_path / "with", cap), monkeypatch)
    for who in range(4):
        of_one = votes[:, 1 + 3 * who : 4 + 3 * who]
        assert of_one.sum() <= cap
        less = plan.without(f"p{who}").run(World(tmp_path / f"without {who}", cap), monkeypatch)
        check_moved(votes, less, cap)
        # Nobody else's votes moved.
        np.testing.assert_array_equal(np.delete(votes, np.s_[1 + 3 * who : 4 + 3 * who], 1),
                                      np.delete(less, np.s_[1 + 3 * who : 4 + 3 * who], 1))  # fmt: skip
    check_votes(votes, records_of(plan))  # nor does a record vote twice


def test_a_record_that_votes_twice_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By these checks if its hash differs each time; by the ledger if the party does not look."""
    plan = Plan(((("", 1), ("", 2)),) * 2, ("",) * 2, (False,) * 2, (False,) * 2)
    check_votes(plan.run(World(tmp_path / "sound"), monkeypatch), records_of(plan))
    forgetful = World(tmp_path / "forgetful")
    forgetful.ask(0, plan.tables[0])
    with monkeypatch.context() as patched:
        patched.setattr("party.ledger.ledger.PartyLedger.voted", lambda *_: frozenset())
        site = forgetful.start(plan.tables[1])
        reply = site.ask(forgetful.campaign(1), EVERY)
        site.refuses(reply, "RefusedError", "each votes once")
    sound = party.voting.voters._Hashes.of
    calls = iter(range(10**6))
    monkeypatch.setattr(
        party.voting.voters._Hashes,
        "of",
        lambda self, *parts: sound(self, *parts, str(next(calls))),
    )
    with pytest.raises(AssertionError):
        check_votes(plan.run(World(tmp_path / "salted"), monkeypatch), records_of(plan))


# --- what a round may depend on ------------------------------------------------------------------


def test_who_has_nobody_new_votes_with_zeros(tmp_path: Path) -> None:
    """A refusal would say so, and what a round costs does not depend on it."""
    world = World(tmp_path / "a")
    rows = [("", 1), ("", 2), ("", 2)]
    assert world.ask(0, rows).sum() == 3
    assert world.ask(1, rows).sum() == 0
    assert world.ask(2, rows[:1]).sum() == 0
    assert world.ask(3, [*rows, ("", 2)]).sum() == 1
    assert world.site is not None
    assert world.site.epsilon() == Gdp().epsilon(COST, PART)


def test_another_public_set_or_other_queries_do_not_make_a_unit_new(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    rows = [("", 1), ("", 2)]
    world.ask(0, rows)
    site = world.start([*rows, ("", 3)])
    votes = site.votes(world.campaign(1, classes=("b", "c", "a")), (0, 4, 9))
    assert votes.sum() == 1


def test_other_queries_in_the_same_round_are_still_refused(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    world.ask(0, [("", 1), ("", 2)])
    site = world.start([("", 1), ("", 2)])
    site.refuses(site.ask(world.campaign(0), (0, 1)), "RefusedError", "each record votes once")


def test_rows_that_leave_and_come_back_move_two_votes(tmp_path: Path) -> None:
    """Docs/proofs/composition.md, section 9: a span of rounds, while another copy comes."""
    one, two = ("", 1), ("", 2)
    tables = ((one, two), (two,), (one, two))
    plan = Plan(tables, ("",) * 3, (False,) * 3, (False,) * 3)
    votes = World(tmp_path / "with"), World(tmp_path / "without")
    for number, rows in enumerate(tables):
        votes[0].ask(number, rows)
        votes[1].ask(number, [two] if number == 0 else rows)
    difference = votes[0].per_input() - votes[1].per_input()
    assert difference[:, 1].tolist() == [1, 0, -1]
    assert records_of(plan)[1] == 1


# --- what is refused -----------------------------------------------------------------------------


def test_one_unit_and_one_cap_for_all_campaigns_of_a_series(tmp_path: Path) -> None:
    world = World(tmp_path / "a", 1)
    rows = [("p1", 4), ("p1", 5), ("p2", 7)]
    world.ask(0, rows)
    for number, (unit, votes) in enumerate((("patient", 2), ("record", 1)), start=1):
        site = world.start(rows)
        about = site.campaign(
            [of_patients(votes)], unit=unit, series="monthly", id=bytes([number + 1]) * 16
        )
        site.refuses(site.ask(about, EVERY), "RefusedError", "it needs a series of its own")
        about.series, about.id = f"weekly {number}", bytes([number + 51]) * 16
        site.votes(about, EVERY)


def test_units_that_are_known_in_another_way_get_no_vote(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    rows = [("", 1), ("", 2)]
    world.ask(0, rows)
    (tmp_path / "a" / "shard.key").unlink()
    site = world.start(rows)
    site.refuses(site.ask(world.campaign(1), EVERY), "RefusedError", "known in another way")
    # With that key it may begin another series.
    world.ask(2, rows, series="weekly")


# --- what it costs -------------------------------------------------------------------------------


def test_noisy_sums_of_one_series_may_be_over_the_same_queries(tmp_path: Path) -> None:
    """With growing tables, other votes and other survivors, under a policy that repeats nothing."""
    hospitals = Hospitals(tmp_path)
    truth = np.zeros((len(EVERY), len(CLASSES)), dtype=np.int64)
    for number in range(3):
        truth[:] = 0
        for at, name in enumerate(NAMES):
            rows = [("", (at + 4 * month) % len(EVERY)) for month in range(number + 1)]
            hospitals.sites[name] = Site(tmp_path / name, table(rows, patients=False), name=name)
            truth[rows[-1][1], rows[-1][1] % 2] += 1
        about = hospitals.campaign(SHARES, series="monthly", id=bytes([number + 1]) * 16)
        who = NAMES if number != 1 else NAMES[:3]
        steps = [NAMES, NAMES, who, who, who]
        found = hospitals.run(hospitals.aggregation(about, EVERY), steps)
        if number != 1:
            # 28 counts of sigma 40: beyond 9 sigma with a chance below 1e-16.
            assert np.abs(found - truth).max() < 40 * 9
    one = hospitals.sites["a"]
    assert one.site.ledger.cumulative_epsilon(Delta(1e-5)).observer == "server"
    single = Gdp().epsilon(total_cost(Gdp(), SHARES.worst), PART)
    assert one.epsilon() == single


# --- what is said --------------------------------------------------------------------------------


def test_the_screen_says_what_a_series_is_and_what_it_does_not_cover(tmp_path: Path) -> None:
    for cap, words in (
        (None, "one that is corrected counts as another"),
        (1, "another identifier"),
    ):
        world = World(tmp_path / str(cap), cap)
        site = world.start([("p1", 4)])
        site.describe(world.campaign(0, joined=False))
        assert words in site.said[-1]
        assert "in all campaigns of series 'monthly'" in " ".join(site.said)


def test_the_ledger_on_screen_counts_a_patients_votes_once(tmp_path: Path) -> None:
    """Three patients with one vote each, then one more: a vote has the hash of its record, too."""
    world = World(tmp_path / "a", 1)
    rows: list[Row] = [("p1", 1), ("p1", 2), ("p2", 3), ("p3", 4)]
    world.ask(0, rows)
    world.ask(1, [*rows, ("p4", 5)])
    shown = CliRunner().invoke(app, ["ledger", "--home", str(world.home)], catch_exceptions=False)
    text = " ".join(shown.output.split())
    assert "with 3 votes of our patients" in text
    assert "with 1 vote of our patients" in text
    assert "4 votes of our patients so far" in text


def test_the_ledger_on_screen_has_the_figure_of_the_whole_series(tmp_path: Path) -> None:
    world = World(tmp_path / "a")
    rows: list[Row] = [("", 1)]
    for number in range(3):
        rows.append(("", number + 2))
        world.ask(number, rows)
    shown = CliRunner().invoke(app, ["ledger", "--home", str(world.home)], catch_exceptions=False)
    text = " ".join(shown.output.split())
    figure = rounded_up(Gdp().epsilon(COST, PART))
    assert "series monthly: 3 campaigns" in text
    assert "4 votes of our records so far" in text
    assert (
        f"the whole series, by our own accountant: epsilon {figure} at delta 1e-05 (unit: record"
        in text
    )
    assert f"all 3 together, by our own accountant: epsilon {figure}" in text
    made = CliRunner().invoke(app, ["ledger", "--json", "--home", str(world.home)])
    (found,) = json.loads(made.output)["series"]
    assert (found["name"], len(found["campaigns"])) == ("monthly", 3)
    assert found["own_figure"]["epsilon"] == Gdp().epsilon(COST, PART)


# --- copies: all tables of a tiny world ----------------------------------------------------------


def rounds_of(copies: Sequence[int]) -> list[int]:
    """Votes of one content in each round, by how many copies of it are in the table."""
    cast: set[bytes] = set()
    votes = []
    for number in copies:
        records = NeighbourVotes(table([("", 0), *[("", 1)] * number], patients=False), b"key")
        found = series_voters(
            records, OFFER, b"secret", lambda units: frozenset(cast.intersection(units)), None
        )
        votes.append(sum(records.records.inputs.take([row]).row_hashes()[0] == ONE_INPUT
                         for row in found.rows.tolist()))  # fmt: skip
        cast.update(found.units)
    return votes


OFFER: Final = settled(aggregator="neighbour", mechanisms=(of_patients(1),), series="s")
ONE_INPUT: Final = PUBLIC.take([1]).row_hashes()[0]
TIMES: Final = 4
#: Of the hashes of two equal images, of their patient's votes, and of two rows of a table.
PINNED: Final = "d3bfa0777977af3ff5c0a774d8c7a97e520351b6abf10b129b2cb08752462160"


def test_one_copy_less_moves_one_vote_or_two_if_it_leaves_again() -> None:
    """Docs/proofs/composition.md, section 9: whatever other copies do, in all tables of four rounds."""
    for others in product(range(3), repeat=TIMES):
        without = rounds_of(others)
        assert sum(without) == max(others)
        for first in range(TIMES):
            for last in range(first + 1, TIMES + 1):
                there = [first <= at < last for at in range(TIMES)]
                votes = rounds_of([n + i for n, i in zip(others, there, strict=True)])
                moved = [one - two for one, two in zip(votes, without, strict=True)]
                assert all(abs(each) <= 1 for each in moved)
                if last == TIMES:  # it stays
                    assert sum(map(abs, moved)) == sum(moved) <= 1
                else:
                    assert sum(map(abs, moved)) <= 2


def test_a_record_is_not_known_by_its_embedding() -> None:
    """Another machine may give it another one, and it would vote again; a patient has an identifier."""
    found = Embeddings(np.eye(3, 4, dtype=np.int16), "texts", "ab" * 32)
    data = Dataset(found, np.array([0, 1, 0]), CLASSES, np.array(["p", "p", "q"]))
    with pytest.raises(ProtocolError, match="could vote again"):
        series_voters(NeighbourVotes(data, b"key"), OFFER, b"secret", lambda _: frozenset(), None)
    rows = series_voters(
        NeighbourVotes(data, b"key"), OFFER, b"secret", lambda _: frozenset(), 1
    ).rows
    assert len(rows) == 2


def test_the_hash_of_a_vote_is_pinned() -> None:
    """Another one would let all units of a running series vote again: change the version, too."""
    records = NeighbourVotes(table([("p", 1), ("p", 1)], patients=True), b"key", known_by="x")
    as_records = series_voters(records, OFFER, b"secret", lambda _: frozenset(), None)
    as_patients = series_voters(records, OFFER, b"secret", lambda _: frozenset(), 2)
    text = b"".join((*as_records.units, *as_patients.units)).hex()
    text += as_records.known_by + as_patients.known_by
    rows = Table(("x", "c"), (np.array([1.5, np.nan]), np.array(["a", ""])))
    cells = Dataset(rows, np.array([0, 1]), CLASSES)
    of_table = series_voters(
        NeighbourVotes(cells, b"key"), OFFER, b"secret", lambda _: frozenset(), None
    )
    text += b"".join(of_table.units).hex() + of_table.known_by
    assert (len(as_records.units), len(as_patients.units)) == (2, 4)
    assert hashlib.sha256(text.encode()).hexdigest() == PINNED
