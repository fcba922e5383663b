"""Conversions and the accountant against independent figures of 50 digits."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.accounting.account import LaplaceSetting, account
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.conversion import (
    best_order,
    epsilon_from_rdp,
    epsilon_from_rho,
    float_up,
    rho_from_epsilon,
)
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting.vectors import OPS, main, problems

rhos = st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(1000))
deltas = st.floats(min_value=1e-30, max_value=0.5)


def formula(rho: Fraction, delta: float, order: Decimal) -> Decimal:
    """The improved conversion at one order, in 60 digits and written as in the paper."""
    with localcontext(prec=60):
        r = Decimal(rho.numerator) / Decimal(rho.denominator)
        inverse = (1 / Decimal(delta)).ln()
        return r * order + inverse / (order - 1) + (1 - 1 / order).ln() - order.ln() / (order - 1)


def least(rho: Fraction, delta: float) -> Decimal:
    """The minimum of the formula, by golden-section search over ln(order - 1)."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = -60.0, 60.0
    with localcontext(prec=60):

        def at(x: float) -> Decimal:
            return formula(rho, delta, 1 + Decimal(x).exp())

        for _ in range(150):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            if at(a) < at(b):
                high = b
            else:
                low = a
        return at((low + high) / 2)


def test_figures_computed_apart() -> None:
    # The rho of published numbers of queries and answers; improved conversion at the best order.
    assert epsilon_from_rho(Fraction("0.19"), 1e-5) == pytest.approx(2.7340536403879776, rel=1e-12)
    assert epsilon_from_rho(Fraction("0.192972"), 1e-5) == pytest.approx(2.758, abs=5e-4)
    assert epsilon_from_rho(Fraction("2.0425"), 1e-6) == pytest.approx(11.837, abs=5e-4)
    # By hand: order 2, rdp 1, delta 1/10: improved 1 + ln(1/2) + ln(10) - ln(2).
    by_hand = 1 + math.log(10) - 2 * math.log(2)
    assert epsilon_from_rdp([2], [1.0], 0.1) == pytest.approx(by_hand, rel=1e-13)
    assert epsilon_from_rdp([2], [1.0], 0.1, "classical") == pytest.approx(1 + math.log(10))
    orders = [2, 4, 8, 16, 32]
    rdp = [0.1, 0.2, 0.4, 0.8, 1.6]
    assert epsilon_from_rdp(orders, rdp, 1e-5) == pytest.approx(1.3181505950444587, rel=1e-12)
    assert epsilon_from_rdp(orders, rdp, 1e-5, "classical") == pytest.approx(
        1.5675283643313486, rel=1e-12
    )
    assert best_order(orders, rdp, 1e-5) == 16
    # Where an order has no bound, the others decide.
    assert epsilon_from_rdp([2, 4], [1.0, math.inf], 0.1) == epsilon_from_rdp([2], [1.0], 0.1)
    assert epsilon_from_rdp([2], [math.inf], 0.1) == math.inf


@settings(max_examples=25, deadline=None)
@given(rhos, deltas)
def test_epsilon_is_never_below_the_minimum_and_hardly_above(rho: Fraction, delta: float) -> None:
    exact = least(rho, delta)
    got = Decimal(epsilon_from_rho(rho, delta))
    assert got >= max(exact, Decimal(0)) - Decimal(10) ** -40
    assert got <= max(exact, Decimal(0)) * (1 + Decimal("1e-9")) + Decimal("1e-10")


@given(rhos, deltas, st.floats(min_value=1e-6, max_value=10))
def test_epsilon_grows_with_rho(rho: Fraction, delta: float, more: float) -> None:
    assert epsilon_from_rho(rho * (1 + Fraction(more)), delta) >= epsilon_from_rho(rho, delta)


@given(rhos, deltas)
def test_epsilon_is_below_that_of_any_list_of_orders(rho: Fraction, delta: float) -> None:
    orders = [1.01, 1.5, 2, 3, 5, 10, 30, 100, 1000]
    rdp = [float_up(rho * Fraction(order)) for order in orders]
    best = epsilon_from_rho(rho, delta)
    assert best <= epsilon_from_rdp(orders, rdp, delta) * (1 + 1e-12) + 1e-12
    assert epsilon_from_rdp(orders, rdp, delta) <= epsilon_from_rdp(orders, rdp, delta, "classical")


