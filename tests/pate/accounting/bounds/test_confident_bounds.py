"""Check and label together: exact mechanisms on the integers, with every neighbour and outcome."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting.arrays import Floats
from pate.accounting.bounds import threshold
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.bounds.threshold import expected, joint
from pate.accounting.choices import Adjacency
from pate.accounting.units import Neighbours
from pate.errors import AccountingError, UsageError
from tests.support.accounting import exact
from tests.support.accounting.exact import Counts

ORDERS = np.array([1.01, 1.5, 2.0, 6.0, 14.0, 40.0])
#: A label that costs nothing: what is left is the check.
FREE = np.zeros((1, len(ORDERS)))


class Mechanism:
    """Confident-GNMax with discrete noise: the laws of its outcomes at some histograms."""

    def __init__(self, histograms: Counts, check: float, label: float, limit: float) -> None:
        law = DiscreteGaussian(check)
        top = histograms.max(axis=1).astype(np.float64)
        self.passed = threshold.log_pass(top, limit, law)
        self.failed = threshold.log_fail(top, limit, law)
        self.labels = exact.log_labels(histograms, exact.Lattice("gaussian", label))

    @property
    def outcomes(self) -> Floats:
        """(histograms, 1 + classes), logarithms: no answer, then each label."""
        return np.column_stack([self.failed, self.passed[:, None] + self.labels])

    @property
    def checks(self) -> Floats:
        return np.column_stack([self.failed, self.passed])


def around(histogram: list[int], k: int, adjacency: Adjacency) -> Counts:
    """The histogram, then all its neighbours."""
    here = np.array(histogram)
    return np.concatenate([here[None], exact.every_neighbour(here, Neighbours(k, adjacency))])


def test_the_expected_cost_is_no_bound() -> None:
    histogram, order = [8, 7], np.array([40.0])
    made = Mechanism(around(histogram, 1, "change"), 10.0, 2.0, 20.0)
    found = exact.divergences(made.outcomes[0], made.outcomes[1:], order).max()
    law = DiscreteGaussian(10.0)
    labels = exact.divergences(made.labels[0], made.labels[1:], order).max(axis=0)[None]
    checks = joint([8.0], 20.0, law, 1, order, FREE[:, :1])
    reported = float(expected(made.passed[:1], checks, labels)[0, 0])
    # Both parts are at their exact worst; what is reported is a fraction of the truth.
    assert found > 1.3 * reported
    assert found <= float(joint([8.0], 20.0, law, 1, order, labels)[0, 0])


def brute(p: float, other: float, label: float, order: float) -> float:
    passed = p**order * other ** (1 - order) * math.exp((order - 1) * label)
    failed = (1 - p) ** order * (1 - other) ** (1 - order)
    return math.log(passed + failed) / (order - 1)


@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.floats(2.0, 50.0),
    st.floats(1.5, 12.0),
    st.floats(0.0, 3.0),
)
def test_joint_is_its_formula(v: int, k: int, sigma: float, order: float, label: float) -> None:
    law = Gaussian(sigma)
    p, low, high = np.exp(threshold.log_pass([v, v - k, v + k], 30.0, law))
    if min(low, 1 - high) < 1e-9:
        return
    want = max(brute(p, low, label, order), brute(p, high, label, order))
    got = joint([v], 30.0, law, k, [order], [[label]])[0, 0]
    assert got == pytest.approx(want, rel=1e-7, abs=1e-12)


def test_joint_of_a_sure_check_is_the_label() -> None:
    sure = joint([5000.0], 100.0, Gaussian(1.0), 1, ORDERS, 0.3 * ORDERS[None])
    assert sure[0] == pytest.approx(0.3 * ORDERS, rel=1e-9)
    never = joint([0.0], 5000.0, Gaussian(1.0), 1, [2.0, 3.0], [[100.0, 400.0]])
    assert never[0] == pytest.approx(0.0, abs=1e-200)


@given(st.floats(0.0, 300.0), st.floats(0.0, 5.0), st.floats(1.0, 3.0))
def test_joint_rises_with_the_label_and_lies_between_its_parts(
    v: float, label: float, more: float
) -> None:
    law = Gaussian(60.0)
    low = joint([v], 100.0, law, 1, ORDERS, np.full((1, len(ORDERS)), label))[0]
    high = joint([v], 100.0, law, 1, ORDERS, np.full((1, len(ORDERS)), label * more))[0]
    check = joint([v], 100.0, law, 1, ORDERS, FREE)[0]
    assert (low <= high * (1 + 1e-12)).all()
    assert (check <= low * (1 + 1e-12)).all()
    assert (low <= (check + label) * (1 + 1e-9)).all()


def test_extremes_neither_warn_nor_overflow() -> None:
    v = np.array([0.0, 1.0, 40.0, 2500.0, 4999.0, 5000.0, -5000.0, 1e9, -1e9])
    for sigma in (1.0, 150.0, 5000.0):
        for limit in (-1e9, 0.0, 2500.0, 5000.0, 1e9):
            for law in (Gaussian(sigma), DiscreteGaussian(sigma)):
                check = joint(v, limit, law, 1, ORDERS, FREE)
                for label in (0.0, 1e-300, 1e-3, 0.3, 40.0, 1e4):
                    got = joint(v, limit, law, 1, ORDERS, FREE + label)
                    assert np.isfinite(got).all()
                    assert (got >= 0.0).all()
                    assert (got <= (check + label) * (1 + 1e-9) + 1e-240).all()


def test_a_label_without_bound_leaves_none() -> None:
    got = joint([50.0], 60.0, Gaussian(40.0), 1, [2.0, 3.0], [[math.inf, 0.1]])
    assert got[0, 0] == math.inf
    assert got[0, 1] < 0.1


def test_one_row_of_costs_serves_all_queries() -> None:
    law, v = Gaussian(40.0), np.array([50.0, 90.0])
    one = joint(v, 60.0, law, 1, ORDERS, 0.01 * ORDERS[None])
    assert one.tolist() == joint(v, 60.0, law, 1, ORDERS, np.tile(0.01 * ORDERS, (2, 1))).tolist()


def test_rows_are_independent_of_each_other() -> None:
    law, random = Gaussian(40.0), np.random.default_rng(5)
    v = random.integers(0, 200, 700).astype(np.float64)
    labels = random.uniform(0.0, 0.1, (700, len(ORDERS)))
    together = joint(v, 100.0, law, 1, ORDERS, labels)
    assert joint([], 5.0, law, 1, ORDERS, FREE).shape == (0, len(ORDERS))
    for row in (0, 1, 350, 699):
        apart = joint(v[row : row + 1], 100.0, law, 1, ORDERS, labels[row : row + 1])
        assert together[row].tolist() == apart[0].tolist()


def test_what_is_never_answered_costs_no_label() -> None:
    assert expected([-math.inf], [[0.1]], [[math.inf]]).tolist() == [[0.1]]


def test_bad_values_stop_the_accountant() -> None:
    law = Gaussian(3.0)
    tables: tuple[tuple[Any, Any, Any, Any, str], ...] = (
        *(([bad], 5.0, [2.0], [[0.1]], "finite") for bad in (math.nan, math.inf, -math.inf)),
        *(([5.0], bad, [2.0], [[0.1]], "finite") for bad in (math.nan, math.inf, -math.inf)),
        *(([5.0], 5.0, [2.0], [[bad]], "label") for bad in (math.nan, -1e-9)),
        *(([5.0], 5.0, bad, [[0.1]], "order") for bad in ([1.0], [], [math.nan], [[2.0]], [0.5])),
        ([5.0, 6.0], 5.0, [2.0], np.zeros((3, 1)), "fit"),
        ([5.0], 5.0, [2.0, 3.0], [[0.1]], "fit"),
        ([[5.0]], 5.0, [2.0], [[0.1]], "fit"),
    )
    for v, limit, orders, label, says in tables:
        with pytest.raises(AccountingError, match=says):
            joint(v, limit, law, 1, orders, label)
    for k in (0, -1, 1.0, True):
        with pytest.raises(UsageError):
            joint([5.0], 5.0, law, k, [2.0], [[0.1]])  # type: ignore[arg-type]
    costs: tuple[tuple[Any, Any, Any, str], ...] = (
        *(([-0.1], [[bad]], [[0.1]], "check") for bad in (math.nan, -1e-9)),
        *(([-0.1], [[0.1]], [[bad]], "label") for bad in (math.nan, -1e-9)),
        *(([bad], [[0.1]], [[0.1]], "log P") for bad in (math.nan, math.inf)),
        ([-0.1, -0.2], np.zeros((3, 1)), np.zeros((2, 1)), "fit"),
        ([-0.1], np.zeros((1, 2)), np.zeros((1, 1)), "fit"),
        ([[-0.1]], [[0.1]], [[0.1]], "list"),
    )
    for log_pass, check, label, says in costs:
        with pytest.raises(AccountingError, match=says):
            expected(log_pass, check, label)
