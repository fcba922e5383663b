"""Arithmetic, code and tree under the proofs, and that a proof reveals nothing."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
import pytest

from pate.errors import UsageError
from pate.masking.proofs import transcript as tree
from pate.masking.proofs.argument import Prover, verify
from pate.masking.proofs.code import DEGREES, FIELD, Code, Elements, Field, Shape, slot_values
from pate.masking.proofs.transcript import Statement, link_weights, read
from tests.support.masking.proving import CONTEXT, SEED, byte_source, statement

P = FIELD.prime
TINY = Field(97, 5)
SMALL = Code(degree=4, columns=2, tests=2, stretch=4, field=TINY)


def elements(*shape: int, label: object = 0, field: Field = FIELD) -> Elements:
    return field.uniform(byte_source(label), *shape)


def horner(coefficients: Elements, at: int, prime: int) -> int:
    total = 0
    for each in reversed(coefficients.tolist()):
        total = (total * at + each) % prime
    return total


def test_the_prime_is_one_and_its_generator_generates() -> None:
    assert P == 15 * 2**27 + 1
    assert all(P % divisor for divisor in range(2, int(P**0.5) + 1))
    assert all(pow(FIELD.generator, (P - 1) // factor, P) != 1 for factor in (2, 3, 5))


def test_reduction_is_that_of_integers() -> None:
    x = np.array([0, 1, P - 1, P, P + 1, 2**63, 2**64 - 1], np.uint64)
    assert FIELD.mod(x).tolist() == [each % P for each in x.tolist()]
    a, b = np.array([0, 0, P - 1, 5], np.uint64), np.array([0, P - 1, P - 1, 7], np.uint64)
    assert FIELD.minus(a, b).tolist() == [
        (int(each) - int(other)) % P for each, other in zip(a, b, strict=True)
    ]


def test_combinations_do_not_overflow_at_the_largest_values() -> None:
    weights = np.full((2, 2**16 - 1), P - 1, np.uint64)
    rows = np.full((2**16 - 1, 3), P - 1, np.uint64)
    assert np.all(FIELD.combine(weights, rows) == (2**16 - 1) % P)
    with pytest.raises(UsageError, match="too many for one combination"):
        FIELD.combine(np.ones((1, 2**16), np.uint64), np.ones((2**16, 1), np.uint64))


def test_combinations_are_matrix_products() -> None:
    weights, rows = elements(3, 7), elements(7, 5, label=1)
    expected = weights.astype(object) @ rows.astype(object) % P
    assert FIELD.combine(weights, rows).tolist() == expected.tolist()


def test_uniform_elements_are_128_bits_reduced() -> None:
    raw = hashlib.shake_256(b"x").digest(16 * 50) + b"\xff" * 16
    found = FIELD.reduce(raw).tolist()
    assert found == [
        int.from_bytes(raw[at : at + 16], "little") % P for at in range(0, len(raw), 16)
    ]
    with pytest.raises(UsageError, match="random bytes gave 15"):
        FIELD.uniform(lambda _: bytes(15), 1)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_a_transform_is_the_values_at_the_powers_of_a_root(n: int) -> None:
    x, root = elements(3, n), FIELD.root(n)
    assert pow(root, n, P) == 1
    assert pow(root, n // 2, P) == P - 1
    expected = [[horner(row, pow(root, j, P), P) for j in range(n)] for row in x]
    assert FIELD.transform(x, root).tolist() == expected


@pytest.mark.parametrize("code", [SMALL, Code(512)])
def test_rows_come_back_from_their_values(code: Code) -> None:
    values = elements(5, code.degree, field=code.field)
    rows = code.interpolate(values)
    assert np.array_equal(code.values(rows), values)
    words = code.encode(rows)
    assert words.shape == (5, code.length)
    doubled = code.interpolate_coset(words[:, :: code.stretch // 2])
    assert np.array_equal(doubled[:, : code.degree], rows)
    assert not doubled[:, code.degree :].any()
    assert np.array_equal(slot_values(code, doubled), values[:, : code.slots])


def test_a_codeword_is_the_values_on_a_coset() -> None:
    rows, prime = elements(2, 4, field=TINY), TINY.prime
    root = TINY.root(SMALL.length)
    points = [5 * pow(root, j, prime) % prime for j in range(SMALL.length)]
    expected = [[horner(row, point, prime) for point in points] for row in rows]
    assert SMALL.encode(rows).tolist() == expected


@pytest.mark.parametrize("code", [SMALL, *map(Code, DEGREES)])
def test_no_symbol_is_the_value_at_a_slot(code: Code) -> None:
    """Otherwise an opened column would show counts."""
    field = code.field
    shifted = field.powers(field.root(code.length), code.length) * np.uint64(field.generator)
    symbols = set(field.mod(shifted).tolist())
    slots = set(field.powers(field.root(2 * code.degree), 2 * code.degree).tolist())
    assert len(symbols) == code.length
    assert len(slots) == 2 * code.degree
    assert not symbols & slots


def test_any_opened_symbols_are_uniform_whatever_the_data() -> None:
    """By counting: two symbols of a row with two random places take each pair of values once."""
    prime = TINY.prime
    every = np.stack(np.meshgrid(np.arange(prime), np.arange(prime)), axis=-1).reshape(-1, 2)
    for data in ([0, 0], [1, 0], [96, 5]):
        values = np.concatenate([np.tile(data, (prime**2, 1)), every], axis=1).astype(np.uint64)
        words = SMALL.encode(SMALL.interpolate(values))
        for i in range(SMALL.length):
            for j in range(i):
                pairs = words[:, i] * np.uint64(prime) + words[:, j]
                assert len(np.unique(pairs)) == prime**2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Code(500), lambda: Code(512, columns=512), lambda: Code(512, columns=0),
        lambda: Code(512, stretch=2), lambda: Code(512, tests=0), lambda: Code(2**27),
        lambda: Field(2**31 + 11, 2), lambda: FIELD.root(7),
    ],
)  # fmt: skip
def test_codes_that_cannot_be_are_refused(make: object) -> None:
    with pytest.raises(UsageError):
        make()  # type: ignore[operator]


def test_every_leaf_leads_to_the_root() -> None:
    leaves = [tree.leaf(bytes(32), place, bytes(32), b"column") for place in range(8)]
    assert len(set(leaves)) == 8  # the place is in them
    levels = tree.grow(leaves)
    assert levels[-1] == [levels[-1][0]]
    for place, leaf in enumerate(leaves):
        siblings = tree.path(levels, place)
        assert tree.climb(leaf, place, siblings) == levels[-1][0]
        assert tree.climb(leaf, place ^ 1, siblings) != levels[-1][0]
        assert tree.climb(leaves[place - 1], place, siblings) != levels[-1][0]
    with pytest.raises(ValueError, match="zip"):
        tree.grow(leaves[:7])


def test_leaves_and_nodes_are_hashed_apart() -> None:
    left, right = tree.leaf(bytes(32), 0, bytes(32), b"a"), tree.leaf(bytes(32), 1, bytes(32), b"b")
    root = tree.grow([left, right])[-1][0]
    assert root == hashlib.sha256(b"\1" + left + right).digest()
    assert left == hashlib.sha256(b"\0" + bytes(32) + bytes(4) + bytes(32) + b"a").digest()


PRIME = 17
TINY_FIELD = Code(degree=2, columns=1, tests=1, stretch=4, field=Field(PRIME, 3))
#: One query, two teachers, two classes: two bits each, four rows.
ABOUT = Statement(Shape(1, 2, 2, TINY_FIELD), CONTEXT, "mercy")
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
    for first, second in product(range(PRIME), repeat=2):
        prover, raw = proof_of(votes, hidden, (first, second, second, first), 3, (1, 2))
        proof = read(ABOUT, raw)
        if first == second:
            verify(ABOUT, prover.commitment, SEED, raw)
        links[proof.link.tobytes()] += 1
        nears[proof.near.tobytes()] += 1
    assert len(links) == len(nears) == PRIME**2


@pytest.mark.parametrize(("votes", "zeros"), [(at, range(2)) for at in range(3)])
def test_each_test_of_counts_that_holds_is_as_likely(votes: int, zeros: range) -> None:
    seen: Counter[bytes] = Counter()
    for zero, first, second in product(zeros, range(PRIME), range(PRIME)):
        _, raw = proof_of(votes, HIDDEN[1], (1, 2, 3, 4), zero, (first, second))
        seen[read(ABOUT, raw).valid.tobytes()] += 1
    # Four coefficients, of which the value at the slot takes one; "zero" runs through the third.
    assert len(seen) == PRIME**2 * len(zeros)


@pytest.mark.parametrize("votes", range(3))
def test_each_column_is_as_likely(votes: int) -> None:
    """By row: random places are drawn apart, so what holds for each row holds for all."""
    shape = ABOUT.shape
    for row in range(shape.rows):
        seen: list[Counter[int]] = [Counter() for _ in range(TINY_FIELD.length)]
        for value in range(PRIME):
            hidden = [5] * shape.rows
            hidden[row] = value
            prover = Prover(ABOUT, VOTES[votes], ordered(hidden, (1, 2, 3, 4), [0], (1, 2)))
            for place, symbol in enumerate(prover._symbols[:, row].tolist()):
                seen[place][symbol] += 1
        assert all(len(each) == PRIME for each in seen)


# --- the link within the sum -----------------------------------------------------------------


def views(
    votes: tuple[int, int],
    seeds: tuple[bytes, bytes],
    add: Callable[[int, int], int] = lambda a, b: (a + b) % PRIME,
) -> Counter[tuple[int, int, int]]:
    """Count what a server sees of two parties, over all their link masks: links, sum of masks."""
    shape = ABOUT.shape
    weighted = [
        int((link_weights(shape, CONTEXT, seed)[0, :, 0] * VOTES[which][0].astype(np.uint64)).sum())
        for which, seed in zip(votes, seeds, strict=True)
    ]
    return Counter(
        ((weighted[0] + first) % PRIME, (weighted[1] + second) % PRIME, add(first, second))
        for first, second in product(range(PRIME), repeat=2)
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
