"""One release of votes: what one unit changes, in every tiny world, and the least noise for it."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Pure, total_cost
from pate.answers import NONE, answer_of
from pate.codes import GRID, adjacency_for, code_of
from pate.errors import BudgetError, UsageError
from pate.mechanisms import DistributedNeighbour, Neighbour
from pate.mechanisms.least_noise import (
    clear_margin,
    law_of_least_noise,
    least_noise,
    least_scale,
    spreads_of,
)
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import GaussianShares, GeometricShares
from tests.support.changes import joined, largest
from tests.support.needs import others_slow
from tests.support.noise_laws import FALSE_ALARM, chi_square, weights

#: Queries, labels, and most labels that count.
SIZES = [
    (queries, labels, most)
    for queries, labels in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3))
    for most in range(1, labels + 1)
]


def arrays(queries: int, labels: int, most: int) -> np.ndarray:
    """All arrays that a teacher may cast."""
    rows = [row for row in itertools.product((0, 1), repeat=labels) if sum(row) <= most]
    return np.array(list(itertools.product(rows, repeat=queries)), dtype=np.int64)


@pytest.mark.parametrize(("queries", "labels", "most"), SIZES)
@pytest.mark.parametrize("teachers", [1, 2])
def test_teachers_change_what_is_claimed_and_no_more(
    queries: int, labels: int, most: int, teachers: int
) -> None:
    every = arrays(queries, labels, most)
    claimed = code_of(f"each-{queries} labels-{most}-of-{labels}").change(teachers)
    one = np.unique((every[:, None] - every[None]).reshape(-1, queries, labels), axis=0)
    if teachers == 1:
        assert largest(one) == claimed
    else:
        assert joined([largest(each + one) for each in one]) == claimed
        # A party that leaves with all its teachers changes no more.
        gone = largest((every[:, None] + every[None]).reshape(-1, queries, labels))
        assert gone.squared <= claimed.squared
        assert gone.total <= claimed.total


@pytest.mark.parametrize("queries", [1, 2, 3])
@pytest.mark.parametrize("teachers", [1, 2])
def test_teachers_of_a_class_change_what_is_claimed_and_no_more(
    queries: int, teachers: int
) -> None:
    rows = np.eye(3, dtype=np.int64)
    every = np.array(list(itertools.product(rows, repeat=queries)))
    one = np.unique((every[:, None] - every[None]).reshape(-1, queries, 3), axis=0)
    sums = every
    if teachers == 2:
        sums = (every[:, None] + every[None]).reshape(-1, queries, 3)
        one = np.unique((one[:, None] + one[None]).reshape(-1, queries, 3), axis=0)
    for text in (f"each-{queries}", f"each-{queries} balanced"):
        changed, removed = (
            code_of(text).change(teachers, "change"),
            code_of(text).change(teachers, "remove"),
        )
        found, gone = largest(one), largest(sums)
        assert (found.total, found.squared) == (changed.total, changed.squared)
        assert found.counts <= changed.counts
        assert (gone.total, gone.squared) == (removed.total, removed.squared)
        assert gone.counts <= removed.counts


def test_arrays_of_teachers_change_what_is_claimed_and_no_more() -> None:
    # All arrays of one length on a coarse grid, of two numbers: opposite ones are furthest apart.
    every = np.array(
        [
            each
            for each in itertools.product(range(-GRID, GRID + 1, GRID // 8), repeat=2)
            if sum(number**2 for number in each) <= GRID**2
        ]
    )
    apart = int(np.square(every[:, None] - every[None]).sum(axis=2).max())
    code = code_of("axes-2")
    assert apart == code.change(1).squared == 4 * GRID**2
    assert int(np.square(every).sum(axis=1).max()) == code.change(1, "remove").squared
    assert code.change(3).squared == 9 * apart
    assert code.bounds(3) == (-3 * GRID, 3 * GRID)
    with pytest.raises(UsageError):  # a patient's labels are never removed with their teacher
        code_of("each-2 labels-1-of-2").change(1, "remove")


def test_only_a_party_is_removed_with_its_teachers() -> None:
    for text, removed in (
        ("each-5", True), ("each-5 balanced", True), ("axes-5", True),
        ("each-5 labels-1-of-2", False), ("dense-5", False), ("nearest", False),
    ):  # fmt: skip
        code = code_of(text)
        assert (adjacency_for(code, "party") == "remove") == removed
        assert adjacency_for(code, "record") == adjacency_for(code, "patient") == "change"


@cache
def cast(shard: tuple[int, ...], seed: int, queries: int, labels: int, most: int) -> np.ndarray:
    """An arbitrary function of a shard's records, sorted, with at most ``most`` ones a row."""
    drawn = hashlib.sha256(repr((shard, seed)).encode()).digest()
    rng = np.random.default_rng(int.from_bytes(drawn, "big"))
    votes = np.zeros((queries, labels), dtype=np.int64)
    for row in votes:
        row[rng.permutation(labels)[: rng.integers(0, most + 1)]] = 1
    return votes


