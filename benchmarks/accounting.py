"""``python -m benchmarks.accounting``: speed of the accountant, and bounds of the published votes.

Speeds are compared within one run with a straightforward implementation of the 2018 algorithm: one
query at a time, its orders at once in numpy.
"""

from __future__ import annotations

import json
import math
import os
import time
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_ndtr

from benchmarks.papers.data import data_folder
from pate.accounting.account import account
from pate.accounting.bounds import outlier, theorem6
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.sharp import GaussianSetting, sharp_bound
from pate.accounting.bounds.theorem6_plus import Table
from pate.accounting.publishing.nearby import Batch
from pate.accounting.publishing.smooth_sensitivity import smooth_sensitivity
from pate.accounting.units import Neighbours

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.accounting.arrays import Floats
    from pate.votes import Counts

#: (teachers, classes, queries, sigma)
SIZES = ((250, 10, 100_000, 40.0), (5000, 150, 20_000, 100.0))
ORDERS = np.concatenate((np.arange(1.5, 26.5, 0.5), np.arange(27.0, 77.0)))
#: Of the published runs of Confident-GNMax: queries, threshold, sigma1, delta.
PUBLISHED = {
    "mnist": (640, 200.0, 150.0, 1e-5),
    "svhn": (8500, 300.0, 200.0, 1e-6),
    "adult": (1500, 300.0, 200.0, 1e-5),
}
#: Queries of the slow implementation, which bounds its run time.
NAIVE_QUERIES = 2_000


def one_query(votes: Counts, sigma: float, orders: Floats) -> Floats:
    """Proposition 7, then Theorem 6 with the orders of Proposition 10, as written in the paper."""
    winner = int(votes.argmax())
    logs = log_ndtr((votes - votes[winner]) / (math.sqrt(2) * sigma))
    logs[winner] = -math.inf
    largest = logs.max()
    log_q = largest + math.log(np.exp(logs - largest).sum())
    log_q = min(log_q, math.log1p(-1 / len(votes)))
    rate = 1 / sigma**2
    independent = orders * rate
    mu2 = math.sqrt(-log_q / rate)
    mu1 = mu2 + 1
    epsilon2 = rate * mu2
    if mu2 <= 1 or log_q + epsilon2 >= 0:
        return independent
    if log_q > (mu2 - 1) * epsilon2 - mu2 * (math.log(mu1 / (mu1 - 1)) + math.log(mu2 / (mu2 - 1))):
        return independent
    log_1q = math.log1p(-math.exp(log_q))
    log_a = log_1q - math.log1p(-math.exp((log_q + epsilon2) * (1 - 1 / mu2)))
    log_b = rate * mu1 - log_q / (mu1 - 1)
    powers = orders - 1
    bound = np.logaddexp(log_1q + powers * log_a, log_q + powers * log_b) / powers
    return np.where(orders < mu1, np.minimum(independent, bound), independent)


def make_votes(teachers: int, classes: int, queries: int) -> Counts:
    """Queries of all difficulties: the share of right votes is uniform from 0.2 to 1."""
    rng = np.random.default_rng(7)
    right = rng.uniform(0.2, 1.0, queries)
    shares = np.repeat(((1 - right) / (classes - 1))[:, None], classes, axis=1)
    shares[np.arange(queries), rng.integers(classes, size=queries)] = right
    return rng.multinomial(teachers, shares).astype(np.int64)


def best_time(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the least of several wall times in seconds: other load can only add."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def speed(teachers: int, classes: int, queries: int, sigma: float) -> dict[str, object]:
    """Queries per second of both implementations, from votes to a total, and their ratios."""
    votes = make_votes(teachers, classes, queries)
    few = votes[:NAIVE_QUERIES]
    rate, law = 1 / sigma**2, Gaussian(sigma)

    def naive() -> Floats:
        return np.asarray(sum(one_query(row, sigma, ORDERS) for row in few))

    def ours() -> Floats:
        return theorem6.total(outlier.gnmax_log_q(votes, law), rate, ORDERS)

    began = time.perf_counter()
    table = Table.build(math.sqrt(2) * law.mu_of_step, ORDERS)
    built = time.perf_counter() - began

    def sharp() -> Floats:
        return table.total(outlier.gnmax_log_q(votes, law))

    np.testing.assert_allclose(
        naive(), theorem6.total(outlier.gnmax_log_q(few, law), rate, ORDERS), rtol=1e-7
    )
    slow, fast, best = best_time(naive), best_time(ours), best_time(sharp)
    per_second = {
        "one query at a time": len(few) / slow,
        "theorem6": queries / fast,
        "sharp": queries / best,
    }
    return {
        "queries_per_second": {name: round(value) for name, value in per_second.items()},
        "theorem6_times_faster": round(
            per_second["theorem6"] / per_second["one query at a time"], 1
        ),
        "sharp_times_theorem6": round(per_second["sharp"] / per_second["theorem6"], 2),
        "table_built_s": round(built, 1),
    }


def published(name: str, run: tuple[int, float, float, float]) -> dict[str, object]:
    """Every bound of one published run, its smooth sensitivity, and the gate that would open."""
    queries, threshold, sigma1, delta = run
    votes = np.load(data_folder() / "pate_votes" / f"{name}_250_teachers.npy", allow_pickle=False)
    rows = votes[:queries]
    setting = GaussianSetting(label=Gaussian(40.0), check=Gaussian(sigma1), threshold=threshold)
    unit = Neighbours()
    began = time.perf_counter()
    found = account(rows, setting, delta=delta, neighbours=unit, tables=Table.build, gate=True)
    order = found.figures["sharp"].best_orders[1]
    at = np.array([order])
    batch = Batch.of(
        rows,
        setting.label,
        unit,
        sharp_bound(setting, unit, at, Table.build),
        orders=at,
        checked=True,
    )
    spread = smooth_sensitivity(batch, 250, order, beta=0.3 / order)
    assert found.gate is not None
    return {
        "answered": round(found.answered, 1),
        "epsilon": {bound: round(figures.improved, 3) for bound, figures in found.figures.items()},
        "independent_exact": round(found.figures["independent"].exact or 0.0, 3),
        "gate": round(found.gate.gate.epsilon(delta), 3),
        "cost_and_smooth_sensitivity": [float(batch.cost()[0]), spread.value],
        "seconds": round(time.perf_counter() - began, 1),
    }


def run() -> dict[str, object]:
    """Both sizes, and the published votes."""
    found: dict[str, object] = {"orders": len(ORDERS), "cores": os.cpu_count()}
    for teachers, classes, queries, sigma in SIZES:
        found[f"{teachers}x{classes}"] = speed(teachers, classes, queries, sigma)
    for name, settings in PUBLISHED.items():
        found[name] = published(name, settings)
    return found


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
