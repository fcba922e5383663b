"""Unmaskings and answers in the ledger, and its invariants in random histories."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aggregator_server.ledger.label_table import Answered, Labels, ReleasedLabel
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.state import Charge
from aggregator_server.ledger.verify import read_campaign, verify
from pate.errors import BudgetError, LedgerError, QuorumError, StateError
from pate.mechanisms import Outcome
from pate.storage.hash_chain import Entry
from pate.votes import Histogram
from tests.support.server.campaigns import NAMES, label, make_spec, make_votes, start

REST = NAMES[:3]
MASKED = make_spec(aggregation="masked", colluders=1, queries=20)


def votes(count: int, parties: int = 4) -> Histogram:
    return Histogram(make_votes(count, 25 * parties), 25 * parties)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.sqlite"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with start(path, MASKED, voted=False) as made:
        yield made


def test_an_opening_is_on_the_disk_before_the_call_returns_and_once(ledger: Ledger) -> None:
    assert ledger.state().survivors is None
    state = ledger.record_unmasking(0, 20, REST)
    assert read_campaign(ledger.place)[0] == state
    assert state.survivors == REST
    (opening,) = state.openings
    assert (opening.first, opening.count, opening.survivors) == (0, 20, REST)
    assert state.head.seq == 3
    # Another attempt at the same sum.
    assert ledger.record_unmasking(0, 20, REST) == state
    assert [entry.kind for entry in ledger.entries()] == ["open", "roster", "opening"]
    ledger.record_votes(0, votes(20, 3), REST)
    assert verify(ledger.place).head == ledger.state().head


def test_it_is_asked_for_again_as_it_was(path: Path) -> None:
    with start(path, MASKED, voted=False) as ledger:
        ledger.record_unmasking(5, 10, REST)
        assert ledger.state().missing_votes == (range(5), range(5, 15), range(15, 20))
    with Ledger.open(path) as ledger:
        assert ledger.state().survivors == REST
        assert ledger.state().missing_votes == (range(5), range(5, 15), range(15, 20))
        ledger.record_votes(5, votes(10, 3), REST)
        assert ledger.state().missing_votes == (range(5), range(15, 20))
        ledger.record_unmasking(0, 5, REST)
        ledger.record_unmasking(15, 5, REST)
        ledger.record_votes(15, votes(5, 3), REST)
        assert ledger.state().missing_votes == (range(5),)
        ledger.record_votes(0, votes(5, 3), REST)
        assert (ledger.state().missing_votes, ledger.state().phase) == ((), "labelling")
        label(ledger)
    verify(path)


def test_whoever_cannot_be_in_a_sum_is_not_listed(ledger: Ledger) -> None:
    for survivors in (REST[::-1], ("avon", "avon", "brook"), ("avon", "brook", "exe")):
        with pytest.raises(LedgerError, match="survivors are not parties in the roster's order"):
            ledger.record_unmasking(0, 20, survivors)
    with pytest.raises(QuorumError, match="the campaign needs 3"):
        ledger.record_unmasking(0, 20, NAMES[:2])
    with pytest.raises(LedgerError, match="of 20"):
        ledger.record_unmasking(11, 10, REST)
    assert ledger.state().openings == ()


def test_the_list_never_changes(ledger: Ledger) -> None:
    ledger.record_unmasking(0, 10, REST)
    for first, count in ((0, 10), (9, 2), (0, 11)):
        with pytest.raises(LedgerError, match="recorded before"):
            ledger.record_unmasking(first, count, NAMES)
    # Parties open all sums of a campaign with the same ones, also of other queries.
    with pytest.raises(LedgerError, match="are unmasked only with"):
        ledger.record_unmasking(10, 10, NAMES)
    with pytest.raises(LedgerError, match="recorded before"):
        ledger.record_unmasking(5, 10, REST)
    ledger.record_unmasking(10, 10, REST)


@pytest.mark.parametrize(
    ("first", "count", "responders"), [(0, 10, NAMES), (0, 9, REST), (1, 9, REST), (10, 10, REST)]
)
def test_masked_votes_are_of_the_sum_that_was_written_down(
    ledger: Ledger, first: int, count: int, responders: tuple[str, ...]
) -> None:
    ledger.record_unmasking(0, 10, REST)
    with pytest.raises(LedgerError, match="no unmasking of exactly that sum"):
        ledger.record_votes(first, votes(count, len(responders)), responders)
    ledger.record_votes(0, votes(10, 3), REST)


def test_what_has_votes_is_not_opened_again(ledger: Ledger) -> None:
    ledger.record_unmasking(0, 10, REST)
    before = ledger.record_votes(0, votes(10, 3), REST)
    # The same opening, which the ledger has, is no step.
    assert ledger.record_unmasking(0, 10, REST) == before
    with pytest.raises(LedgerError, match="recorded before"):
        ledger.record_unmasking(9, 1, REST)


def test_plain_votes_have_no_opening(tmp_path: Path) -> None:
    with start(tmp_path / "ledger.sqlite", make_spec(queries=20), voted=False) as ledger:
        with pytest.raises(LedgerError, match="not masked"):
            ledger.record_unmasking(0, 20, NAMES)
        ledger.record_votes(0, votes(20), NAMES)
        assert ledger.state().survivors is None


def test_an_opening_has_its_time(ledger: Ledger) -> None:
    ledger.record_unmasking(0, 20, REST)
    ledger.record_votes(0, votes(20, 3), REST)
    with pytest.raises(StateError, match="labelling"):
        ledger.record_unmasking(0, 20, NAMES)


# Forgers who know the format: see test_ledger_tampering.

Body = dict[str, Any]
#: 1 open, 2 roster, 3 opening, 4 votes, 5 opening, 6 votes.
FORGERIES: dict[str, tuple[int, Callable[[Body], object]]] = {
    "a stranger": (3, lambda b: b.update(survivors=["avon", "brook", "exe"])),
    "a party twice": (3, lambda b: b.update(survivors=["avon", "avon", "brook"])),
    "a short list": (3, lambda b: b.update(survivors=["avon", "brook"])),
    "another order": (3, lambda b: b.update(survivors=["brook", "avon", "cherwell"])),
    "queries beyond": (3, lambda b: b.update(count=21)),
    "no queries": (3, lambda b: b.update(count=0)),
    "a field more": (3, lambda b: b.update(note="")),
    "the others' votes": (4, lambda b: b.update(responders=list(NAMES), teachers=100)),
    "teachers of other parties": (4, lambda b: b.update(teachers=76)),
    "votes on fewer queries": (4, lambda b: b.update(count=9)),
    "another list later": (5, lambda b: b.update(survivors=list(NAMES))),
    "what has votes": (5, lambda b: b.update(first=9)),
}


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    path = tmp_path_factory.mktemp("openings") / "ledger.sqlite"
    with start(path, MASKED, voted=False) as ledger:
        for first in (0, 10):
            ledger.record_unmasking(first, 10, REST)
            ledger.record_votes(first, votes(10, 3), REST)
    return read_campaign(path)[1]


def chained(bodies: list[tuple[str, Body]]) -> list[Entry]:
    made: list[Entry] = []
    for kind, body in bodies:
        made.append(CHAIN.after(made[-1].head if made else CHAIN.start, kind, body, "then"))
    return made


def bodies_of(chain: list[Entry]) -> list[tuple[str, Body]]:
    return [(entry.kind, json.loads(entry.body)) for entry in chain]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_opening_breaks_a_rule(chain: list[Entry], name: str) -> None:
    bodies, (seq, change) = bodies_of(chain), FORGERIES[name]
    change(bodies[seq - 1][1])
    with pytest.raises(LedgerError, match=rf"entry {seq} "):
        replay(chained(bodies))


@pytest.mark.parametrize("at", [3, 4, 5, 6])
def test_each_step_once_and_in_its_turn(chain: list[Entry], at: int) -> None:
    bodies = bodies_of(chain)
    with pytest.raises(LedgerError, match=rf"entry {at + 1} "):
        replay(chained([*bodies[:at], bodies[at - 1], *bodies[at:]]))
    if at % 2:
        # Votes before the opening of their sum, or without one.
        swapped = [*bodies[: at - 1], bodies[at], bodies[at - 1], *bodies[at + 1 :]]
        for order in (swapped, [*bodies[: at - 1], *bodies[at:]]):
            with pytest.raises(LedgerError, match=rf"entry {at} "):
                replay(chained(order))


def test_an_opening_in_a_plain_campaign_breaks_a_rule(chain: list[Entry]) -> None:
    bodies = bodies_of(chain)
    bodies[0][1]["spec"].update(aggregation="plain", colluders=0)
    with pytest.raises(LedgerError, match=r"entry 3 .*not masked"):
        replay(chained(bodies))
    plain = [each for each in bodies if each[0] != "opening"]
    assert replay(chained(plain)).phase == "labelling"


def test_the_untouched_chain_holds(chain: list[Entry]) -> None:
    """The control."""
    state = replay(chained(bodies_of(chain)))
    assert (state.survivors, state.phase, state.missing_votes) == (REST, "labelling", ())


def released(number: int) -> ReleasedLabel:
    return ReleasedLabel(
        number % 7, 1 + number % 3, ("teachers", "records", "reinforced")[number % 3], 9
    )


@given(st.lists(st.sets(st.integers(0, 10**5), max_size=8), max_size=8), st.data())
def test_each_state_keeps_its_own_labels_whoever_grows_from_it(
    steps: list[set[int]], data: st.DataObject
) -> None:
    """As dictionaries do that are copied each time; the next one grows from any of the earlier."""
    made: list[tuple[Labels, dict[int, ReleasedLabel]]] = [(Labels(), {})]
    for step in steps:
        held, expected = made[data.draw(st.integers(0, len(made) - 1))]
        fresh = {query: released(query) for query in sorted(step - expected.keys(), reverse=True)}
        made.append((held.grown(fresh.items()), expected | fresh))
    for held, expected in made:
        assert held == expected
        assert list(held) == list(expected), "in the order of release"
        assert len(held) == len(expected)
        assert held.get(10**6) is None
        assert -1 not in held


@given(st.lists(st.sets(st.integers(0, 1000), max_size=8), max_size=8), st.data())
def test_each_state_keeps_its_own_answers(steps: list[set[int]], data: st.DataObject) -> None:
    made: list[tuple[Answered, set[int]]] = [(Answered(), set())]
    for step in steps:
        held, expected = made[data.draw(st.integers(0, len(made) - 1))]
        made.append((held.grown(sorted(step - expected)), expected | step))
    for held, expected in made:
        assert set(held) == expected
        assert held.__eq__(frozenset(expected))
        assert held | {5000} == expected | {5000}
        strange: object = "1"
        assert strange not in held
        assert len(held) == len(expected)


def test_a_label_takes_few_bytes() -> None:
    held = Labels()
    for first in range(0, 64_000, 64):
        held = held.grown((query, released(query)) for query in range(first, first + 64))
    rows = held._rows
    assert sys.getsizeof(rows.table) + sys.getsizeof(rows._places) < 40 * len(held)
    assert held[63_999] == released(63_999)


QUERIES = 12
#: A label and a check of the discrete noise, in half of mu squared.
WORST = Fraction(1, 256) * (1 + Fraction(1, 3 * 256)) + Fraction(1, 5000) * (1 + Fraction(1, 7500))


class Histories(RuleBasedStateMachine):
    """A model of the expected ledger, next to the real one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        spec = make_spec(
            queries=QUERIES, rounds=3, first_round_share=Fraction(2, 3), max_queries=20
        )
        self.ledger = start(self.folder / "ledger.sqlite", spec)
        self.charge: Charge | None = None
        self.labels: dict[int, int] = {}
        self.answered: set[int] = set()
        self.spent = Fraction(0)
        self.asked = 0

    def teardown(self) -> None:
        self.ledger.close()
        verify(self.folder / "ledger.sqlite", self.ledger.state().head)
        shutil.rmtree(self.folder)

    @rule(queries=st.lists(st.integers(0, QUERIES - 1), min_size=1, max_size=4, unique=True))
    def ask(self, queries: list[int]) -> None:
        state = self.ledger.state()
        cost = WORST * len(queries)
        limit = 20 * WORST * (Fraction(2, 3) if state.round == 1 else 1)
        taken = bool(self.labels.keys() & queries or self.answered & set(queries))
        affordable = self.spent + cost <= limit and self.asked + len(queries) <= 20
        try:
            made = self.ledger.charge(queries)
        except BudgetError:
            assert not taken
            assert not affordable
        except LedgerError:
            assert taken
        else:
            assert affordable
            assert not taken
            self.charge = made
            self.spent += cost

    @precondition(lambda self: self.charge is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        assert self.charge is not None
        count = len(self.charge.queries)
        labels = data.draw(
            st.lists(st.none() | st.integers(0, 2), min_size=count, max_size=count), "labels"
        )
        events = self.charge.events
        self.ledger.release(
            self.charge,
            [
                Outcome(None, None, events[:1])
                if label is None
                else Outcome(label, "teachers", events)
                for label in labels
            ],
        )
        for query, answer in zip(self.charge.queries, labels, strict=True):
            self.answered.add(query)
            if answer is None:
                self.spent -= self.ledger.state().currency.cost(events[1])
            else:
                self.labels[query] = answer
        self.asked += count
        self.charge = None

    @rule()
    def die(self) -> None:
        """As after SIGKILL: nothing is said to the ledger, the next process opens the file."""
        path = self.ledger.place
        self.ledger._database.close()
        self.ledger = Ledger.open(path)
        self.charge = None

    @precondition(lambda self: self.ledger.state().round < 3)
    @rule()
    def next_round(self) -> None:
        self.ledger.end_round(wants_predictions=False)
        self.charge = None
        self.answered = set()

    @invariant()
    def the_ledger_says_what_happened(self) -> None:
        state = self.ledger.state()
        assert {query: each.label for query, each in state.labels.items()} == self.labels
        assert state.spent == self.spent <= state.cap
        assert state.queries_asked == self.asked


Histories.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistories = Histories.TestCase
