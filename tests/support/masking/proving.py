"""Votes, statements and random bytes for tests of proofs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pate.masking.proofs.argument import Prover
from pate.masking.proofs.code import Shape, code_for
from pate.masking.proofs.transcript import Statement

CONTEXT = hashlib.sha256(b"an attempt").digest()
SEED = hashlib.sha256(b"the server's seed").digest()


def byte_source(label: object) -> Callable[[int], bytes]:
    """Random bytes that are the same in every run."""
    drawn = 0

    def random(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{label}/{drawn}".encode()).digest(count)

    return random


def votes_of(queries: int, classes: int, teachers: int, seed: int = 0) -> NDArray[np.int64]:
    rng = np.random.default_rng([queries, classes, teachers, seed])
    each = rng.dirichlet(np.full(classes, 0.5), queries)
    return np.stack([rng.multinomial(teachers, row) for row in each])


def statement(
    queries: int = 30, classes: int = 4, teachers: int = 10, name: str = "mercy", most: int = 0
) -> Statement:
    code = code_for(queries, classes, max(most, teachers))
    return Statement(Shape(queries, classes, teachers, code), CONTEXT, name)


def votes_for(about: Statement, seed: int = 0) -> NDArray[np.int64]:
    return votes_of(about.shape.queries, about.shape.classes, about.shape.teachers, seed)


def prover_of(about: Statement, votes: NDArray[np.int64] | None = None) -> Prover:
    held = votes_for(about) if votes is None else votes
    return Prover(about, held, byte_source(about.name))