def summed(
    world: tuple[int, ...], shards: int, size: tuple[int, int, int], seed: int
) -> np.ndarray:
    members: list[list[int]] = [[] for _ in range(shards)]
    for record in world:
        members[hashlib.sha256(bytes([record, seed])).digest()[0] % shards].append(record)
    each = [cast(tuple(sorted(shard)), seed + at, *size) for at, shard in enumerate(members)]
    whole: np.ndarray = np.sum(each, axis=0)
    return whole


@pytest.mark.parametrize(
    ("queries", "labels", "most"),
    others_slow([(2, 3, 1), (2, 3, 2), (3, 4, 4), (1, 5, 2)], [(2, 3, 2), (1, 5, 2)].__contains__),
)
def test_a_record_changes_one_teacher_and_an_altered_one_two(
    queries: int, labels: int, most: int
) -> None:
    size = queries, labels, most
    code = code_of(f"each-{queries} labels-{most}-of-{labels}")
    one, two = code.change(1), code.change(2)
    assert two.squared == 4 * one.squared
    for shards, seed in itertools.product((1, 2, 3), range(2)):
        for number in range(5):
            for world in itertools.combinations(range(6), number):
                before = summed(world, shards, size, seed)
                for record in set(range(6)) - set(world):
                    added = summed((*world, record), shards, size, seed)
                    assert largest((added - before)[None]).squared <= one.squared
                    for gone in world:
                        kept = tuple(each for each in world if each != gone)
                        altered = summed((*kept, record), shards, size, seed)
                        found = largest((altered - before)[None])
                        assert found.squared <= two.squared
                        assert found.counts <= two.counts


def test_a_clip_of_few_labels_costs_less_than_a_vote_for_each() -> None:
    binary = code_of("each-100 labels-14-of-14").change(1)
    for most in range(1, 15):
        clipped = code_of(f"each-100 labels-{most}-of-14").change(1)
        assert clipped.squared == 100 * min(2 * most, 14)
        assert clipped.squared <= binary.squared


def test_a_class_list_of_teachers_is_the_labels_and_nothing_else() -> None:
    answer = answer_of("labels-2-of-3")
    answer.check_columns(("a", "b", "c"))
    for names in (None, ("a", "b"), ("a", "b", NONE), ("a", "b", "c", NONE)):
        with pytest.raises(UsageError):
            answer.check_columns(names)
    with pytest.raises(UsageError):
        answer_of("labels-3-of-2").check_columns(("a", "b"))


DELTA = 1e-5


@pytest.mark.parametrize("votes", [1, 2, 30])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3, 1.0, 2.0, 7.7])
@pytest.mark.parametrize("honest", [1, 3, 20])
def test_the_least_scale_fits_and_nothing_less_does(
    epsilon: float, honest: int, votes: int
) -> None:
    scale = least_scale(epsilon, honest, 2 * votes)

    def worth(value: Fraction) -> float:
        mechanism = DistributedNeighbour(0, honest=honest, votes_per_unit=votes, scale=value)
        return Pure().epsilon(total_cost(Pure(), mechanism.worst), 0.0)

    assert (scale * 64).denominator == 1
    assert worth(scale) <= epsilon
    assert worth(scale - Fraction(1, 64)) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "gaussian", "geometric"),
    [
        (0.05, 81.7, 56.6), (0.1, 43.5, 28.3), (0.5, 9.97, 5.64), (1.0, 5.31, 2.80),
        (2.0, 2.89, 1.36),
    ],
)  # fmt: skip
def test_the_standard_deviations_of_some_budgets(
    epsilon: float, gaussian: float, geometric: float
) -> None:
    """Geometric noise by its own formula, sqrt(2 a)/(1 - a) with a = exp(-epsilon/2)."""
    found = spreads_of(epsilon, DELTA, 1, 1, 1)
    a = math.exp(-epsilon / 2)
    assert found["geometric"] == pytest.approx(math.sqrt(2 * a) / (1 - a), rel=1e-3)
    assert found["geometric"] == pytest.approx(geometric, rel=4e-3)
    assert found["gaussian"] == pytest.approx(gaussian, rel=1e-2)
    assert law_of_least_noise(epsilon, DELTA, 1, 1, 1) == "geometric"


