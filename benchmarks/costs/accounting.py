"""``python -m benchmarks.costs.accounting``: speed of the accountant.

Speeds are compared within one run with a straightforward implementation of the 2018 algorithm: one
query at a time, its orders at once in numpy.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr

from benchmarks.costs import main_of
from pate.accounting.arrays import Floats
from pate.accounting.bounds import outlier, theorem6
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.theorem6_plus import Table
from pate.votes import Counts

#: (teachers, classes, queries, sigma)
SIZES = ((250, 10, 100_000, 40.0), (5000, 150, 20_000, 100.0))
ORDERS = np.concatenate((np.arange(1.5, 26.5, 0.5), np.arange(27.0, 77.0)))
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


def run(*, quick: bool = False) -> dict[str, object]:
    """Measure both sizes, or with ``quick`` the first with few queries."""
    found: dict[str, object] = {"orders": len(ORDERS), "cores": os.cpu_count()}
    for teachers, classes, queries, sigma in SIZES[:1] if quick else SIZES:
        found[f"{teachers}x{classes}"] = speed(
            teachers, classes, NAIVE_QUERIES if quick else queries, sigma
        )
    return found


if __name__ == "__main__":
    main_of(__doc__, "accounting", run)
