"""Figures computed apart with 50 digits, where the file with them is at hand."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pate.accounting.budget import ZcdpFilter
from pate.accounting.conversion import best_order, epsilon_from_rdp, epsilon_from_rho
from pate.accounting.events import GaussianMax, GaussianThreshold, LaplaceMax
from pate.errors import BudgetError

if TYPE_CHECKING:
    from pathlib import Path

Case = dict[str, Any]


@pytest.fixture(scope="session")
def vectors(test_data: Path) -> list[Case]:
    file = test_data.parent / "vectors" / "accounting.json"
    if not file.is_file():
        pytest.skip("the file of accounting vectors is not here")
    cases: list[Case] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return cases


def of(vectors: list[Case], op: str, mode: str | None = None) -> list[Case]:
    found = [
        case
        for case in vectors
        if case["op"] == op and (mode is None or case["inputs"].get("mode") == mode)
    ]
    assert found
    return found


def close(got: Any, want: Any, case: Case) -> None:
    want = np.array([float(part) for part in np.atleast_1d(want)])
    tolerance = case["tol"]["abs"] + case["tol"]["rel"] * np.abs(want)
    assert (np.abs(np.atleast_1d(got) - want) <= tolerance).all(), case["id"]


def exact(number: float) -> Fraction:
    return Fraction(str(number))


def test_laplace_max(vectors: list[Case]) -> None:
    for case in of(vectors, "lnmax_rdp", "independent"):
        given = case["inputs"]
        event = LaplaceMax(1 / exact(given["gamma"]), given["k"])
        close([event.rdp(order) for order in given["orders"]], case["expected"]["rdp"], case)


def test_gaussian_max(vectors: list[Case]) -> None:
    cases = of(vectors, "gnmax_rdp", "independent")
    # Removal is another adjacency than that of the events, with half the cost.
    for case in cases:
        given = case["inputs"]
        share = {"change": 1.0, "remove": 0.5}[given["adjacency"]]
        event = GaussianMax(exact(given["sigma"]), given["k"])
        got = [share * event.rdp(order) for order in given["orders"]]
        close(got, case["expected"]["rdp"], case)


def test_gaussian_max_against_the_exact_discrete_divergence(vectors: list[Case]) -> None:
    for case in of(vectors, "dgauss_rdp"):
        given = case["inputs"]
        sigma = exact(given["variance"] ** 0.5)
        event = GaussianMax(sigma, given["k"])
        for order, least, most in zip(
            given["orders"], case["expected"]["min"], case["expected"]["max"], strict=True
        ):
            assert float(least) <= event.rdp(order) <= float(most)


def test_threshold(vectors: list[Case]) -> None:
    for case in of(vectors, "threshold_rdp", "independent"):
        given = case["inputs"]
        event = GaussianThreshold(exact(given["sigma"]), given["k"])
        close([event.rdp(order) for order in given["orders"]], case["expected"]["rdp"], case)


def test_epsilon_from_rho(vectors: list[Case]) -> None:
    for case in of(vectors, "eps_linear_rdp"):
        given = case["inputs"]
        got = epsilon_from_rho(exact(given["rho"]), given["delta"])
        close(got, case["expected"]["improved"], case)


def test_epsilon_from_rdp(vectors: list[Case]) -> None:
    for case in of(vectors, "eps_from_rdp"):
        given, want = case["inputs"], case["expected"]
        curve = (given["orders"], given["rdp"], given["delta"])
        close(epsilon_from_rdp(*curve), want["eps_improved"], case)
        close(epsilon_from_rdp(*curve, "classical"), want["eps_classical"], case)
        assert best_order(*curve) == want["order_improved"]
        assert best_order(*curve, "classical") == want["order_classical"]


def test_budget_filter(vectors: list[Case]) -> None:
    for case in of(vectors, "budget_filter"):
        given, want = case["inputs"], case["expected"]
        check = GaussianThreshold(exact(given["sigma1"]), given["k"]).rho
        label = GaussianMax(exact(given["sigma2"]), given["k"]).rho
        budget = ZcdpFilter(exact(given["rho_max"]))
        admitted = answered = 0
        for yes, times in given["answered_runs"]:
            for _ in range(times):
                try:
                    held = budget.reserve(check + label)
                except BudgetError:
                    continue
                budget.settle(held, check + label if yes else check)
                admitted += 1
                answered += yes
        assert (admitted, answered) == (want["admitted"], want["answered"])
        close(float(budget.spent), want["rho_spent"], case)
