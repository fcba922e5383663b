from __future__ import annotations

import itertools
import resource
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN
from aggregator_server.ledger.state import Charge
from aggregator_server.ledger.verify import read_campaign, verify
from pate.accounting.composition import total_cost
from pate.campaign.roster import RosterParty
from pate.errors import (
    BudgetError,
    DiskError,
    LedgerError,
    QuorumError,
    RefusedError,
    SchemaError,
    StateError,
)
from pate.mechanisms import Outcome
from pate.storage.hash_chain import Head
from pate.votes import Histogram
from tests.support.server.campaigns import (
    CLASSES,
    NAMES,
    label,
    make_parties,
    make_predictions,
    make_spec,
    make_votes,
    start,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with start(path) as made:
        yield made


def teachers(charge: Charge, label: int = 0) -> Outcome:
    return Outcome(label, "teachers", charge.events)


def bottom(charge: Charge) -> Outcome:
    return Outcome(None, None, charge.events[:-1])


# Files.


def test_files_are_for_this_user_alone(ledger: Ledger, path: Path) -> None:
    folder = path.parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in folder.iterdir()}
    ends = ("", "-wal", "-shm", ".lock")
    assert modes == dict.fromkeys((f"ledger.sqlite{end}" for end in ends), 0o600)


def test_commits_are_durable_by_the_files_own_settings(ledger: Ledger) -> None:
    with ledger._database.reading() as db:
        told = {
            pragma: db.execute(f"PRAGMA {pragma}").fetchone()[0]
            for pragma in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers")
        }
    assert told == {
        "journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1,
    }  # fmt: skip


def test_a_second_campaign_does_not_overwrite_the_first(ledger: Ledger) -> None:
    head, path = ledger.state().head, ledger.place
    ledger.close()
    with pytest.raises(StateError, match="already"):
        Ledger.create(path, make_spec())
    assert verify(path).head == head


