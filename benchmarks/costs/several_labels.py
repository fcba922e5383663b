"""Several labels by teachers: noise and quality at equal epsilon, one release beside other ways to ask.

300 linear teachers learn ten labels, of which a made-up record has two or three, and cast at each of 200
queries the labels that they predict, at most T of them. For each way the noise is the least with which all
200 x 10 answers cost epsilon at delta 1e-5, for one record added or removed, by data-independent accounting:

* **one release**: all counts with one joint bound, min(2T, 10) a query in squares (``--aggregator gnmax
  --answer labels-T``); T = 10 is Binary voting, charged jointly.
* **published, T**: the same bound as Dziedzic et al. (PoPETs 2023) have it, 2T a query, by Renyi divergences
  of integer and half orders and the conversion log(1/delta)/(order - 1).
* **published, Binary**: one GNMax of two classes, yes and no, for each label: 2 a label and query, with the
  same conversion. Its noise is on two counts; what is shown is the noise of the same lead on the yes votes.
* **a campaign a label**: ten releases of one label, each with a tenth of epsilon and of delta.

Macro AUC is of the noisy counts, F1 of labels whose noisy count reaches half of the teachers, both against
the true labels of the queries, over ten draws of noise.

``python -m benchmarks.costs.several_labels [--out DIR]``. A minute on one core. Noise is seeded and gives no
protection.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import f1_score, roc_auc_score

from benchmarks.costs import add_out, publish
from party.teachers.linear import Linear
from party.teachers.several import Several, votes_of
from pate.data.values import Dataset, Table
from pate.mechanisms.least_noise import least_share

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

TEACHERS, QUERIES, LABELS, COLUMNS, EACH = 300, 200, 10, 8, 60
EPSILONS, DELTA = (1.0, 2.0, 4.0), 1e-5
CLIPS: Final = (1, 2, 3, 5)
_DRAWS: Final = 10
#: Renyi orders of the published code.
_ORDERS: Final = np.concatenate([np.arange(2, 100, 0.5), np.logspace(2, 3, 200)])


def records(number: int, seed: int) -> Dataset:
    """Return records whose labels are directions of their columns, two or three each."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(number, COLUMNS))
    directions = np.random.default_rng(0).normal(size=(COLUMNS, LABELS))
    score = values @ directions / math.sqrt(COLUMNS) + 0.3 * rng.normal(size=(number, LABELS))
    columns = tuple(np.ascontiguousarray(each) for each in values.T)
    names = tuple(f"l{at}" for at in range(LABELS))
    table = Table(tuple(f"x{at}" for at in range(COLUMNS)), columns)
    return Dataset(table, np.zeros(number, dtype=np.int64), names, None, score > 0.65)


def published_epsilon(sigma: float, squared: float) -> float:
    """Return epsilon by Renyi divergences, as the published code converts them.

    Args:
        sigma: standard deviation of the noise on a count.
        squared: squared L2 distance of neighbours, over all queries.
    """
    divergence = _ORDERS * squared / (2 * sigma**2)
    return float((divergence + math.log(1 / DELTA) / (_ORDERS - 1)).min())


def published_sigma(epsilon: float, squared: float) -> float:
    """Return the least noise with which :func:`published_epsilon` is at most epsilon."""
    low, high = 0.01, 1e6
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (
            (low, middle) if published_epsilon(middle, squared) <= epsilon else (middle, high)
        )
    return high


def joint_sigma(epsilon: float, delta: float, most: int, labels: int) -> float:
    """Return the least noise of one release of all counts."""
    code = f"each-{QUERIES} labels-{most}-of-{labels}"
    return float(least_share(epsilon, delta, 1, 1, code))


def ways(epsilon: float) -> Iterator[tuple[str, int, float]]:
    """Yield the name of each way, the labels of a teacher that count, and the noise on a count."""
    for most in (*CLIPS, LABELS):
        name = f"one release, T = {most}" + (" (Binary)" if most == LABELS else "")
        yield name, most, joint_sigma(epsilon, DELTA, most, LABELS)
    for most in CLIPS:
        yield f"published, T = {most}", most, published_sigma(epsilon, QUERIES * 2 * most)
    both = published_sigma(epsilon, QUERIES * LABELS * 2)
    yield "published, Binary", LABELS, both / math.sqrt(2)
    alone = joint_sigma(epsilon / LABELS, DELTA / LABELS, 1, 1)
    yield "a campaign a label", LABELS, alone


def quality(votes: Whole, truth: NDArray[np.bool_], sigma: float, seed: int) -> tuple[float, float]:
    """Return macro AUC and micro F1 of noisy counts."""
    rng = np.random.default_rng(seed)
    areas, scores = [], []
    for _ in range(_DRAWS if sigma else 1):
        noisy = votes + np.rint(rng.normal(scale=sigma, size=votes.shape))
        areas.append(roc_auc_score(truth, noisy, average="macro"))
        scores.append(f1_score(truth, noisy >= TEACHERS / 2, average="micro"))
    return float(np.mean(areas)), float(np.mean(scores))


def run() -> dict[str, object]:
    """Return the table: noise, macro AUC and F1 of each way at each epsilon."""
    private, queries = records(TEACHERS * EACH, 1), records(QUERIES, 2)
    assert queries.answers is not None  # made above
    truth = queries.answers.astype(np.bool_)
    kind = Several(Linear())
    members = [
        kind.fit(private.take(range(at * EACH, (at + 1) * EACH)), at) for at in range(TEACHERS)
    ]
    votes = {most: votes_of(members, queries.inputs, LABELS, most) for most in (*CLIPS, LABELS)}
    rows: list[dict[str, object]] = []
    for most, counts in votes.items():
        area, score = quality(counts, truth, 0.0, 0)
        rows.append({"way": f"no noise, T = {most}", "macro_auc": area, "f1": score})
    for epsilon in EPSILONS:
        for name, most, sigma in ways(epsilon):
            area, score = quality(votes[most], truth, sigma, 3)
            rows.append(
                {"way": name, "epsilon": epsilon, "sigma": sigma, "macro_auc": area, "f1": score}
            )
    return {
        "setting": {
            "teachers": TEACHERS, "queries": QUERIES, "labels": LABELS, "delta": DELTA,
            "labels_of_a_query": float(truth.sum(axis=1).mean()),
        },
        "rows": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_out(parser)
    publish(run(), parser.parse_args().out, "several_labels")


if __name__ == "__main__":
    main()