def test_the_smaller_noise_is_taken() -> None:
    # A delta that is worth more than pure epsilon costs.
    assert law_of_least_noise(0.1, 1e-2, 3, 5, 1) == "gaussian"
    assert law_of_least_noise(0.0001, DELTA, 1, 1, 1) == "gaussian"
    # Neither the number of votes nor that of the parties matters, but for the grid.
    for votes, honest, parties in ((1, 1, 1), (7, 4, 6), (30, 20, 20)):
        assert law_of_least_noise(0.1, DELTA, honest, parties, votes) == "geometric"
        found = spreads_of(0.1, DELTA, honest, parties, votes)
        assert found["gaussian"] / found["geometric"] == pytest.approx(1.54, rel=0.01)


def test_at_delta_0_noise_is_geometric() -> None:
    assert least_noise(0.1, 0.0, 3, 1) == GeometricShares(Fraction(20), 3)
    assert isinstance(least_noise(0.1, DELTA, 3, 1), GaussianShares)
    assert spreads_of(0.1, 0.0, 1, 1, 1).keys() == {"geometric"}


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1e-9, math.nan])
def test_a_budget_that_no_noise_is_worth_is_refused(epsilon: float) -> None:
    with pytest.raises(BudgetError, match="no geometric noise"):
        least_scale(epsilon, 3, 2)


def test_noise_too_wide_for_shares_leaves_the_other_law() -> None:
    assert least_scale(0.0004, 1, 2) == 5000
    with pytest.raises(BudgetError, match="no geometric noise"):
        least_scale(0.0004, 3, 2)
    assert law_of_least_noise(0.0004, DELTA, 3, 5, 1) == "gaussian"


@pytest.mark.parametrize(("honest", "parties"), [(1, 1), (3, 3), (3, 5)])
def test_what_is_released_has_the_law_that_is_charged(honest: int, parties: int) -> None:
    """False alarm 1e-6. With more shares than are counted, that law and independent noise."""
    from scipy import stats

    cells, scale = 50_000, Fraction(5)
    rows: Any = np.full((cells // 4, 4), 7, dtype=np.int64)
    noise = SystemNoise()
    if honest == 1:
        noisy = Neighbour(0, votes_per_unit=1, scale=scale).released(rows, noise)
    else:
        mechanism = DistributedNeighbour(0, honest=honest, votes_per_unit=1, scale=scale)
        total = rows
        for _ in range(parties):
            total = total + mechanism.shares.draw(noise, rows.size).reshape(rows.shape)
        noisy = mechanism.released(total, noise)
    drawn = (noisy - 7).ravel()
    reach = 400
    one = stats.nbinom.pmf(np.arange(2 * reach + 1), parties / honest, -math.expm1(-1 / 5))
    law = np.convolve(one, one[::-1])[reach : 3 * reach + 1]
    if parties == honest:  # by the other formula
        exact = weights(lambda x: abs(x) / 5, reach)
        np.testing.assert_allclose(law, list(exact.values()), rtol=1e-9, atol=1e-30)
    assert chi_square(drawn, dict(zip(range(-reach, reach + 1), law.tolist(), strict=True))) > (
        FALSE_ALARM
    )


@pytest.mark.parametrize(("scale", "parties"), [(Fraction(20), 3), (Fraction(20), 5)])
def test_two_classes_with_as_many_votes_seldom_have_a_clear_margin(
    scale: Fraction, parties: int
) -> None:
    """By the exact law of the difference of two counts: about 5 of a hundred."""
    from scipy import stats

    shares = GeometricShares(scale, 3)
    margin = clear_margin(shares, parties)
    reach = 3000
    one = stats.nbinom.pmf(
        np.arange(2 * reach + 1), 2 * parties / 3, -math.expm1(-1 / float(scale))
    )
    law = np.convolve(one, one[::-1])[reach : 3 * reach + 1]
    assert 0.04 < float(law[np.abs(np.arange(-reach, reach + 1)) >= margin].sum()) < 0.06