def test_two_servers_never_share_a_ledger(ledger: Ledger) -> None:
    with pytest.raises(StateError, match="in use"):
        Ledger.open(ledger.place)
    code = (
        "import sys, pathlib; from aggregator_server.ledger.ledger import Ledger;"
        "from pate.errors import StateError\n"
        "try: Ledger.open(pathlib.Path(sys.argv[1]))\n"
        "except StateError as e: sys.exit(e.exit_code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(ledger.place)], check=False, timeout=60)
    assert done.returncode == StateError.exit_code


def test_a_ledger_that_is_not_there_or_not_one_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no ledger"):
        Ledger.open(tmp_path / "ledger.sqlite")
    (tmp_path / "text").write_bytes(b"not a database at all, but long enough" * 100)
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as link:
        link.execute("CREATE TABLE entries (seq)")
    with pytest.raises(LedgerError, match="not a file of this kind"):
        Ledger.open(tmp_path / "other.sqlite")


def test_an_interrupted_creation_leaves_nothing_in_the_way(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.with_name(path.name + ".new").write_bytes(b"half")
    path.with_name(path.name + ".new-wal").write_bytes(b"half")
    with Ledger.create(path, make_spec()) as ledger:
        assert ledger.state().phase == "gathering"
    assert sorted(f.name for f in path.parent.iterdir()) == ["ledger.sqlite", "ledger.sqlite.lock"]


def test_a_log_without_its_ledger_is_not_replayed_into_a_new_one(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.with_name(path.name + "-wal").write_bytes(b"of another")
    with pytest.raises(StateError, match="missing file"):
        Ledger.create(path, make_spec())


def test_a_folder_that_others_may_write_to_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(StateError, match="chmod 700"):
        Ledger.create(path, make_spec())


def test_a_full_disk_is_a_disk_error_and_the_ledger_goes_on_from_the_file(path: Path) -> None:
    ledger = start(path, voted=False)
    votes = Histogram(make_votes(200), 100)
    before = ledger.state()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (path.with_name(path.name + "-wal").stat().st_size, hard)
    )
    try:
        with pytest.raises(DiskError):
            ledger.record_votes(0, votes, NAMES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    # What is on the disk is not known to this object any more, so it does nothing further.
    with pytest.raises(StateError, match="open it again"):
        ledger.record_votes(0, votes, NAMES)
    assert ledger.state() == before
    ledger.close()
    with Ledger.open(path) as again:
        assert again.state() == before
        again.record_votes(0, votes, NAMES)
    verify(path)


# The chain.


def test_the_published_head_does_not_tell_votes_apart(tmp_path: Path) -> None:
    """Equal steps, equal votes and equal times give other heads: the chain hides the votes."""
    clock = itertools.repeat(datetime(2026, 1, 2, tzinfo=UTC)).__next__
    spec, votes = make_spec(), Histogram(make_votes(200), 100)
    heads, commitments = set(), set()
    for name in ("one", "two"):
        with Ledger.create(tmp_path / name / "ledger.db", spec, clock=clock) as ledger:
            ledger.record_roster(make_parties(), CLASSES)
            state = ledger.record_votes(0, votes, NAMES)
        heads.add(state.head.digest)
        commitments.add(state.batches[0].digest)
        verify(tmp_path / name / "ledger.db")
    assert len(heads) == len(commitments) == 2


def test_the_chain_is_the_same_for_the_same_steps(path: Path) -> None:
    """A golden vector: ledgers of this version must be readable by all later ones."""
    with Ledger.create(path, make_spec(), clock=lambda: datetime(2026, 1, 2, tzinfo=UTC)) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        first, second = ledger.entries()
    assert (first.previous, second.previous) == (CHAIN.start.digest, first.digest)
    assert second.written_at == "2026-01-02T00:00:00.000+00:00"
    assert str(second.head) == GOLDEN
    assert Head.parse(GOLDEN) == second.head


GOLDEN = "2:0f17270d6906e4e837eff60774ad45397bd2aa3fabe47e08f48891f73505be75"


# Roster and votes.


def test_the_roster_fixes_mechanism_and_budget(path: Path) -> None:
    with start(path, make_spec(unit="party", epsilon=1e3), voted=False) as ledger:
        state = ledger.state()
    assert (state.phase, state.teachers, state.classes) == ("voting", 100, CLASSES)
    assert [event.to_dict()["votes_per_unit"] for event in state.mechanisms[0].worst] == [25, 25]
    assert state.epsilon <= 1e3


@pytest.mark.parametrize(
    ("parties", "classes", "kind"),
    [
        (make_parties()[:2], CLASSES, QuorumError),
        ([*make_parties(), RosterParty("exe", "ff", 25, "record")], CLASSES, QuorumError),
        ([*make_parties()[:3], make_parties()[0]], CLASSES, RefusedError),
        ([*make_parties()[:3], RosterParty("x", f"{0:064x}", 25, "record")], CLASSES, RefusedError),
        (make_parties(), ("cat",), SchemaError),
        (make_parties(), ("cat", "cat"), SchemaError),
        (make_parties(teachers=1), CLASSES, BudgetError),
    ],
)
def test_a_roster_that_does_not_fit_is_refused(
    path: Path, parties: list[RosterParty], classes: tuple[str, ...], kind: type[Exception]
) -> None:
    with Ledger.create(path, make_spec(epsilon=2.0)) as ledger:
        with pytest.raises(kind):
            ledger.record_roster(parties, classes)
        assert ledger.state().phase == "gathering"
        ledger.record_roster(make_parties(), CLASSES)  # a refusal leaves nothing behind


def test_a_roster_of_parties_that_cannot_be_is_refused(path: Path) -> None:
    first, *others = make_parties()
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"name": others[0].name}, "the same name"),
        ({"identity": others[0].identity}, "the same identity key"),
        ({"name": ""}, "not a party"),
        ({"teachers": 0}, "not a party"),
        ({"unit": "party"}, "not a party"),
    )
    with Ledger.create(path, make_spec()) as ledger:
        for change, why in wrong:
            with pytest.raises((RefusedError, LedgerError), match=why):
                ledger.record_roster([replace(first, **change), *others], CLASSES)


