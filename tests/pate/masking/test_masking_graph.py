"""The masking graph: its probabilities against another library, and its argument against attacks."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from pate.errors import UsageError
from pate.masking.context import threshold_for
from pate.masking.graph import (
    COMPLETE_UP_TO,
    CORRECTNESS_BITS,
    GRINDING_BITS,
    SECURITY_BITS,
    Degree,
    Graph,
    certain_survivors,
    colluders_within,
    degree_for,
    graph_of,
    neighbourhood_threshold,
)
from tests.support.masking.attempts import context_for, name_of
from tests.support.needs import others_slow

SIZES = [(150, 130, 3), (250, 225, 10), (250, 200, 20), (500, 400, 40), (1000, 900, 50)]


@pytest.mark.parametrize("size", SIZES)
def test_both_chances_are_below_what_is_stated(size: tuple[int, int, int]) -> None:
    from scipy.stats import hypergeom

    n, t, c = size
    degree = degree_for(n, t, c)
    k, held = degree.neighbours, degree.threshold
    assert not degree.complete
    assert k % 2 == 0
    assert k < n - 1
    q = 2 * held - k - 3
    unsafe = math.log2(n * (n + 1) / 2) + hypergeom.logsf(q, n, c, k + 1) / math.log(2)
    assert unsafe <= -(SECURITY_BITS + GRINDING_BITS)
    broken = math.log2(n) + hypergeom.logcdf(held - 1, n - 1, t, k) / math.log(2)
    assert broken <= -CORRECTNESS_BITS


@pytest.mark.parametrize("size", SIZES)
def test_less_would_not_do(size: tuple[int, int, int]) -> None:
    from scipy.stats import hypergeom

    n, t, c = size
    degree = degree_for(n, t, c)
    k = degree.neighbours
    q, left = colluders_within(n, c, k), certain_survivors(n, t, k)
    bits = SECURITY_BITS + GRINDING_BITS
    assert math.log2(n * (n + 1) / 2) + hypergeom.logsf(q - 1, n, c, k + 1) / math.log(2) > -bits
    assert math.log2(n) + hypergeom.logcdf(left, n - 1, t, k) / math.log(2) > -CORRECTNESS_BITS
    step = 2 * max(1, (k - 2) // 64)
    assert neighbourhood_threshold(n, t, c, k - step) is None


def test_small_or_tight_rosters_are_complete() -> None:
    for n in (2, 3, COMPLETE_UP_TO):
        t, c = threshold_for(n)
        assert degree_for(n, t, c) == Degree(n - 1, t, complete=True)
    # Nearly a third colluding and a third gone leaves nothing to spare in a neighbourhood.
    t, c = threshold_for(1000)
    assert degree_for(1000, t, c).complete
    with pytest.raises(UsageError):
        degree_for(200, 150, 149)


def test_neighbours_grow_slower_than_parties() -> None:
    found = [degree_for(n, n * 9 // 10, n // 20).neighbours for n in (200, 400, 800, 1600)]
    assert found == sorted(found)
    assert found[-1] < 4 * found[0]  # of eight times as many


def ring(n: int, k: int, threshold: int) -> Graph:
    return Graph(tuple(map(name_of, range(n))), Degree(k, threshold, complete=False))


def test_a_ring_is_regular_and_mutual() -> None:
    graph = ring(20, 6, 5)
    for name in graph.order:
        neighbours = graph.neighbours(name)
        assert len(neighbours) == 6
        assert name not in neighbours
        assert graph.holders(name) == neighbours | {name}
        assert all(name in graph.neighbours(peer) for peer in neighbours)
    assert graph.neighbours(name_of(0)) == {name_of(at) for at in (17, 18, 19, 1, 2, 3)}
    assert graph.enough([name_of(at) for at in range(5)], [name_of(2)])
    assert not graph.enough([name_of(at) for at in range(5)], [name_of(2), name_of(6)])


def test_the_order_follows_from_the_keys_alone_and_is_uniform() -> None:
    context = context_for(200, 180, 5)
    names = list(context.names)
    one = graph_of(context, bytes(32), names)
    assert one == graph_of(context, bytes(32), names[::-1])
    other = graph_of(context, bytes(31) + b"1", names)
    assert one.order != other.order
    assert sorted(one.order) == sorted(other.order) == names
    # Where a party stands, over 4,000 sets of keys of 5 parties: each of 120 orders alike.
    small = context_for(5, 4, 1)
    orders = Counter(
        graph_of(small, number.to_bytes(32, "little"), small.names).order for number in range(4000)
    )
    expected = 4000 / 120
    chi_square = sum((orders[order] - expected) ** 2 / expected for order in orders)
    chi_square += (120 - len(orders)) * expected
    # 119 degrees of freedom: above 200 with a chance below 1e-5, and these hashes are fixed.
    assert chi_square < 200


def test_two_lists_need_an_honest_party_that_signs_both() -> None:
    for n, t, c in SIZES:
        degree = degree_for(n, t, c)
        colluding = 2 * degree.threshold - degree.neighbours - 3  # q
        signers = degree.neighbours + 1
        # Colluders sign both lists, an honest party one of them.
        assert 2 * degree.threshold > (signers - colluding) + 2 * colluding
        graph = Graph(tuple(map(name_of, range(n))), degree)
        assert graph.signers == graph.holders(name_of(degree.neighbours // 2))
    everybody = Graph(tuple(map(name_of, range(7))), Degree(6, 5, complete=True))
    assert everybody.signers == set(everybody.order)


# --- the argument of docs/proofs/masked-sum.md: an integer program over all attacks -------


def windows(n: int, k: int) -> list[set[int]]:
    """All that must not hold more than q colluders."""
    single = [{(at + step) % n for step in range(k // 2)} for at in range(n)]
    pairs = [a | b for a in single for b in single if not a & b]
    return pairs + [{(at + step) % n for step in range(k + 1)} for at in range(n)]


def an_attack_exists(n: int, t: int, c: int, k: int, q: int, held: int) -> bool:
    """Whether a lying server can learn a sum that lacks an honest survivor, on a ring of n places.

    Over all choices of colluders (at most c, and q in each of the windows), of one list of t survivors or
    more, of the boxes that each party was given, of who signs and who unmasks, and of honest survivors (the
    part) whose sum is exposed: their seeds have ``held`` shares, and no mask of theirs is left over.
    """
    side = k // 2
    near = [[(at + step) % n for step in range(-side, side + 1) if step] for at in range(n)]
    places: dict[tuple[object, ...], int] = {}
    terms: list[tuple[list[tuple[int, int]], int]] = []

    def x(*name: object) -> int:
        return places.setdefault(name, len(places))

    def least(low: int, *parts: tuple[int, int]) -> None:
        terms.append(([*parts], low))

    everywhere = range(n)
    least(-c, *((x("colludes", i), -1) for i in everywhere))
    for window in windows(n, k):
        least(-q, *((x("colludes", i), -1) for i in window))
    least(t, *((x("alive", i), 1) for i in everywhere))
    for i in everywhere:
        alive, colludes, honest = x("alive", i), x("colludes", i), x("honest", i)
        signs, part = x("signs", i), x("part", i)
        least(0, (alive, 1), (colludes, -1))
        least(0, (alive, 1), (honest, -1))  # honest: and on the list
        least(-1, (colludes, -1), (honest, -1))
        least(0, (honest, 1), (alive, -1), (colludes, 1))
        least(0, (honest, 1), (signs, -1))
        least(0, (honest, 1), (part, -1))
        # Who masked was given enough boxes, and who signs those of all neighbours on the list.
        least(0, *((x("given", i, j), 1) for j in near[i]), (honest, 1 - held))
        holders = [i, *near[i]]
        least(
            0, *((x("signs", j), 1) for j in holders), *((x("colludes", j), 1) for j in holders),
            (part, -held),
        )  # fmt: skip
        for j in near[i]:
            there, back, other = x("given", i, j), x("given", j, i), x("honest", j)
            least(-1, (there, 1), (signs, -1), (x("alive", j), -1))
            # No mask of the part has its other half in no votes, or in votes outside of it.
            least(-2, (back, 1), (part, -1), (there, -1), (other, -1))
            least(-3, (x("part", j), 1), (part, -1), (there, -1), (back, -1), (other, -1))
    deciding = range(k + 1)
    least(held, *((x(what, i), 1) for what in ("signs", "colludes") for i in deciding))
    least(1, *((x("part", i), 1) for i in everywhere))
    least(1, *((x("honest", i), 1) for i in everywhere), *((x("part", i), -1) for i in everywhere))
    matrix = np.zeros((len(terms), len(places)))
    for row, (parts, _) in enumerate(terms):
        for place, factor in parts:
            matrix[row, place] += factor
    found = milp(
        np.zeros(len(places)),
        constraints=LinearConstraint(matrix, [low for _, low in terms], np.inf),
        bounds=Bounds(0, 1), integrality=np.ones(len(places)), options={"time_limit": 500.0},
    )  # fmt: skip
    assert found.status in (0, 2), found.message  # solved, or shown to have no solution
    return bool(found.status == 0)


@pytest.mark.parametrize(
    ("n", "t", "c", "k", "q"),
    others_slow(
        [(10, 6, 0, 4, 0), (10, 7, 1, 4, 1), (12, 8, 2, 6, 2)],
        lambda case: case[0] == 10,
    ),
)
def test_no_attack_at_all_takes_an_honest_survivor_out_of_a_sum(
    n: int, t: int, c: int, k: int, q: int
) -> None:
    """With 2 t_k >= k + q + 3, which is what a degree states; one share fewer, and there is one."""
    held = -(-(k + q + 3) // 2)
    assert not an_attack_exists(n, t, c, k, q, held)
    assert an_attack_exists(n, t, c, k, q, held - 1)
