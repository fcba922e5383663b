"""Domains, tables and networks that the tests of synthesis share."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from party.synthesis.network import Network, shapes
from party.synthesis.schema import Attribute, Domain
from pate.data.read import read_inputs
from pate.data.values import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
