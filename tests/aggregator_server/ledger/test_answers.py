"""Labels and answered queries that share memory from one state of a ledger to the next."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from aggregator_server.ledger.label_table import Answered, Labels, ReleasedLabel


def label(number: int) -> ReleasedLabel:
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
        fresh = {query: label(query) for query in sorted(step - expected.keys(), reverse=True)}
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
        held = held.grown((query, label(query)) for query in range(first, first + 64))
    rows = held._rows
    assert sys.getsizeof(rows.table) + sys.getsizeof(rows._places) < 40 * len(held)
    assert held[63_999] == label(63_999)
