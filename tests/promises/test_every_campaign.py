"""Every promise is put to every kind of campaign that the product has, one generation of members at a time.

The kinds are those of :func:`tests.support.world.kinds.covering`: a new mechanism, code, answer, unit,
noise or transport of sums is among them without a line here. Kinds in which each member is once run
with every change; those in which each two members meet are slow.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from aggregator_server.exchange import exchange
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import CampaignState
from aggregator_server.ledger.verify import read_campaign
from aggregator_server.monitoring.metrics import render
from aggregator_server.monitoring.status import Status
from aggregator_server.results import report
from aggregator_server.results.statement import privacy_statement, server_epsilon
from party.identity.keys import identity_key
from party.ledger.verify import verify_statement
from party.voting.neighbour import NeighbourVotes
from pate.accounting.composition import total_cost
from pate.accounting.filters import Delta
from pate.answers import LABELS
from pate.codes import NEAREST, code_of
from pate.errors import PateError, QuorumError
from pate.formats.labels import LabelSet
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import PrivacyStatement, adjacency_of, neighbours_of
from pate.mechanisms import MECHANISMS, DistributedMechanism, MatrixMechanism
from pate.votes import Counts
from protos import wire
from protos.bounds import MAX_MESSAGE
from protos.pate.v1 import vote_pb2
from tests.fuzz.guard import attempt, guarded
from tests.fuzz.mutate import mutated_message
from tests.support.campaign_messages import SERVER_KEY, request_in
from tests.support.needs import others_slow
from tests.support.world.in_process import Killed, Parties, kills
from tests.support.world.kinds import (
    COLUMNS,
    NAMES,
    PUBLIC,
    REMOVED,
    EveryWorld,
    Kind,
    Teachers,
    covering,
    every_kind,
    fewest,
    members,
    possible,
    records_of,
)
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Callable

FEWEST: Final = fewest(covering(), members)
KINDS: Final = pytest.mark.parametrize(
    "kind", others_slow(covering(), set(FEWEST).__contains__), ids=str
)
#: Where a kill costs what was charged, and of one release all.
CHARGED: Final = ("charge-recorded", "noise-drawn")
#: The chance that the noise of a sum is larger than a test allows, in any of its counts.
RARE: Final = 1e-9


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_FAREWELL_S", 0.0)
    monkeypatch.setattr(exchange, "_RETURN_S", 0.0)


def test_the_kinds_have_every_member_of_every_column() -> None:
    kinds = covering()
    for at, (name, names) in enumerate(COLUMNS.items()):
        assert {kind[at] for kind in kinds} == set(names), name
    assert {kind.mechanism for kind in kinds} == set(MECHANISMS)
    assert len(every_kind()) > 10 * len(kinds)


@pytest.mark.slow
def test_no_kind_is_left_out() -> None:
    assert [kind for choice in product(*COLUMNS.values()) if possible(kind := Kind(*choice))] == [
        *every_kind()
    ]


# --- what a campaign of a kind came to --------------------------------------------------------------


def votes_of(world: EveryWorld, name: str, state: CampaignState) -> Counts:
    """A party's votes as its data say, computed apart from the campaign: (voted queries, classes).

    In rounds those of the last one.
    """
    kind, public, rows = world.kind, PUBLIC[world.kind.inputs], state.voted.rows
    spec = state.spec
    if spec.records_vote:
        return NeighbourVotes(records_of(kind, NAMES.index(name)), b"key").vote(
            public, rows, state.classes, most_votes=spec.most_votes or 0, code=code_of(spec.code),
            votes_per_patient=spec.votes_per_patient if kind.unit == "patient" else None,
            shown=state.models[-2] if kind.rounds else None,
        )  # fmt: skip
    return Teachers(kind).vote(public, rows, state.classes, code_of(state.spec.code or NEAREST))


def stands(world: EveryWorld, number: int = 0) -> Stand:
    """The verified ledgers: of the server, and of each party, which has ended the campaign once."""
    stand = Stand.of(world.place(number).parent)
    for name in NAMES:
        ledger = world.ledger(name)
        ledger.verify()
        for record in ledger.campaigns():
            assert len(record.batches) <= max(1, world.kind.rounds)
            assert record.ending is not None
    return stand


def check_charges(world: EveryWorld, number: int = 0) -> CampaignState:
    """Every release was charged before, for what it cost, and all charges are within the promise."""
    state, entries = read_campaign(world.place(number))
    spec, composition = state.spec, state.currency
    charged: dict[int, Fraction] = {}
    spent = Fraction(0)
    for entry in entries:
        body = json.loads(entry.body)
        if entry.kind == "charge":
            queries = len(body["queries"])
            mechanism = state.mechanism(body["round"])
            once = isinstance(mechanism, MatrixMechanism) or spec.gate is not None
            worst = Fraction(1) if spec.gate else total_cost(composition, mechanism.worst)
            charged[entry.seq] = worst * (1 if once else queries)
            assert Fraction(body["cost"]) == charged[entry.seq]
        elif entry.kind == "release":
            spent += charged.pop(body["charge"])
    assert state.spent <= spent + sum(charged.values()) <= state.cap
    assert composition.epsilon(state.cap, spec.delta) <= spec.epsilon
    return state


@KINDS
def test_killed_at_every_step_it_ends_once_and_charged(kind: Kind, tmp_path: Path) -> None:
    """And all that is then said of it is true."""
    world = EveryWorld(tmp_path, kind)
    world.create()
    seen = world.killed(but=CHARGED)
    assert {"roster-recorded", "votes-recorded", "release-recorded", "campaign-closed"} <= set(seen)
    assert {"answer-recorded", "ending-recorded"} <= set(seen)
    stand = stands(world)
    assert (stand.phase, stand.vain) == ("finished", 0)
    state = check_charges(world)
    assert state.mechanism(state.round).name == kind.mechanism
    assert state.currency.name == kind.currency
    assert state.queries_asked > 0
    # The sum is that of the votes of those who are in it.
    with Ledger.open(world.place(0)) as ledger:
        counts = ledger.counts()
    assert len(state.batches) == len(state.models) == kind.rounds or kind.rounds == 0
    batch = state.batches[-1]
    truth = sum(votes_of(world, name, state) for name in batch.responders)
    reach, mechanism = 0, state.mechanism(state.round)
    if isinstance(mechanism, DistributedMechanism):
        reach = mechanism.shares.reach(len(batch.responders), counts.size, RARE)
    assert np.abs(counts[list(state.voted.rows)] - truth).max() <= reach
    check_words(world)


def release_of(kind: Kind) -> tuple[object, ...]:
    """What is drawn behind a charge depends on no other column: those are of votes, which are there."""
    return kind.mechanism, kind.publish, kind.noise, kind.law, kind.release, bool(kind.rounds)


#: Each release that there is; with every change each of its members once.
RELEASES: Final = fewest(covering(), lambda kind: [release_of(kind)])
FIRST_RELEASES: Final = fewest(RELEASES, lambda kind: enumerate(release_of(kind)))


@pytest.mark.parametrize("kind", others_slow(RELEASES, FIRST_RELEASES.__contains__), ids=str)
def test_killed_behind_a_charge_nothing_is_drawn_again(kind: Kind, tmp_path: Path) -> None:
    world, point = EveryWorld(tmp_path, kind), CHARGED[RELEASES.index(kind) % 2]
    world.create()
    with kills(lambda name: name == point), pytest.raises(Killed):
        world.serve()
    lost = check_charges(world)
    assert lost.open_charge is not None
    assert not lost.labels
    world.serve()
    stand, state = stands(world), check_charges(world)
    assert stand.phase == "finished"
    assert stand.vain == 1
    assert state.spent >= lost.open_charge.cost
    assert state.wasted == lost.open_charge.cost
    if lost.spec.one_release or lost.spec.gate is not None:
        assert not state.labels
        assert state.noisy is None


def check_words(world: EveryWorld) -> None:
    """Check statement, screens, page, metrics and files against the ledgers of server and parties."""
    kind, state = world.kind, world.state()
    spec = state.spec
    said = privacy_statement(state)
    assert PrivacyStatement.from_json(said.to_json()) == said
    assert (said.unit, said.epsilon, said.delta) == (spec.unit, state.epsilon, spec.delta)
    worth = state.currency.epsilon(state.cap, spec.delta)
    # Of a cap of the whole budget, what bisection leaves is the campaign's, not the statement's.
    assert worth <= said.epsilon <= min(spec.epsilon, worth * (1 + 2e-9))
    assert said.adjacency == adjacency_of(
        spec.unit, records_vote=kind.records_vote, series=spec.series is not None,
        code=spec.code,
    )  # fmt: skip
    for step in (each.to_dict() for each in state.mechanisms):
        assert not mechanism_in_words(step).startswith(f"{step['mechanism']} (")
    towards_server = server_epsilon(state)
    assert (towards_server is None) == (kind.noise == "central")
    for name in NAMES:
        held = world.ledger(name)
        record = held.find(spec.id)
        assert record is not None
        checks = verify_statement(said, record)
        assert [str(each) for each in checks if each.finding == "differs"] == []
        own = held.cumulative_epsilon(Delta(max(spec.delta, 1e-5)))
        assert own.observer == ("server" if kind.noise == "distributed" else "public")
        # Of noisy sums each is charged once, however often its histogram is looked at.
        charged = state.currency.epsilon(state.spent, spec.delta)
        if towards_server is not None:
            charged = towards_server
        assert own.epsilon * (1 + 1e-9) >= charged, "a party's own accountant says less"
    # Every page and screen is about the same figures.
    found = report.describe(world.place(0).parent)
    assert (found["epsilon"], found["delta"], found["unit"]) == (
        said.epsilon,
        said.delta,
        said.unit,
    )
    assert found["adjacency"] == said.adjacency
    report.show(found)
    report.show_entries(report.entries(world.place(0).parent))
    told = report.verify(world.place(0).parent, None)
    assert told["epsilon"] == said.epsilon
    labels = report.label_set(world.place(0).parent)
    assert LabelSet.from_json(labels.to_json()).to_json() == labels.to_json()
    assert len(labels.rows) == len(state.labels) == found["labels_released"]
    assert (labels.noisy is not None) == spec.one_release
    with Ledger.open(world.place(0)) as ledger:
        overview = Status(ledger).overview()
        assert overview.budget is not None
        assert (overview.budget.epsilon, overview.budget.adjacency) == (
            said.epsilon,
            neighbours_of(
                spec.unit, records_vote=kind.records_vote, series=spec.series, code=spec.code
            ),
        )
        json.dumps(overview.to_json())
        assert b"pate_" in render(overview)


# --- what a second campaign may learn ----------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Kind], Path]:
    """Return the homes of a campaign of a kind that has ended, to be copied: many go on from it."""
    found: dict[Kind, Path] = {}

    def of(kind: Kind) -> Path:
        if kind not in found:
            world = EveryWorld(tmp_path_factory.mktemp("ended"), kind)
            world.create()
            world.serve()
            found[kind] = world.root
        return found[kind]

    return of


def exact_kinds() -> list[Kind]:
    """Kinds of exact sums over one public set, one for each way to vote."""
    found: dict[tuple[str, ...], Kind] = {}
    for kind in every_kind():
        if (
            kind.exact
            and kind.inputs == "table"
            and kind.unit == "record"
            and kind.series == "alone"
        ):
            found.setdefault(
                (kind.mechanism, kind.publish, kind.code, kind.answer, kind.proofs, kind.release),
                kind,
            )
    return [*found.values()]


def same_data(one: Kind, other: Kind) -> bool:
    return (
        one.records_vote == other.records_vote
        and one.several == other.several
        and (one.answer == "number") == (other.answer == "number")
    )


#: By which a party's two exact sums differ in ways that are not the kind's name.
AGAIN: Final = ("same", "more labels", "fewer queries", "another noise")


def again(kind: Kind, how: str) -> dict[str, Any] | None:
    """Changes of the terms of a second campaign; None if its kind has no such term."""
    of_labels = not kind.records_vote and kind.answer == LABELS
    if how == "same":
        return {}
    if how == "more labels":  # which no teacher casts
        return {"answer": "labels-3"} if of_labels else None
    if how == "fewer queries":
        return {"max_queries": 20} if of_labels else None
    return (
        {"sigma2": Fraction(7)} if kind.mechanism == "gnmax" and kind.publish == "capped" else None
    )


def pairs() -> list[tuple[Kind, Kind, str]]:
    """Every way to vote, and every other one after it that the same data can take part in.

    To keep them few, the second is the same kind, or the first kind with such data, which goes before all.
    """
    found = []
    kinds = exact_kinds()
    for first in kinds:
        others = [each for each in kinds if same_data(first, each)]
        for second in dict.fromkeys((others[0], first)):
            found += [
                (first, second, how) for how in AGAIN if again(second, how) is not None
                and (how == "same" or first == second)
            ]  # fmt: skip
        if first == others[0]:
            found += [(first, each, "same") for each in others[1:]]
    return found


def first_pairs() -> list[tuple[Kind, Kind, str]]:
    """Pairs in which each change of terms is once, and each member of the first and of the second."""
    return fewest(
        pairs(),
        lambda pair: [pair[2], pair[0] == pair[1], *(
            (at, *member) for at, kind in enumerate(pair[:2]) for member in members(kind)
        )],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "how"), others_slow(pairs(), first_pairs().__contains__), ids=str
)
def test_two_exact_sums_never_show_a_partys_change_of_votes(
    first: Kind, second: Kind, how: str, tmp_path: Path, ended: Callable[[Kind], Path]
) -> None:
    shutil.copytree(ended(first), tmp_path, dirs_exist_ok=True)
    world = EveryWorld(tmp_path, first)
    before = world.state().batches[-1]
    world.salts["a"] = 1  # its data are others now, and say that they are the same
    (tmp_path / "a" / "votes.db").unlink()  # else its votes on these queries are read there
    changes = again(second, how)
    world.create(1, second, **(changes or {}))
    with contextlib.suppress(PateError):
        world.serve(1)
    state = world.state(1)
    for batch in state.batches:
        assert "a" not in batch.responders or "a" not in before.responders, "its change is seen"
    assert [each for each in world.lines.said if each.startswith("a: refused")]


# --- a series ---------------------------------------------------------------------------------------


def in_series() -> list[Kind]:
    return [kind for kind in covering() if kind.series == "series"]


def series_pairs() -> list[Any]:
    """Any two; with every change each is the first and the second once, and one both."""
    both = [*product(in_series(), repeat=2)]
    first = fewest(both, lambda pair: [*enumerate(pair), pair[0] == pair[1]])
    return others_slow(both, first.__contains__)


def of_records() -> list[Any]:
    kinds = [each for each in covering() if each.records_vote]
    return others_slow(kinds, fewest(kinds, members).__contains__)


def cast_in(world: EveryWorld, number: int) -> dict[str, int]:
    """Votes of units in a campaign, by the parties' own ledgers."""
    found = {}
    for name in NAMES:
        record = world.ledger(name).find(f"{number + 1:032x}")
        assert record is not None
        found[name] = record.voted
    return found