def test_parties_must_guard_the_unit_that_is_promised(path: Path) -> None:
    mixed = [*make_parties(unit="patient")[:3], make_parties(unit="record")[3]]
    with Ledger.create(path, make_spec(unit="patient")) as ledger:
        with pytest.raises(RefusedError, match="derwent"):
            ledger.record_roster(mixed, CLASSES)
        ledger.record_roster(make_parties(unit="patient"), CLASSES)


def test_named_parties_and_given_classes_are_held_to(path: Path) -> None:
    spec = make_spec(parties=(*NAMES[:3], "exe"), classes=("a", "b", "c"))
    with Ledger.create(path, spec) as ledger:
        with pytest.raises(RefusedError, match="derwent"):
            ledger.record_roster(make_parties(), ("a", "b", "c"))
        with pytest.raises(SchemaError):
            ledger.record_roster(make_parties()[:3], CLASSES)
        ledger.record_roster(make_parties()[:3], ("a", "b", "c"))


def test_votes_come_back_as_they_were_and_are_not_asked_twice(path: Path) -> None:
    votes = make_votes(200)
    with start(path, voted=False) as ledger:
        ledger.record_votes(50, Histogram(votes[50:120], 100), NAMES)
        assert ledger.state().missing_votes == (range(50), range(120, 200))
        assert [ledger.state().batch_of(q).first for q in (50, 119)] == [50, 50]
        for query in (0, 49, 120, 199):
            with pytest.raises(LedgerError, match=f"query {query} has no votes"):
                ledger.state().batch_of(query)
        with pytest.raises(LedgerError, match="before"):
            ledger.record_votes(119, Histogram(votes[119:121], 100), NAMES)
    with Ledger.open(path) as ledger:
        np.testing.assert_array_equal(ledger.counts()[50:120], votes[50:120])
        assert not ledger.counts()[:50].any()
        ledger.record_votes(0, Histogram(votes[:50], 100), NAMES)
        assert ledger.state().phase == "voting"
        ledger.record_votes(120, Histogram(votes[120:], 100), NAMES)
        assert (ledger.state().phase, ledger.state().missing_votes) == ("labelling", ())
        np.testing.assert_array_equal(ledger.counts(), votes)


def test_a_party_may_miss_a_batch_but_not_too_many(path: Path) -> None:
    with start(path, voted=False) as ledger:
        ledger.record_votes(0, Histogram(make_votes(10, 75), 75), NAMES[1:])
        with pytest.raises(LedgerError, match="teachers"):
            ledger.record_votes(10, Histogram(make_votes(10, 100), 100), NAMES[1:])
        with pytest.raises(QuorumError):
            ledger.record_votes(10, Histogram(make_votes(10, 50), 50), NAMES[2:])
        for responders in (NAMES[::-1], ("avon", "avon", "brook"), ("avon", "brook", "exe")):
            with pytest.raises(LedgerError, match="responders"):
                ledger.record_votes(10, Histogram(make_votes(10, 75), 75), responders)
        with pytest.raises(LedgerError, match="classes"):
            ledger.record_votes(10, Histogram(np.full((1, 2), 50), 100), NAMES)
        with pytest.raises(LedgerError, match="of 200"):
            ledger.record_votes(195, Histogram(make_votes(10, 100), 100), NAMES)


# Charge, then release.


def test_a_charge_is_on_the_disk_before_it_is_returned(ledger: Ledger) -> None:
    charge = ledger.charge([5, 3])
    state, entries = read_campaign(ledger.place)
    assert entries[-1].seq == charge.entry
    assert state.spent == charge.cost == 2 * total_cost(state.currency, state.mechanism(1).worst)


def test_a_release_gives_back_what_was_not_used(ledger: Ledger) -> None:
    charge = ledger.charge([5, 3])
    ledger.release(charge, [teachers(charge, 2), bottom(charge)])
    threshold, largest = charge.events
    state = ledger.state()
    assert state.spent == total_cost(state.currency, (threshold, threshold, largest))
    assert {query: label.label for query, label in state.labels.items()} == {5: 2}
    answered = {at: set(queries) for at, queries in state.answered.items()}
    assert (answered, state.queries_asked) == ({1: {3, 5}}, 2)
    assert read_campaign(ledger.place)[0] == state


