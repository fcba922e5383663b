"""Runs independently computed cases with 50 digits against the accountant.

``python -m tests.support.accounting.vectors FILE`` runs a file of cases and prints those that fail, and
those whose operation this project does not have: they are no failures.
A case has ``op``, ``inputs``, ``expected``, ``tol`` and a ``kind``: ``close`` (equal within the
tolerance), ``interval`` (a rigorous bound between min and max) or ``floor`` (a bound below it would
be unsound).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pate.accounting import gdp
from pate.accounting.arrays import Floats, check_rdp
from pate.accounting.bounds import outlier, theorem3, theorem6, theorem6_plus, threshold
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.conversion import best_order, epsilon_from_rdp, epsilon_from_rho
from pate.accounting.events import GaussianMax, GaussianThreshold
from pate.accounting.filters import PrivacyFilter
from pate.accounting.units import Neighbours
from pate.errors import BudgetError

Case = dict[str, Any]
Inputs = dict[str, Any]


def exact(number: float) -> Fraction:
    return Fraction(str(number))


def histogram(votes: Any) -> Floats:
    """One row of votes, from a dense list or from {"classes": m, "counts": {index: count}}."""
    if isinstance(votes, dict):
        row = np.zeros(votes["classes"])
        for index, count in votes["counts"].items():
            row[int(index)] = count
    else:
        row = np.array(votes, np.float64)
    return row[None]


def neighbours(given: Inputs) -> Neighbours:
    return Neighbours(given.get("k", 1), given.get("adjacency", "change"))


def lnmax_logq(given: Inputs) -> dict[str, Any]:
    return {"logq": outlier.lnmax_log_q(histogram(given["votes"]), given["gamma"])[0]}


def lnmax_rdp(given: Inputs) -> dict[str, Any]:
    log_q = outlier.lnmax_log_q(histogram(given["votes"]), given["gamma"])
    epsilon0 = neighbours(given).gap_shift * given["gamma"]
    if given["mode"] == "independent":
        rdp = theorem3.independent(epsilon0, given["orders"])
    else:
        rdp = theorem3.rdp(log_q, epsilon0, given["orders"], sharp=given["mode"] == "plus")[0]
    return {"rdp": rdp, "logq": log_q[0]}


def lnmax_eps(given: Inputs) -> dict[str, Any]:
    orders = np.array(given["moments"]) + 1.0
    epsilon0 = neighbours(given).gap_shift * given["gamma"]
    total = np.zeros(len(orders))
    for votes, count in given["queries"]:
        if given["mode"] == "independent":
            total += count * theorem3.independent(epsilon0, orders)
        else:
            log_q = outlier.lnmax_log_q(histogram(votes), given["gamma"])
            total += count * theorem3.rdp(log_q, epsilon0, orders, sharp=given["mode"] == "plus")[0]
    curve = (orders.tolist(), total.tolist(), given["delta"])
    return {
        "eps": epsilon_from_rdp(*curve, "classical"),
        "moment": best_order(*curve, "classical") - 1.0,
    }


def gnmax_logq(given: Inputs) -> dict[str, Any]:
    return {"logq": outlier.gnmax_log_q(histogram(given["votes"]), Gaussian(given["sigma"]))[0]}


def _log_q(given: Inputs) -> Floats:
    if "logq" in given:
        return np.array([given["logq"]])
    return outlier.gnmax_log_q(histogram(given["votes"]), Gaussian(given["sigma"]))


def gnmax_rdp(given: Inputs) -> dict[str, Any]:
    log_q = _log_q(given)
    rate = neighbours(given).squared_distance / (2 * given["sigma"] ** 2)
    if given["mode"] == "independent":
        rdp = rate * np.array(given["orders"], np.float64)
    else:
        rdp = theorem6.rdp(log_q, rate, given["orders"])[0]
    return {"rdp": rdp, "logq": log_q[0]}


def gnmax_rdp_plus(given: Inputs) -> dict[str, Any]:
    mu = neighbours(given).squared_distance ** 0.5 * Gaussian(given["sigma"]).mu_of_step
    orders = np.array(given["orders"], np.float64)
    return {"rdp": theorem6_plus.rdp(_log_q(given), mu, orders)[0]}


def _log_pass(given: Inputs) -> float:
    law = Gaussian(given["sigma"])
    return float(threshold.log_pass(np.array([given["v"]], np.float64), given["T"], law)[0])


def threshold_logpr(given: Inputs) -> dict[str, Any]:
    return {"logpr": _log_pass(given)}


def threshold_rdp(given: Inputs) -> dict[str, Any]:
    law, k = Gaussian(given["sigma"]), given.get("k", 1)
    v = np.array([given["v"]], np.float64)
    orders = np.array(given["orders"], np.float64)
    if given["mode"] == "independent":
        rdp = k**2 / (2 * law.sigma**2) * orders
    elif given["mode"] == "exact":
        free = np.zeros((1, len(orders)))
        rdp = threshold.joint(v, given["T"], law, k, orders, free)[0]
    else:
        rdp = threshold.rdp_theorem6(v, given["T"], law, k, orders)[0]
    return {"rdp": rdp, "logpr": _log_pass(given)}


def confident_total(given: Inputs) -> dict[str, Any]:
    check, label = Gaussian(given["sigma1"]), Gaussian(given["sigma2"])
    unit = neighbours(given)
    k = unit.votes
    orders = np.array(given["orders"], np.float64)
    rate = unit.squared_distance / (2 * label.sigma**2)
    total, answered = np.zeros(len(orders)), 0.0
    for query in given["queries"]:
        votes = histogram(query["votes"])
        base = query.get("baseline")
        seen = votes.max(axis=1) if base is None else (votes - np.array(base)).max(axis=1)
        log_pass = threshold.log_pass(seen, given["T"], check)
        if given["data_dependent"]:
            checks = threshold.rdp_theorem6(seen, given["T"], check, k, orders)
            labels = theorem6.rdp(outlier.gnmax_log_q(votes, label), rate, orders)
        else:
            checks = (k**2 / (2 * check.sigma**2) * orders)[None]
            labels = (rate * orders)[None]
        if given["accounting"] == "expected":
            cost = threshold.expected(log_pass, checks, labels)
        else:
            cost = checks + labels if query["answered"] else checks
        total += query["count"] * cost[0]
        answered += query["count"] * float(np.exp(log_pass[0]))
    return {"rdp": total, "expected_answered": answered, **_epsilons(orders, total, given["delta"])}


def _epsilons(orders: Any, rdp: Any, delta: float) -> dict[str, Any]:
    curve = ([float(order) for order in orders], [float(value) for value in rdp], delta)
    return {
        "eps_classical": epsilon_from_rdp(*curve, "classical"),
        "eps_improved": epsilon_from_rdp(*curve),
        "order_classical": best_order(*curve, "classical"),
        "order_improved": best_order(*curve),
    }


def eps_from_rdp(given: Inputs) -> dict[str, Any]:
    return _epsilons(given["orders"], given["rdp"], given["delta"])


def eps_linear_rdp(given: Inputs) -> dict[str, Any]:
    rho = exact(given["rho"])
    return {
        "classical": epsilon_from_rho(rho, given["delta"], "classical"),
        "improved": epsilon_from_rho(rho, given["delta"]),
    }


def gauss_eps(given: Inputs) -> dict[str, Any]:
    return {"eps": gdp.epsilon_from_delta(given["mu"], given["delta"])}


def gauss_delta(given: Inputs) -> dict[str, Any]:
    return {"delta": gdp.delta_from_epsilon(given["mu"], given["eps"])}


def local_rdp_floor(given: Inputs) -> dict[str, Any]:
    """The sharpest bound that is offered: it may not be below an exact divergence."""
    votes, unit = histogram(given["votes"]), neighbours(given)
    orders = np.array(given["orders"], np.float64)
    if given["mech"] == "lap":
        log_q = outlier.lnmax_log_q(votes, given["scale"])
        rdp = theorem3.rdp(log_q, unit.gap_shift * given["scale"], orders, sharp=True)
    else:
        law = Gaussian(given["scale"])
        log_q = outlier.gnmax_log_q(votes, law)
        rdp = theorem6_plus.rdp(log_q, unit.squared_distance**0.5 * law.mu_of_step, orders)
    return {"min": check_rdp(rdp[0], "the bound")}


def budget_filter(given: Inputs) -> dict[str, Any]:
    check = GaussianThreshold(exact(given["sigma1"]), given["k"]).rho
    label = GaussianMax(exact(given["sigma2"]), given["k"]).rho
    budget = PrivacyFilter(exact(given["rho_max"]))
    admitted = answered = 0
    for yes, times in given["answered_runs"]:
        for _ in range(times):
            try:
                held = budget.reserve(check + label)
            except BudgetError:
                continue
            budget.settle(held, check + label if yes else check)
            admitted += 1
            answered += bool(yes)
    return {"admitted": admitted, "answered": answered, "rho_spent": float(budget.spent)}


OPS: Mapping[str, Callable[[Inputs], dict[str, Any]]] = {
    run.__name__: run
    for run in (
        lnmax_logq, lnmax_rdp, lnmax_eps, gnmax_logq, gnmax_rdp, gnmax_rdp_plus, threshold_logpr,
        threshold_rdp, confident_total, eps_from_rdp, eps_linear_rdp, gauss_eps, gauss_delta,
        local_rdp_floor, budget_filter,
    )
}  # fmt: skip


def numbers(values: Any) -> Floats:
    return np.array([float(value) for value in np.atleast_1d(np.asarray(values, object))])


def problems(case: Case) -> list[str]:
    """Return what is wrong with the answer to a case, by name of the figure."""
    got = OPS[case["op"]](case["inputs"])
    expected, tolerance = case["expected"], case["tol"]

    def slack(want: Floats) -> Floats:
        return float(tolerance["abs"]) + float(tolerance["rel"]) * np.abs(want)

    found = []
    if case["kind"] == "interval":
        ((name, values),) = got.items()
        least, most = numbers(expected["min"]), numbers(expected["max"])
        made = numbers(values)
        if not ((least - slack(least) <= made) & (made <= most + slack(most))).all():
            found.append(f"{name} = {made}, wanted {least} to {most}")
        return found
    for name, values in expected.items():
        made, want = numbers(got[name]), numbers(values)
        if case["kind"] == "floor":
            right = (made >= want - slack(want)).all()
        else:
            right = (np.abs(made - want) <= slack(want)).all()
        if not right:
            found.append(f"{name} = {made}, wanted {want}")
    return found


def main(paths: list[str]) -> int:
    """Run files of cases; return 1 if one failed. A case of another operation is counted by itself."""
    total: Counter[str] = Counter()
    for path in paths:
        counts: Counter[str] = Counter()
        for at, case in enumerate(json.loads(Path(path).read_text(encoding="utf-8"))["cases"]):
            operation = case.get("op")
            name = case.get("id") or case.get("dataset") or f"case {at}"
            if operation not in OPS:
                counts["no such operation"] += 1
                print(f"{name}: no such operation: {operation or 'none is named'}")  # noqa: T201
                continue
            try:
                found = problems(case)
            except Exception as error:  # noqa: BLE001 - whatever it is, the case failed
                found = [f"{type(error).__name__}: {error}"]
            for line in found:
                print(f"{name}: {line}")  # noqa: T201
            counts["failed" if found else "passed"] += 1
        print(f"{path}: {in_words(counts)}")  # noqa: T201
        total += counts
    print(f"in all: {in_words(total)}")  # noqa: T201
    return min(total["failed"], 1)


def in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "no such operation"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