@pytest.mark.parametrize(("kind", "other"), series_pairs(), ids=str)
def test_in_a_series_no_unit_votes_again_whatever_is_asked(
    kind: Kind, other: Kind, tmp_path: Path, ended: Callable[[Kind], Path]
) -> None:
    """By another code, answer, noise, public set or way to sum; what cannot be compared is refused."""
    if kind.answer in ("labels", "number") or other.answer in ("labels", "number"):
        other = other._replace(answer=kind.answer)
        if other not in every_kind():
            other = kind
    world = EveryWorld(tmp_path, kind)
    if kind == other:
        world.create()
        world.killed(but=CHARGED)  # also between the hashes of who votes and the votes
    else:
        shutil.copytree(ended(kind), tmp_path, dirs_exist_ok=True)
    first = cast_in(world, 0)
    assert all(first.values())
    world.kind = other
    world.create(1, other._replace(inputs=kind.inputs, unit=kind.unit), epsilon=399.0)
    try:
        world.serve(1)
    except QuorumError:
        assert "a series of its own" in " ".join(world.lines.said)
    else:
        assert set(cast_in(world, 1).values()) == {0}


# --- what does not hang on one record -----------------------------------------------------------------


@pytest.mark.parametrize("kind", of_records(), ids=str)
def test_what_a_party_says_does_not_hang_on_one_record(kind: Kind, tmp_path: Path) -> None:
    """The kinds and sizes of its replies are the same with one record altered, or without it."""
    told = []
    for change in ("as it is", "altered", "removed"):
        world = EveryWorld(tmp_path / change, kind)
        world.salts["a"] = {"altered": 1, "removed": REMOVED}.get(change, 0)
        world.create()
        world.serve()
        replies = [
            vote_pb2.Reply.FromString(vote_pb2.SignedReply.FromString(reply).body)
            for _, reply in world.parties.sent
        ]
        told.append(
            [
                (each.WhichOneof("body"), each.ByteSize() if kind.aggregation == "masked" else 0)
                for each in replies
                if each.party == "a"
            ]
        )
        assert "refusal" not in {what for what, _ in told[-1]}
    assert told[0] == told[1] == told[2]