def test_a_query_with_a_label_is_never_charged_again(ledger: Ledger) -> None:
    charge = ledger.charge([5, 3])
    ledger.release(charge, [teachers(charge), bottom(charge)])
    with pytest.raises(LedgerError, match="query 5 already has its label"):
        ledger.charge([5])
    with pytest.raises(LedgerError, match="query 3 was already answered in round 1"):
        ledger.charge([3])
    with pytest.raises(LedgerError, match="not open"):
        ledger.release(charge, [teachers(charge), teachers(charge)])
    ledger.charge([4])


def test_no_answer_may_be_asked_again_in_a_later_round(path: Path) -> None:
    with start(path, make_spec(rounds=2)) as ledger:
        charge = ledger.charge([5, 3])
        ledger.release(charge, [teachers(charge), bottom(charge)])
        ledger.end_round(wants_predictions=False)
        with pytest.raises(LedgerError, match="query 5"):
            ledger.charge([5])
        again = ledger.charge([3])
        ledger.release(again, [teachers(again, 1)])
        assert ledger.state().labels[3].round == 2
    assert verify(path).queries_asked == 3


def test_a_charge_of_a_process_that_died_stays_spent_and_is_not_taken_up(path: Path) -> None:
    with start(path) as ledger:
        lost = ledger.charge([5, 3])
    with Ledger.open(path) as ledger:
        assert ledger.state().spent == lost.cost
        with pytest.raises(LedgerError, match="not open"):
            ledger.release(lost, [teachers(lost), teachers(lost)])
        paid = ledger.charge([5, 3])
        ledger.release(paid, [teachers(paid), teachers(paid)])
        state = ledger.state()
        assert (state.spent, state.wasted) == (lost.cost + paid.cost, lost.cost)
    assert verify(path).wasted == lost.cost


def test_what_does_not_fit_is_refused_and_nothing_is_written(path: Path) -> None:
    with start(path, make_spec(max_queries=3)) as ledger:
        head = ledger.state().head
        with pytest.raises(BudgetError):
            ledger.charge([1, 2, 3, 4])
        assert ledger.state().head == head
        charge = ledger.charge([1, 2, 3])
        assert ledger.state().left == 0
        with pytest.raises(BudgetError):
            ledger.charge([4])
        ledger.release(charge, [bottom(charge)] * 3)
        with pytest.raises(BudgetError, match="only 0 more"):
            ledger.charge([4])


def test_the_first_round_leaves_the_others_their_share(path: Path) -> None:
    with start(path, make_spec(rounds=2, max_queries=10, aggregator="gnmax")) as ledger:
        charge = ledger.charge(range(5))
        ledger.release(charge, [teachers(charge)] * 5)
        with pytest.raises(BudgetError):
            ledger.charge([5])
        ledger.end_round(wants_predictions=False)
        ledger.charge(range(5, 10))
        assert ledger.state().left == 0


@pytest.mark.parametrize("queries", [[], [1, 1], [200], list(range(257))])
def test_a_charge_for_no_sensible_queries_is_refused(path: Path, queries: list[int]) -> None:
    with start(path, make_spec(epsilon=100.0)) as ledger, pytest.raises(LedgerError):
        ledger.charge(queries)


def test_queries_without_votes_are_not_charged(path: Path) -> None:
    with start(path, voted=False) as ledger:
        ledger.record_votes(0, Histogram(make_votes(10), 100), NAMES)
        with pytest.raises(LedgerError, match="query 10 has no votes"):
            ledger.charge([9, 10])
        ledger.charge([9])


@pytest.mark.parametrize("wrong", ["none", "other events"])
def test_answers_must_be_to_the_charge_and_have_one_attempt(ledger: Ledger, wrong: str) -> None:
    charge = ledger.charge([5])
    answers = [] if wrong == "none" else [Outcome(0, "teachers", charge.events[::-1])]
    with pytest.raises(LedgerError, match=r"0 answers|not charged"):
        ledger.release(charge, answers)
    with pytest.raises(LedgerError, match="not open"):
        ledger.release(charge, [bottom(charge)])
    assert ledger.state().spent == charge.cost