@settings(max_examples=60, deadline=None)
@given(st.floats(min_value=1e-3, max_value=200), deltas)
def test_a_budget_in_rho_is_within_and_close_to_epsilon(epsilon: float, delta: float) -> None:
    rho = rho_from_epsilon(epsilon, delta)
    assert rho > 0
    assert epsilon_from_rho(rho, delta) <= epsilon
    # The largest: one part in 10^8 more is too much.
    assert epsilon_from_rho(rho * (1 + Fraction(1, 10**8)), delta) > epsilon


@settings(max_examples=40, deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(100)), deltas)
def test_to_epsilon_and_back(rho: Fraction, delta: float) -> None:
    epsilon = epsilon_from_rho(rho, delta)
    if epsilon > 1e-3:  # where the formula is cut off at 0 there is no way back
        assert abs(rho_from_epsilon(epsilon, delta) / rho - 1) < Fraction(1, 10**8)


def test_nothing_costs_nothing() -> None:
    assert epsilon_from_rho(Fraction(0), 1e-5) == 0.0
    assert rho_from_epsilon(0.0, 1e-5) == 0


@pytest.mark.parametrize("rho", [Fraction(1, 10**400), Fraction(1, 10**30), Fraction(10**100)])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-5, 1 - 2**-53])
def test_extremes_stay_numbers(rho: Fraction, delta: float) -> None:
    got = epsilon_from_rho(rho, delta)
    assert math.isfinite(got)
    assert got >= 0.0


@pytest.mark.parametrize("rho", [Fraction(-1), math.nan, 0.5, math.inf, "1", None, True])
def test_a_bad_rho_stops_the_accountant(rho: object) -> None:
    with pytest.raises(AccountingError, match="rho"):
        epsilon_from_rho(rho, 1e-5)  # type: ignore[arg-type]


def test_a_rho_beyond_floats_stops_the_accountant() -> None:
    with pytest.raises(AccountingError, match="too large"):
        epsilon_from_rho(Fraction(10**400), 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, math.inf, 2.0])
def test_a_bad_delta_stops_the_accountant(delta: float) -> None:
    for call in (
        lambda: epsilon_from_rho(Fraction(1), delta),
        lambda: rho_from_epsilon(1.0, delta),
        lambda: epsilon_from_rdp([2], [1.0], delta),
    ):
        with pytest.raises(AccountingError, match="delta"):
            call()


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
def test_a_bad_epsilon_stops_the_accountant(epsilon: float) -> None:
    with pytest.raises(AccountingError, match="epsilon"):
        rho_from_epsilon(epsilon, 1e-5)


@pytest.mark.parametrize(
    ("orders", "rdp"),
    [
        ([], []), ([2], []), ([2, 3], [0.1]), ([1.0], [0.1]), ([0.5], [0.1]), ([math.nan], [0.1]),
        ([math.inf], [0.1]), ([2], [math.nan]), ([2], [-0.1]), ([2, 3], [0.1, math.nan]),
    ],
)  # fmt: skip
def test_a_bad_curve_stops_the_accountant(orders: list[float], rdp: list[float]) -> None:
    for name in ("improved", "classical"):
        with pytest.raises(AccountingError):
            epsilon_from_rdp(orders, rdp, 1e-5, name)


def test_an_unknown_formula_is_refused() -> None:
    with pytest.raises(AccountingError, match="formula"):
        epsilon_from_rdp([2], [0.1], 1e-5, "optimistic")  # type: ignore[arg-type]


Case = dict[str, Any]

#: Figures of noise that no campaign draws, of one that its event bounds in another way, and of the
#: noisy release that the gate is better than.
NOT_OURS = {
    "server_view_rdp", "skellam_rdp", "dgauss_rdp", "skellam_logtail",
    "gnmax_logq0", "gnmax_ls", "gnmax_smooth_sensitivity", "threshold_ls", "gnss_cost",
}  # fmt: skip

#: Best orders of the published runs are among them.
ORDERS = np.arange(1.5, 33.0, 0.5)


def read(test_data: Path, name: str) -> list[Case]:
    file = test_data.parent / "vectors" / name
    if not file.is_file():
        pytest.skip(f"the file of vectors {name} is not here")
    cases: list[Case] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return cases


