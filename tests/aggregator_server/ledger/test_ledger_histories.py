"""Random histories of charges, releases, crashes and rounds preserve the ledger's invariants."""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.state import Charge
from aggregator_server.ledger.verify import verify
from pate.errors import BudgetError, LedgerError
from pate.mechanisms import Outcome
from tests.support.server.campaigns import make_spec, start

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
        for query, label in zip(self.charge.queries, labels, strict=True):
            self.answered.add(query)
            if label is None:
                self.spent -= self.ledger.state().currency.cost(events[1])
            else:
                self.labels[query] = label
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
