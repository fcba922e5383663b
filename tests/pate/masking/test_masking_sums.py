"""Masked sums are exact, whichever parties drop out when, and there is none below the threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import ProtocolError, QuorumError, UsageError
from pate.masking.context import check_threshold
from pate.masking.graph import COMPLETE_UP_TO
from pate.masking.ring import centred, ring_bits
from tests.support.masking.attempts import Attempt, context_for


def thresholds(parties: int) -> list[tuple[int, int]]:
    """Every valid t and c."""
    found = []
    for threshold in range(2, parties + 1):
        for colluders in range(parties):
            try:
                check_threshold(parties, threshold, colluders)
            except UsageError:
                continue
            found.append((threshold, colluders))
    return found


@st.composite
def attempts(draw: st.DrawFn) -> tuple[Attempt, list[list[str]]]:
    """An attempt, and who is there in each of its five phases: at least t, ever fewer."""
    parties = draw(st.integers(3, 12))
    threshold, colluders = draw(st.sampled_from(thresholds(parties)))
    rows, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    bits = draw(st.sampled_from([8, 16, 32]))
    attempt = Attempt(
        context_for(parties, threshold, colluders, rows=rows, classes=classes, bits=bits)
    )
    # Votes and noise: any integers whose sum fits.
    largest = (2 ** (bits - 1) - 1) // parties
    votes = draw(
        st.lists(
            st.integers(-largest, largest),
            min_size=parties * rows * classes,
            max_size=parties * rows * classes,
        )
    )
    matrices = np.array(votes, dtype=np.int64).reshape(parties, rows, classes)
    attempt.values = dict(zip(attempt.context.names, matrices, strict=True))
    present = draw(st.permutations(attempt.context.names))
    phases = []
    for _ in range(5):
        present = present[: draw(st.integers(threshold, len(present)))]
        phases.append(list(present))
    return attempt, phases


@settings(max_examples=40, deadline=None)
@given(attempts())
def test_the_sum_is_exact_whoever_drops_out(case: tuple[Attempt, list[list[str]]]) -> None:
    attempt, phases = case
    found = attempt.run(*phases)
    assert attempt.server.survivors == tuple(sorted(phases[2]))
    assert (found == attempt.expected(phases[2])).all()
    total = np.sum([attempt.values[name] for name in phases[2]], axis=0)
    assert (centred(found, attempt.context.matrix.bits) == total).all()
    assert attempt.server.faults == ()


@settings(max_examples=25, deadline=None)
@given(attempts(), st.integers(0, 4), st.data())
def test_below_the_threshold_there_is_no_sum(
    case: tuple[Attempt, list[list[str]]], short: int, data: st.DataObject
) -> None:
    attempt, phases = case
    few = data.draw(st.integers(0, attempt.context.roster.threshold - 1))
    phases[short] = phases[short][:few]
    with pytest.raises(QuorumError, match=f"{few} parties of"):
        attempt.run(*phases[: short + 1])
    assert not attempt.server.enough
    with pytest.raises(ProtocolError, match="no sum yet"):
        attempt.server.result()


def test_too_few_may_still_become_enough() -> None:
    attempt = Attempt(context_for(4, 3, 0))
    names = attempt.context.names
    attempt.server.take_keys(names[0], attempt.parties[names[0]].keys())
    with pytest.raises(QuorumError):
        attempt.server.advance()
    assert attempt.server.answered == {names[0]}
    assert attempt.server.awaited == set(names)
    assert (attempt.run() == attempt.expected(names)).all()
    assert attempt.server.awaited == frozenset()


def test_the_order_of_answers_changes_nothing() -> None:
    found = []
    for order in (1, -1):
        attempt = Attempt(context_for(6, 5, 1))
        names = list(attempt.context.names)[::order]
        found.append((attempt.run(names, names, sorted(names)[:5][::order]), attempt))
    assert (found[0][0] == found[1][0]).all()
    assert found[0][1].server.signatures == found[1][1].server.signatures


def test_another_attempt_masks_the_same_votes_anew() -> None:
    packed = []
    for number in range(2):
        attempt = Attempt(context_for(3, 3, 0, attempt=number, rows=20))
        names = attempt.context.names
        attempt.announce(names)
        attempt.share(names)
        boxes = attempt.server.boxes_for(names[0])
        packed.append(attempt.parties[names[0]].mask(boxes, attempt.values[names[0]]))
    same = np.frombuffer(packed[0], "<u2") == np.frombuffer(packed[1], "<u2")
    # Each of 60 values is equal by chance with 2^-16: two or more, with less than 1e-6.
    assert same.sum() < 2


def test_a_ring_of_140_parties_down_to_the_fewest_and_no_further() -> None:
    """Parties drop out in every phase, until t are left: the sum is right. Of t - 1 there is none."""
    context = context_for(140, 120, 3, rows=3)
    names, last = list(context.names), 4
    assert len(names) > COMPLETE_UP_TO
    gone = np.random.default_rng(3).permutation(140)
    present = [[names[at] for at in sorted(gone[: 136 - 4 * phase])] for phase in range(5)]
    assert len(present[last]) == context.roster.threshold
    attempt = Attempt(context)
    found = attempt.run(*present)
    graph = attempt.server._known.graph
    assert not graph.degree.complete
    assert {len(graph.neighbours(name)) for name in present[0]} == {graph.degree.neighbours}
    assert (found == attempt.expected(present[2])).all()
    few = Attempt(context)
    for step, who in zip(few.steps[:2], present[:2], strict=True):
        step(who)
    with pytest.raises(QuorumError, match="119 parties of"):
        few.vote(present[last][1:])
    with pytest.raises(ProtocolError, match="no sum yet"):
        few.server.result()


def test_wide_sums_need_wide_rings() -> None:
    assert [ring_bits(largest) for largest in (0, 127, 128, 2**15 - 1, 2**15, 2**31 - 1)] == [
        8, 8, 16, 16, 32, 32,
    ]  # fmt: skip
    for largest in (2**31, -1):
        with pytest.raises(UsageError, match="do not fit"):
            ring_bits(largest)
