"""Arithmetic, code and tree under the proofs, against plain integers."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from pate.errors import UsageError
from pate.masking.proofs import transcript as tree
from pate.masking.proofs.code import DEGREES, FIELD, Code, Elements, Field, slot_values
from tests.support.masking.proving import byte_source

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
