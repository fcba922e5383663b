"""A proof reveals nothing about the votes: by enumerating all cases of a tiny one.

A transcript is made of the columns of the rows of bits, of three sorts of polynomials, and of what
follows from these by the verifier's own equations (the columns of masks) or is salted or hashed. The
first is counted over all random places of the rows, each of the second over all its masks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from pate.masking.proofs.argument import Prover, verify
from pate.masking.proofs.code import FIELD, Code, Field, Shape
from pate.masking.proofs.transcript import Statement, link_weights, read
from tests.support.masking.proving import CONTEXT, SEED, byte_source, statement

P = 17
TINY = Code(degree=2, columns=1, tests=1, stretch=4, field=Field(P, 3))
#: One query, two teachers, two classes: two bits each, four rows.
ABOUT = Statement(Shape(1, 2, 2, TINY), CONTEXT, "mercy")
VOTES = [np.array([[2, 0]]), np.array([[1, 1]]), np.array([[0, 2]])]


def ordered(*drawn: Sequence[int]) -> Callable[[int], bytes]:
    """Give field elements in the order in which a prover draws them, then salts."""
    waiting: Iterator[Sequence[int]] = iter(drawn)

    def random(count: int) -> bytes:
        values = next(waiting, None)
        if values is None:
            return bytes(count)
        assert count == 16 * len(values)
        return b"".join(value.to_bytes(16, "little") for value in values)

    return random


def proof_of(
    votes: int, hidden: Sequence[int], masks: Sequence[int], zero: int, above: Sequence[int]
) -> tuple[Prover, bytes]:
    prover = Prover(ABOUT, VOTES[votes], ordered(hidden, masks, [zero], above))
    return prover, prover.prove(SEED)


HIDDEN = [(0, 0, 0, 0), (1, 16, 5, 9)]


@pytest.mark.parametrize("votes", range(3))
@pytest.mark.parametrize("hidden", HIDDEN)
def test_each_link_and_each_test_of_codewords_is_as_likely(
    votes: int, hidden: Sequence[int]
) -> None:
    links: Counter[bytes] = Counter()
    nears: Counter[bytes] = Counter()
    for first, second in product(range(P), repeat=2):
        prover, raw = proof_of(votes, hidden, (first, second, second, first), 3, (1, 2))
        proof = read(ABOUT, raw)
        verify(ABOUT, prover.commitment, SEED, raw)
        links[proof.link.tobytes()] += 1
        nears[proof.near.tobytes()] += 1
    assert len(links) == len(nears) == P**2


@pytest.mark.parametrize(("votes", "zeros"), [(0, range(3)), (1, range(2)), (2, range(2))])
def test_each_test_of_counts_that_holds_is_as_likely(votes: int, zeros: range) -> None:
    seen: Counter[bytes] = Counter()
    for zero, first, second in product(zeros, range(P), range(P)):
        _, raw = proof_of(votes, HIDDEN[1], (1, 2, 3, 4), zero, (first, second))
        seen[read(ABOUT, raw).valid.tobytes()] += 1
    # Four coefficients, of which the value at the slot takes one; "zero" runs through the third.
    assert len(seen) == P**2 * len(zeros)


@pytest.mark.parametrize("votes", range(3))
def test_each_column_is_as_likely(votes: int) -> None:
    """By row: random places are drawn apart, so what holds for each row holds for all."""
    shape = ABOUT.shape
    for row in range(shape.rows):
        seen: list[Counter[int]] = [Counter() for _ in range(TINY.length)]
        for value in range(P):
            hidden = [5] * shape.rows
            hidden[row] = value
            prover = Prover(ABOUT, VOTES[votes], ordered(hidden, (1, 2, 3, 4), [0], (1, 2)))
            for place, symbol in enumerate(prover._symbols[:, row].tolist()):
                seen[place][symbol] += 1
        assert all(len(each) == P for each in seen)


# --- the link within the sum -----------------------------------------------------------------


def views(
    votes: tuple[int, int],
    seeds: tuple[bytes, bytes],
    add: Callable[[int, int], int] = lambda a, b: (a + b) % P,
) -> Counter[tuple[int, int, int]]:
    """Count what a server sees of two parties, over all their link masks: links, sum of masks."""
    shape = ABOUT.shape
    weighted = [
        int((link_weights(shape, CONTEXT, seed)[0, :, 0] * VOTES[which][0].astype(np.uint64)).sum())
        for which, seed in zip(votes, seeds, strict=True)
    ]
    return Counter(
        ((weighted[0] + first) % P, (weighted[1] + second) % P, add(first, second))
        for first, second in product(range(P), repeat=2)
    )


def test_links_and_the_sum_of_masks_show_the_sum_of_votes_alone() -> None:
    same = (SEED, SEED)
    # (2, 0) + (0, 2) = (1, 1) + (1, 1) = (0, 2) + (2, 0)
    assert views((0, 2), same) == views((1, 1), same) == views((2, 0), same)
    assert views((0, 0), same) != views((0, 1), same)  # another sum is seen


def test_a_seed_for_each_party_would_show_single_votes() -> None:
    """Why the context fixes the seed."""
    other = (SEED, bytes(32))
    assert len({frozenset(views(votes, other)) for votes in ((0, 2), (1, 1), (2, 0))}) == 3


def test_a_sum_of_masks_that_is_not_modulo_the_prime_would_show_single_votes() -> None:
    """Why link masks are summed modulo the prime and not in the ring of the votes."""
    same = (SEED, SEED)
    seen = [views(votes, same, lambda a, b: a + b) for votes in ((0, 2), (1, 1), (2, 0))]
    assert seen[0] != seen[1]


# --- at full size ----------------------------------------------------------------------------


def test_opened_symbols_are_uniform_at_full_size() -> None:
    """A chi-square test of each kind of symbol; a false alarm has a chance of 1e-6."""
    from scipy import stats

    about = statement(300, 4, 10)
    shape = about.shape
    votes = np.tile([10, 0, 0, 0], (300, 1))
    columns, shown = [], []
    for number in range(4):
        prover = Prover(about, votes, byte_source(f"uniform {number}"))
        proof = read(about, prover.prove(bytes([number]) * 32))
        columns.append(proof.columns)
        shown.append(np.concatenate([proof.near, proof.link]))
    for symbols in (
        np.concatenate(columns)[:, : shape.rows],
        np.concatenate(columns)[:, shape.rows :],
        np.concatenate(shown),
    ):
        counts = np.histogram(symbols, bins=64, range=(0, FIELD.prime))[0]
        assert stats.chisquare(counts).pvalue > 1e-6 / 3


def test_an_open_column_does_not_tell_who_got_the_votes() -> None:
    """Correlation of a row's symbols with a codeword of its votes; false alarm below 1e-6."""
    from scipy import stats

    about = statement(300, 4, 10)
    low = np.zeros((300, 4), np.int64)
    low[:, 0] = 10
    prover = Prover(about, low, byte_source("correlation"))
    proof = read(about, prover.prove(SEED))
    ones = proof.columns[:, 1].astype(float)  # bit 1 of class 0: a one for each query
    none = proof.columns[:, 0].astype(float)  # bit 0: none
    assert stats.ks_2samp(ones, none).pvalue > 1e-6
