"""An overview agrees with the ledger, and contains nothing else."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from aggregator_server.exchange.presence import Presence
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.monitoring.overview import POINTS, TAIL, History
from aggregator_server.monitoring.status import LINES, LISTED, Status
from pate.campaign.settings import make_gate
from pate.formats.privacy_statement import neighbours_of
from pate.mechanisms import ConfidentGNMax
from pate.noise.exact import SystemNoise
from tests.support.server.campaigns import (
    CLASSES,
    NAMES,
    answer,
    label,
    make_predictions,
    make_spec,
    start,
)
from tests.support.server.statuses import INTERACTIVE, a_campaign, say


def test_before_the_roster_it_says_who_is_here_and_who_is_expected(tmp_path: Path) -> None:
    spec = make_spec(parties=("avon", "brook"), min_parties=2)
    with Ledger.create(tmp_path / "ledger.db", spec) as ledger:
        status = Status(ledger)
        status.present(Presence(frozenset({"brook", "stranger"})))
        seen = status.overview()
    rows = {row.name: (row.connected, row.doing) for row in seen.parties}
    assert rows == {
        "avon": (False, "not connected"),
        "brook": (True, "ready"),
        "stranger": (True, "ready"),
    }
    assert (seen.phase, seen.wanted, seen.budget) == ("gathering", 2, None)
    assert (seen.labels, seen.curve) == ((), ())
    assert seen.phases == ("gathering", "voting", "labelling", "finished")
    assert not seen.ready


def test_labels_budget_and_curve_are_the_ledgers(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", make_spec()) as ledger:
        status = Status(ledger)
        early = status.overview()
        assert early.budget is not None
        assert (early.budget.spent, early.budget.left) == (0, 1)
        # Incremental updates do not count an entry twice.
        label(ledger)
        seen, state = status.overview(), ledger.state()
    by_class = [sum(held.label == at for held in state.labels.values()) for at in range(3)]
    assert [(each.name, each.labels) for each in seen.labels] == list(
        zip(CLASSES, by_class, strict=True)
    )
    budget = seen.budget
    assert budget is not None
    assert budget.epsilon == state.epsilon
    assert budget.spent == round(float(state.spent / state.cap), 4)
    assert budget.epsilon_charged == state.currency.epsilon(state.spent, state.spec.delta)
    assert budget.adjacency == neighbours_of("record", records_vote=False)
    assert seen.curve[0] == type(seen.curve[0])(0, 0.0)
    assert (seen.curve[-1].labels, seen.curve[-1].epsilon) == (
        len(state.labels),
        budget.epsilon_charged,
    )
    assert list(seen.curve) == sorted(seen.curve, key=lambda p: (p.labels, p.epsilon))
    assert seen.queries.asked == state.queries_asked
    assert {(row.done, row.total) for row in seen.parties} == {(200, 200)}
    assert seen.ledger_entries == state.head.seq
    told = [entry for line in seen.ledger for entry in range(line.number, line.first - 1, -1)]
    assert told == list(range(state.head.seq, 0, -1))


def test_entries_that_say_the_same_again_and_again_are_one_row(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        before = ledger.state().head.seq
        for _ in range(TAIL):
            answer(ledger, 1)
        last, *others = status.overview().ledger
        assert (last.first, last.number) == (before + 1, before + 2 * TAIL)
        assert [line.kind for line in others] == ["votes", "roster", "open"]
        # A charge without answers has its own row, which later pairs do not absorb.
        ledger.charge([199])
        assert [line.kind for line in status.overview().ledger[:2]] == ["charge", "release"]
        answer(ledger, 1)
        kinds = [(line.kind, line.number - line.first) for line in status.overview().ledger[:3]]
        assert kinds == [("release", 1), ("charge", 0), ("release", 2 * TAIL - 1)]
        for _ in range(TAIL):
            ledger.charge([199])
        assert [line.kind for line in status.overview().ledger] == ["charge"] * TAIL


def test_parties_are_told_another_address_than_the_one_that_is_listened_on(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        status.open_doors("pate.example:9092", lambda: True, listens="0.0.0.0:9092")
        (doors,) = [check for check in status.overview().checks if check.name == "doors"]
        assert doors.text.index("pate.example:9092") < doors.text.index("0.0.0.0:9092")


def test_a_charge_that_came_to_nothing_stays_in_the_curve(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", make_spec()) as ledger:
        status = Status(ledger)
        ledger.charge(range(5))
        assert ledger.state().labels == {}
        ledger.charge(range(5))
        seen, state = status.overview(), ledger.state()
        assert state.wasted > 0
    assert seen.budget is not None
    assert seen.curve[-1] == type(seen.curve[0])(0, seen.budget.epsilon_charged)
    assert [check.name for check in seen.checks if "interruptions" in check.text] == ["interrupted"]


def test_nothing_of_an_entrys_body_is_told(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        label(ledger)
        told = json.dumps(status.overview().to_json())
        state = ledger.state()
        for batch in state.batches:
            assert batch.digest not in told
        assert state.head.digest.hex() not in told
        for party in state.roster:
            assert party.identity not in told


def test_the_same_object_comes_back_until_something_changes(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        first = status.overview()
        assert status.overview() is first
        status.present(Presence())  # as before: no news
        assert status.overview() is first
        say(status, "something")
        second = status.overview()
        assert second is not first
        label(ledger)
        assert status.overview() is not second


def test_what_a_party_does(tmp_path: Path) -> None:
    with a_campaign(tmp_path) as (ledger, status):
        rows = {row.name: row for row in status.overview().parties}
        assert rows["avon"].doing == "has sent masked votes"
        assert rows["brook"].doing == "asked for masked votes"
        assert rows["derwent"].doing == "away; masked votes awaited"
        assert [name for name, row in rows.items() if row.trouble] == ["derwent"]
        status.present(
            Presence(
                frozenset(NAMES), "votes", frozenset(NAMES), frozenset(),
                out=frozenset({"avon", "brook"}), refused=frozenset({"brook"}),
            )
        )  # fmt: skip
        rows = {row.name: row for row in status.overview().parties}
        assert rows["avon"].doing == "failed; see the log"
        assert rows["brook"].doing == "refused; see the log"
        assert {name for name, row in rows.items() if row.trouble} == {"avon", "brook"}
        ledger.end_round(wants_predictions=False)
        ledger.finish()
        status.close_doors()
        seen = status.overview()
        assert {(row.doing, row.trouble, row.connected) for row in seen.parties} == {
            ("done", False, False)
        }
        assert seen.ready


def test_of_many_parties_those_in_trouble_are_listed_first(tmp_path: Path) -> None:
    names = [f"party_{at:04d}" for at in range(LISTED + 50)]
    with Ledger.create(tmp_path / "ledger.db", make_spec(parties=1000)) as ledger:
        status = Status(ledger)
        status.present(
            Presence(frozenset(names), "votes", frozenset(names), out=frozenset(names[-2:]))
        )
        seen = status.overview()
    assert (len(seen.parties), seen.parties_unlisted, seen.connected) == (LISTED, 50, LISTED + 50)
    assert [row.name for row in seen.parties if row.trouble] == names[-2:]


def test_the_students_rounds(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", INTERACTIVE) as ledger:
        status = Status(ledger, accuracies=lambda: {2: 0.5})
        label(ledger)
        assert status.overview().student == ()
        ledger.end_round(wants_predictions=True)
        (waiting,) = status.overview().student
        assert (waiting.round, waiting.received, waiting.agreement) == (2, False, None)
        labels = dict(ledger.state().labels)
        guess = make_predictions(INTERACTIVE.queries)
        # Wrong about some that it was given, and about all that it was not.
        wrong = [q for q in range(len(guess)) if q not in labels or q in list(labels)[:5]]
        guess[wrong] = np.roll(guess[wrong], 1, axis=1)
        ledger.record_predictions(2, guess)
        (there,) = status.overview().student
        right = sum(int(guess[query].argmax()) == held.label for query, held in labels.items())
        assert 0 < right < len(labels)
        assert there.agreement == pytest.approx(right / len(labels))
        assert (there.received, there.accuracy) == (True, 0.5)
        # The second round's labels were not known to the student before.
        label(ledger)
        assert len(ledger.state().labels) > len(labels)
        assert status.overview().student == (there,)
        assert Status(ledger, accuracies=lambda: {2: 0.5}).overview().student == (there,)


def test_doors_and_link_make_it_ready(tmp_path: Path) -> None:
    runs = [True]
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        assert not status.ready()
        status.open_doors("127.0.0.1:1", lambda: runs[0])
        assert status.ready()
        assert status.overview().ready
        runs[0] = False
        assert not status.ready()
        assert not status.overview().ready
        runs[0] = True
        status.close_doors()
        assert not status.ready()


def test_lines_are_bounded_and_on_one_line(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db") as ledger:
        status = Status(ledger)
        for at in range(LINES + 10):
            say(status, f"{at}\x1b[31m\n" + "x" * 10_000)
        log = status.overview().log
    assert len(log) == LINES
    assert log[-1].text.startswith(rf"{LINES + 9}\x1b[31m\nx")
    assert all(len(line.text) == 400 and line.text.isprintable() for line in log)


def test_times_of_a_gated_batch_are_told_to_the_minute(tmp_path: Path) -> None:
    gate = make_gate("gated", 2.0, 1e-5, 10.0, 0.15)
    assert gate is not None
    spec = make_spec(
        aggregator="gnmax",
        epsilon=2.0,
        sigma2=Fraction(40),
        publish="gated",
        gate_order=gate.order,
        gate_target=gate.target,
        gate_test=gate.test,
        gate_failure=gate.failure,
    )
    with start(tmp_path / "ledger.db", spec) as ledger:
        status = Status(ledger)
        say(status, "the gate is open")
        seen = status.overview()
    times = [seen.made, *(line.time for line in seen.ledger), *(line.time for line in seen.log)]
    assert {len(time) for time in times} == {len("2026-01-02T03:04Z")}


def test_the_curve_of_a_long_campaign_is_thinned_out_and_ends_at_the_end(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.db", make_spec(epsilon=1000.0)) as ledger:
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, ConfidentGNMax)
        noise, counts = SystemNoise(), ledger.counts()
        for query in range(150):
            charge = ledger.charge([query])
            ledger.release(charge, mechanism.answer_all(counts[query : query + 1], noise))
        tally = History(to_the_minute=False)
        tally.take(ledger.entries())
        state = ledger.state()
    assert POINTS / 2 <= len(tally.points) <= POINTS + 1
    assert tally.points[0] == (0, Fraction(0))
    assert tally.points[-1] == (len(state.labels), state.spent)
    assert [line.kind for line in tally.tail] == ["release", "votes", "roster", "open"]


def test_an_overview_is_plain_json(tmp_path: Path) -> None:
    with a_campaign(tmp_path) as (_, status):
        seen = status.overview()
    back = json.loads(json.dumps(seen.to_json(), allow_nan=False))
    assert back["parties"][0] == {
        "name": "avon", "connected": True, "doing": "has sent masked votes", "trouble": False,
        "done": 120, "total": 120, "by_envelope": False,
    }  # fmt: skip
    assert set(back) == set(seen.__dataclass_fields__)