@pytest.mark.parametrize(
    ("label", "source", "events"),
    [
        (3, "teachers", 2), (-1, "teachers", 2), (0, "teachers", 1), (0, "reinforced", 2),
        (None, None, 2),
    ],
)  # fmt: skip
def test_an_answer_that_was_not_paid_for_is_refused(
    ledger: Ledger, label: int | None, source: str, events: int
) -> None:
    charge = ledger.charge([5])
    answer = Outcome(label, source, charge.events[:events])  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="not an answer"):
        ledger.release(charge, [answer])
    assert ledger.state().spent == charge.cost


def test_an_answer_has_the_first_of_the_events_that_were_charged(ledger: Ledger) -> None:
    charge = ledger.charge([5])
    with pytest.raises(LedgerError, match="events that were not charged"):
        ledger.release(charge, [Outcome(None, None, charge.events[1:])])


# Rounds.


def test_interactive_rounds_wait_for_predictions(path: Path) -> None:
    spec = make_spec(aggregator="interactive-gnmax", rounds=2)
    guess = make_predictions(200)
    with start(path, spec) as ledger:
        with pytest.raises(StateError):
            ledger.record_predictions(1, guess)
        ledger.end_round(wants_predictions=True)
        assert (ledger.state().phase, ledger.state().round) == ("predicting", 2)
        with pytest.raises(StateError):
            ledger.charge([1])
        with pytest.raises(LedgerError, match="shape"):
            ledger.record_predictions(2, guess[:-1])
        with pytest.raises(LedgerError, match="for round 3, expected 2"):
            ledger.record_predictions(3, guess)
        assert ledger.record_predictions(2, guess) is False
        assert ledger.record_predictions(2, make_predictions(200, 0.5)) is True
        charge = ledger.charge([1, 2])
        reinforced = Outcome(1, "reinforced", charge.events[:1])
        ledger.release(charge, [reinforced, bottom(charge)])
    with Ledger.open(path) as ledger:
        kept = ledger.predictions(2)
        assert kept is not None
        np.testing.assert_array_equal(kept, guess)
        assert ledger.predictions(1) is None
        assert ledger.state().labels[1].source == "reinforced"
        with pytest.raises(LedgerError):
            ledger.end_round(wants_predictions=True)
        ledger.end_round(wants_predictions=False)
        with pytest.raises(StateError, match="ended"):
            ledger.charge([3])
        ledger.finish()
        with pytest.raises(StateError, match="finished"):
            ledger.finish()
    assert verify(path).phase == "finished"


def test_whoever_waits_for_an_entry_is_woken(ledger: Ledger) -> None:
    seq = ledger.state().head.seq
    found: list[int] = []
    waiter = threading.Thread(
        target=lambda: found.append(ledger.wait_after(seq, lambda: False, 60).head.seq)
    )
    waiter.start()
    ledger.charge([1])
    waiter.join(60)
    assert found == [seq + 1]
    assert ledger.wait_after(seq + 1, lambda: True).head.seq == seq + 1


def test_a_whole_campaign_is_what_its_replay_says(path: Path) -> None:
    with start(path) as ledger:
        label(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
        state = ledger.state()
    told = verify(path, state.head)
    assert (told.head, told.labels, told.spent) == (state.head, state.labels, state.spent)
    assert (told.phase, told.wasted) == ("finished", Fraction(0))
    assert told.epsilon <= state.spec.epsilon
    with Ledger.open(path) as again:
        assert again.state() == state


def test_an_entry_follows_only_the_one_it_was_made_for(ledger: Ledger) -> None:
    first, second, *_ = ledger.entries()
    with pytest.raises(LedgerError, match="missing"):
        CHAIN.check(second, CHAIN.start)
    assert CHAIN.check(second, first.head)
    loose = CHAIN.after(first.head, "roster", {"b": 1, "a": 2}, "now")
    assert loose.body == '{"a":2,"b":1}'