# --- bounds, and what liars send -----------------------------------------------------------------------


class Broken(Parties):
    """Parties of which one request to ``a`` comes many times broken first, and its reply broken, too."""

    def break_at(self, step: int, rng: random.Random, number: int) -> None:
        self.at, self.rng, self.number, self.faults = step, rng, number, list[str]()
        self.steps = 0

    def answer(self, name: str, body: bytes) -> bytes:
        if name != "a":
            return super().answer(name, body)
        self.steps += 1
        if self.steps - 1 != self.at:
            reply = super().answer(name, body)
            assert len(reply) < MAX_MESSAGE
            return reply
        good = request_in(body)
        for _ in range(self.number):
            bad = wire.sign_request(mutated_message(good, self.rng), SERVER_KEY)
            try:
                attempt(lambda bad=bad: self.voters["a"].handle(bad))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - that there is none is what is tested
                self.faults.append(f"{type(error).__name__}: {error}")
        signed = vote_pb2.SignedReply.FromString(super().answer(name, body))
        broken = mutated_message(vote_pb2.Reply.FromString(signed.body), self.rng)
        return wire.sign_reply(broken, identity_key(self.root / "a"))


@pytest.mark.parametrize("kind", FEWEST, ids=str)
def test_broken_requests_and_replies_do_no_harm(kind: Kind, tmp_path: Path) -> None:
    """At one step of each kind; kinds with the same transport of sums take its steps in turn."""
    world = EveryWorld(tmp_path, kind)
    world.parties = parties = Broken(tmp_path, world.voter)
    world.create()
    steps = 9 if kind.aggregation == "masked" else 4
    alike = [each for each in FEWEST if each.aggregation == kind.aggregation]
    with guarded():
        parties.break_at(alike.index(kind) % steps, random.Random(str(kind)), 60)  # noqa: S311
        # Too few may be left, or a reply of a liar spoilt an exact sum.
        with contextlib.suppress(PateError):
            world.serve()
    assert parties.faults == []
    read_campaign(world.place(0))
    for name in NAMES:
        world.ledger(name).verify()
