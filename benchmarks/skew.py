"""The effect of skewed parties on teachers' ensembles and on neighbour votes, on MNIST.

20,000 training images are dealt to 5 or 20 parties, evenly or with Dirichlet label skew (alpha 1 and 0.1);
3,000 test images are the public set, whose true labels are the reference. Both ways to vote cost epsilon 1 at
delta 1e-5 for one record, by data-independent accounting:

* **teachers**: ridge regression on scattering features of each of 240 shards, k of each party alike. Epsilon
  1 buys 50 labels of GNMax at sigma 37.3; their accuracy is measured over all 3,000 queries. For comparison:
  the answers of Confident-GNMax with the default shares of M, and its number of queries for epsilon 1, also
  by the sharp data-dependent bound.
* **teachers who may abstain**: one whose shard lacks classes votes only where the query is as near to
  a record of its shard as nine in ten of these are to one another. Elsewhere its vote goes to the
  class (number of the teacher + a public hash of the query) mod m. Such votes spread evenly, a row
  still sums to k, and a vote still depends on one shard alone. With 240 and with 1,200 teachers.
* **neighbour votes**: 300 representatives in the default feature space, one matrix; at epsilon 0.2 too. The
  sum over parties does not depend on the split of records, which is checked by comparing the exact matrices.

``python -m benchmarks.skew [--out DIR]``. Needs PATE_TEST_DATA; about five minutes on one core. Noise is
seeded and gives no protection.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.dirichlet import deal
from benchmarks.figures import add_out, publish
from benchmarks.papers.data import mnist
from party.teachers.ridge import fit_ridge
from pate.accounting.account import account
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.composition import Gdp, total_cost
from pate.accounting.units import Neighbours
from pate.features.neighbours import cast_votes, representatives
from pate.features.space import space_over
from pate.mechanisms import ConfidentGNMax, GNMax
from pate.mechanisms.least_noise import clear_margin, least_share
from pate.mechanisms.neighbour import Neighbour
from pate.noise.share_laws import GaussianShares
from pate.noise.simulated import SimulatedNoise
from pate.storage.table_cache import cached_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.mechanisms import Outcome

    Floats = NDArray[np.float32]
    Whole = NDArray[np.int64]

CLASSES: Final = 10
PRIVATE, PUBLIC, QUERIES = 20_000, 3000, 300
ALPHAS: Final = (None, 1.0, 0.1)
PARTIES: Final = (5, 20)
TEACHERS, MANY = 240, 1200
LABELS: Final = 50  # that GNMax sells for the budget
EPSILON, DELTA = 1.0, 1e-5
EPSILONS: Final = (1.0, 0.2)  # of neighbour votes
NEAR: Final = (
    0.9  # share of a shard's records that are at least as near to another as a query must be
)


@dataclass(frozen=True)
class Rows:
    """Private and public images, with labels and truth.

    Attributes:
        records: (n, d) float32, scattering features, that teachers see; unit vectors.
        labels: (n,) of the records.
        public: (q, d) float32, the same features of the public set.
        truth: (q,) labels of the public set.
        near_records: (n, e) float32, the records in the feature space of the neighbour search.
        near_public: (q, e) float32, the public set in that space.
    """

    records: Floats
    labels: Whole
    public: Floats
    truth: Whole
    near_records: Floats
    near_public: Floats


def load(private: int = PRIVATE, public: int = PUBLIC) -> Rows:
    """Return the first test images as the public set, and the requested number of training images."""
    drawn = np.random.default_rng(1).permutation(60_000)[:private]
    records, asked = mnist.read("train").take(drawn), mnist.read("t10k").take(np.arange(public))
    images, queries = records.inputs, asked.inputs
    plain, near = space_over(queries, "scattering"), space_over(queries)
    return Rows(
        plain.embed(images), records.labels, plain.embed(queries), asked.labels,
        near.embed(images), near.embed(queries),
    )  # fmt: skip


def ensemble(
    rows: Rows, party: Whole, parties: int, teachers: int, generator: np.random.Generator
) -> tuple[Whole, Whole]:
    """Return (queries, classes) votes of all teachers: as they are, and where they may abstain."""
    each = teachers // parties
    plain = np.zeros((len(rows.public), CLASSES), dtype=np.int64)
    careful = plain.copy()
    at = np.arange(len(rows.public))
    spread = generator.integers(0, CLASSES, len(at))  # in place of the hash of the query
    for number in range(parties):
        mine = np.flatnonzero(party == number)
        shard = generator.integers(0, each, len(mine))  # as a keyed hash deals them
        for teacher in range(each):
            held = mine[shard == teacher]
            idle = (spread + number * each + teacher) % CLASSES
            answers, near = teach(rows.records[held], rows.labels[held], rows.public)
            plain[at, answers if len(held) else idle] += 1
            careful[at, np.where(near, answers, idle)] += 1
    return plain, careful


def teach(records: Floats, labels: Whole, queries: Floats) -> tuple[Whole, NDArray[np.bool_]]:
    """Return a teacher's answers, and a mask of those that it would give if it may abstain."""
    seen, known = np.unique(labels, return_inverse=True)
    if len(seen) == 0:
        return np.zeros(len(queries), dtype=np.int64), np.zeros(len(queries), dtype=np.bool_)
    answers = np.full(len(queries), seen[0])
    if len(seen) > 1:
        model = fit_ridge(records, known, len(seen))
        answers = seen[(queries @ model[0] + model[1]).argmax(axis=1)]
    if len(seen) == CLASSES:
        return answers, np.ones(len(queries), dtype=np.bool_)
    if len(records) < 3:
        return answers, np.zeros(len(queries), dtype=np.bool_)
    # Features are unit vectors: the nearest has the largest product.
    inside = records @ records.T
    np.fill_diagonal(inside, -1)
    least = np.quantile(inside.max(axis=1), 1 - NEAR)
    return answers, (queries @ records.T).max(axis=1) >= least