def test_single_figures(test_data: Path) -> None:
    cases = [each for each in read(test_data, "accounting.json") if each["op"] not in NOT_OURS]
    assert len(cases) > 30
    assert {case["op"] for case in cases} <= set(OPS)
    assert [f"{case['id']}: {line}" for case in cases for line in problems(case)] == []


def test_a_case_of_another_operation_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = {
        "id": "R", "op": "gauss_delta", "inputs": {"mu": 1.0, "eps": 1e9}, "expected": {"delta": 0},
        "tol": {"abs": 1e-9, "rel": 0}, "kind": "close",
    }  # fmt: skip
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"cases": [right, {**right, "id": "G", "op": "gone"}, {"T": 200}]}))
    assert main([str(file)]) == 0
    said = capsys.readouterr().out
    assert "G: no such operation: gone" in said
    assert "case 2: no such operation" in said
    assert "in all: 1 passed, 0 failed, 2 no such operation" in said
    wrong = {**right, "expected": {"delta": 1}}
    del wrong["id"]
    file.write_text(json.dumps({"cases": [wrong]}))
    assert main([str(file)]) == 1
    assert "case 0: delta" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["mnist", "svhn", "adult"])
def test_published_votes(test_data: Path, dataset: str) -> None:
    (case,) = (c for c in read(test_data, "published_votes.json") if c["dataset"] == dataset)
    votes = np.load(test_data / "pate_votes" / case["file"], allow_pickle=False)
    rows = votes[: case["rows_used"]]
    setting = GaussianSetting(
        label=Gaussian(case["sigma2"]), check=Gaussian(case["sigma1"]), threshold=case["T"]
    )
    found = account(
        rows,
        setting,
        delta=case["delta"],
        neighbours=Neighbours(),
        orders=ORDERS,
    )
    close = pytest.approx
    assert found.answered == close(case["expected_answered"], rel=1e-8)
    paper, expected = found.figures["paper-2018"], found.figures["expected"]
    assert paper.classical == close(case["eps_reference_classical"], rel=1e-8)
    assert paper.improved == close(case["eps_improved_conversion"], rel=1e-8)
    assert paper.best_orders == (case["order"], case["order_improved"])
    at = dict(zip(paper.orders, paper.rdp, strict=True))
    wanted = zip(case["rdp_orders"], case["rdp_reference_expected"], strict=True)
    for order, value in wanted:
        assert at[order] == close(float(value), rel=1e-8)
    assert expected.classical == close(case["eps_data_independent_classical"], rel=1e-8)
    assert expected.exact == close(case["eps_data_independent_gdp_exact"], rel=1e-8)
    # The bound by outcomes is below even the expected cost by Theorem 6+, which is no bound.
    sharp = found.figures["sharp"].improved
    assert 0.9 < sharp / case["eps_plus_expected_improved"] < 0.99
    assert sharp < found.figures["theorem6"].improved
    assert sharp <= {"mnist": 1.07, "svhn": 2.96, "adult": 1.01}[dataset]


@pytest.mark.parametrize("dataset", ["mnist", "svhn", "adult"])
def test_published_votes_by_lnmax(test_data: Path, dataset: str) -> None:
    (case,) = (c for c in read(test_data, "published_votes.json") if c["dataset"] == dataset)
    votes = np.load(test_data / "pate_votes" / case["file"], allow_pickle=False)
    for stated in case["lnmax"]:
        found = account(
            votes[: stated["queries"]],
            LaplaceSetting(gamma=stated["gamma"]),
            delta=case["delta"],
            neighbours=Neighbours(),
        )
        assert found.figures["paper-2017"].classical == pytest.approx(stated["eps"], rel=1e-8)
        # All orders and the better conversion only help.
        assert found.figures["sharp"].improved < stated["eps_plus_same_moments"]
        same = account(
            votes[: stated["queries"]],
            LaplaceSetting(gamma=stated["gamma"]),
            delta=case["delta"],
            neighbours=Neighbours(),
            bounds=("sharp",),
            orders=np.arange(2.0, 10.0),
        )
        assert same.figures["sharp"].classical == pytest.approx(
            stated["eps_plus_same_moments"], rel=1e-8
        )
