"""Domains, tables, networks and small worlds that the tests of synthesis share."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from party.synthesis.network import Network, shapes
from party.synthesis.schema import Attribute, Domain
from pate.data.read import read_inputs
from pate.data.values import Table

SCHEMAS = Path(__file__).parent
_ADULT = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip


def small(sizes: tuple[int, ...] = (3, 3, 4, 2), label: str | None = None) -> Domain:
    """Return a domain whose attributes have two buckets each: the first code, and all others."""
    return Domain(
        tuple(
            Attribute(f"x{at}", tuple("abcdefgh"[:size]), (0, *(1,) * (size - 1)))
            for at, size in enumerate(sizes)
        ),
        10,
        label,
    )


def network(domain: Domain, seed: int = 0) -> Network:
    """Return a network in which each attribute has the two before it as parents."""
    parents = tuple(tuple(range(max(0, i - 2), i)) for i in range(len(domain)))
    rng = np.random.default_rng(seed)
    tables = tuple(rng.dirichlet(np.ones(c), r) for r, c in shapes(domain, parents))
    return Network(domain, tuple(range(len(domain))), parents, tables)


def everything(domain: Domain) -> NDArray[np.intp]:
    """Return every row that the domain has."""
    return np.stack(np.meshgrid(*map(np.arange, domain.sizes), indexing="ij"), axis=-1).reshape(
        -1, len(domain)
    )


def adult(test_data: Path, scratch: Path) -> Table:
    """Return the training rows of Adult with the columns of ``adult_schema.json``."""
    with gzip.open(test_data / "adult" / "adult.data.gz", "rt", newline="") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
    path = scratch / "adult.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([_ADULT, *rows])
    table = read_inputs(path, drop=("fnlwgt", "education"))
    assert isinstance(table, Table)
    return table


Row = tuple[int, ...]
Law = dict[Row | None, Fraction]


@dataclass(frozen=True)
class World:
    """A model over a few attributes, each leaning on the one before it, and a privacy test.

    ``tables[i][p]`` is the law of attribute i given value p of the one before it. ``decay`` is
    exp(-epsilon0), a fraction, so that every probability is one.
    """

    tables: tuple[tuple[tuple[Fraction, ...], ...], ...]
    resampled: tuple[int, ...]
    k: int
    gamma: Fraction
    decay: Fraction

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(table[0]) for table in self.tables)

    @cached_property
    def universe(self) -> list[Row]:
        return list(itertools.product(*(range(size) for size in self.sizes)))

    @cached_property
    def _made(self) -> dict[tuple[Row, Row], Fraction]:
        return {}

    @cached_property
    def _buckets(self) -> dict[Fraction, int]:
        return {}

    def bucket(self, p: Fraction) -> int:
        """The i with gamma^(-1-i) < p <= gamma^-i."""
        if p not in self._buckets:
            i = 0
            while p <= self.gamma ** (-1 - i):
                i += 1
            self._buckets[p] = i
        return self._buckets[p]

    def conditional(self, y: Row, i: int) -> Fraction:
        return self.tables[i][y[i - 1] if i else 0][y[i]]

    def makes(self, d: Row, y: Row) -> Fraction:
        """Pr{y = M(d)}."""
        if (d, y) not in self._made:
            m = len(y)
            total = Fraction(0)
            for omega in self.resampled:
                kept = m - omega
                if d[:kept] == y[:kept]:
                    total += math.prod(
                        (self.conditional(y, i) for i in range(kept, m)), start=Fraction(1)
                    )
            self._made[d, y] = total / len(self.resampled)
        return self._made[d, y]

    def passes(self, plausible: int) -> Fraction:
        """P[k' >= k + Z] for Z of the law P[z] ~ decay^|z| on the integers."""
        below = self.k - plausible
        if below > 0:
            return self.decay**below / (1 + self.decay)
        return 1 - self.decay ** (1 - below) / (1 + self.decay)

    def law(self, data: Counter[Row], coin: Fraction = Fraction(0)) -> Law:
        """What one attempt releases; None for nothing."""
        rows = sum(data.values())
        law: Law = {}
        for y in self.universe:
            buckets: dict[int, tuple[int, Fraction]] = {}
            for d, times in data.items():
                p = self.makes(d, y)
                if p > 0:
                    number, mass = buckets.get(self.bucket(p), (0, Fraction(0)))
                    buckets[self.bucket(p)] = (number + times, mass + times * p)
            law[y] = sum(
                (mass * self.passes(number) / rows for number, mass in buckets.values()),
                start=Fraction(0),
            )
        law[None] = 1 - sum(law.values(), start=Fraction(0))
        return dropped(law, coin) if coin else law

    def network(self) -> Network:
        """The same model as the code under test has it."""
        attributes = tuple(
            Attribute(f"a{i}", tuple(f"c{c}" for c in range(size)), tuple(range(size)))
            for i, size in enumerate(self.sizes)
        )
        return Network(
            Domain(attributes, 1, None),
            tuple(range(len(self.sizes))),
            tuple((i - 1,) if i else () for i in range(len(self.sizes))),
            tuple(np.array(table, dtype=np.float64) for table in self.tables),
        )


def dropped(law: Law, coin: Fraction) -> Law:
    """The law of an attempt whose candidate a coin drops, whatever it is."""
    return {y: (1 - coin) * p + (coin if y is None else 0) for y, p in law.items()}


def needed_delta(law: Law, other: Law, factor: Fraction, *, nothing: bool) -> Fraction:
    """The least delta with P[Y] <= factor P'[Y] + delta for every set Y of outcomes.

    With ``nothing`` the outcome that nothing is released counts as well.
    """
    return sum(
        (
            max(Fraction(0), p - factor * other[y])
            for y, p in law.items()
            if nothing or y is not None
        ),
        start=Fraction(0),
    )


def random_world(draw: random.Random, *, fixed: bool) -> World:
    """18 possible rows; probabilities in eighths, zeros among them."""
    sizes = (2, 3, 3)
    tables = []
    for i, size in enumerate(sizes):
        laws = []
        for _ in range(sizes[i - 1] if i else 1):
            weights = [draw.choice((0, 1, 1, 2, 5, 20)) for _ in range(size)]
            weights[draw.randrange(size)] += 1
            laws.append(tuple(Fraction(w, sum(weights)) for w in weights))
        tables.append(tuple(laws))
    resampled = (draw.randint(1, 3),) if fixed else draw.choice(((1, 2), (2, 3), (1, 3), (1, 2, 3)))
    return World(
        tuple(tables),
        resampled,
        k=draw.randint(2, 4),
        gamma=draw.choice((Fraction(3, 2), Fraction(2), Fraction(4))),
        decay=draw.choice((Fraction(1, 2), Fraction(3, 8), Fraction(7, 8), Fraction(1, 20))),
    )