def rates(outcomes: Sequence[Outcome], truth: Whole) -> dict[str, object]:
    """Return how many queries were answered and how many labels are right, also per class."""
    labels = np.array([-1 if each.label is None else each.label for each in outcomes])
    given, right = labels >= 0, labels == truth
    by_class = [truth == value for value in range(CLASSES)]
    accuracy = [
        float(right[mine & given].mean()) if (mine & given).any() else None for mine in by_class
    ]
    return {
        "queries": len(truth),
        "answered": float(given.mean()),
        "accuracy": float(right[given].mean()) if given.any() else None,
        "answered_per_class": [
            float(given[mine].mean()) if mine.any() else None for mine in by_class
        ],
        "accuracy_per_class": accuracy,
    }


def of_teachers(votes: Whole, truth: Whole, seed: int) -> dict[str, object]:
    """Return the figures of one ensemble."""
    teachers = int(votes[0].sum())
    second, first = np.sort(votes, axis=1)[:, -2:].T
    gnmax = GNMax(_sigma(LABELS), 1)
    # The shares of M that a campaign takes by default.
    label, check, threshold = (-(-teachers * n // d) for n, d in ((4, 25), (1, 2), (3, 4)))
    confident = ConfidentGNMax(threshold, Fraction(check), Fraction(label), 1)
    return {
        "teachers": teachers,
        "plurality": float((votes.argmax(axis=1) == truth).mean()),
        "median_margin": float(np.median(first - second)),
        "gnmax": {
            "sigma": float(gnmax.sigma), "labels_at_epsilon": LABELS,
            **rates(gnmax.answer_all(votes, SimulatedNoise(seed)), truth),
        },
        "confident": {
            "threshold": threshold, "sigma1": check, "sigma2": label,
            "asked_at_epsilon": int(
                Gdp().budget(EPSILON, DELTA) // total_cost(Gdp(), confident.worst)
            ),
            "asked_at_epsilon_sharp": _asked(votes, confident),
            **rates(confident.answer_all(votes, SimulatedNoise(seed)), truth),
        },
    }  # fmt: skip


def _sigma(labels: int) -> Fraction:
    """Return the least sigma, in 64ths of a vote, with which this many labels cost epsilon 1."""
    budget, cells = Gdp().budget(EPSILON, DELTA), 256  # GDP is proved from sigma 2 on
    while labels * total_cost(Gdp(), GNMax(Fraction(cells, 64), 1).worst) > budget:
        cells += 1
    return Fraction(cells, 64)


def _asked(votes: Whole, mechanism: ConfidentGNMax) -> int:
    """Return how many queries fit epsilon 1 by the sharp data-dependent bound."""
    setting = GaussianSetting(
        label=DiscreteGaussian(float(mechanism.sigma2)),
        check=DiscreteGaussian(float(mechanism.sigma1)),
        threshold=mechanism.threshold,
    )

    def fits(count: int) -> bool:
        found = account(
            votes[:count], setting, delta=DELTA, neighbours=Neighbours(1), tables=cached_table,
            bounds=("sharp",),
        )  # fmt: skip
        return found.figures["sharp"].improved <= EPSILON

    low, high = 0, len(votes) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def of_neighbours(votes: Whole, truth: Whole, epsilon: float, seed: int) -> dict[str, object]:
    """Return the figures of one matrix."""
    sigma = least_share(epsilon, DELTA, 1, 1)
    mechanism = Neighbour(clear_margin(GaussianShares(sigma), 1), sigma, 1)
    return {
        "epsilon": epsilon,
        "sigma": float(sigma),
        "threshold": mechanism.threshold,
        **rates(mechanism.answer_all(votes, SimulatedNoise(seed)), truth),
    }


def one_case(
    rows: Rows, chosen: Whole, seed: int, parties: int, alpha: float | None
) -> dict[str, object]:
    """Return the figures of one split of the records; ``chosen`` are the representatives."""
    generator = np.random.default_rng(seed)
    party = deal(rows.labels, parties, alpha, generator)
    queries, truth, near = rows.near_public[chosen], rows.truth[chosen], rows.near_records
    votes = cast_votes(queries, near, rows.labels, CLASSES)
    total = sum(
        cast_votes(queries, near[party == at], rows.labels[party == at], CLASSES)
        for at in range(parties)
    )
    if not np.array_equal(total, votes):
        raise AssertionError("neighbour votes depend on who holds which record")
    plain, careful = ensemble(rows, party, parties, TEACHERS, generator)
    many, careful_many = ensemble(rows, party, parties, MANY, generator)
    held = [np.unique(rows.labels[party == at]) for at in range(parties)]
    return {
        "parties": parties,
        "alpha": alpha,
        "records": np.bincount(party, minlength=parties).tolist(),
        "classes_held": [len(each) for each in held],
        "teachers": of_teachers(plain, rows.truth, seed),
        "teachers-abstain": of_teachers(careful, rows.truth, seed),
        "many-teachers": of_teachers(many, rows.truth, seed),
        "many-teachers-abstain": of_teachers(careful_many, rows.truth, seed),
        **{
            f"neighbour-{epsilon:g}": of_neighbours(votes, truth, epsilon, seed)
            for epsilon in EPSILONS
        },
    }


def run() -> dict[str, object]:
    """Run all cases and return their figures."""
    began = time.monotonic()
    rows = load()
    chosen = representatives(rows.near_public, QUERIES)
    deals = [(parties, alpha) for parties in PARTIES for alpha in ALPHAS]
    cases = [one_case(rows, chosen, seed, *each) for seed, each in enumerate(deals)]
    return {
        "private": PRIVATE, "public": PUBLIC, "representatives": QUERIES, "epsilon": EPSILON,
        "delta": DELTA, "unit": "record", "cases": cases,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_out(parser)
    out = parser.parse_args().out
    publish(run(), out, "skew")


if __name__ == "__main__":
    main()
