"""Secret sharing: any threshold of shares gives the secret, fewer say nothing."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import UsageError
from pate.masking import shamir
from pate.masking.shamir import (
    PRIME,
    combine,
    secret_of,
    split,
    weights,
)
from tests.support.masking.attempts import bytes_from


def test_the_field_is_the_one_of_the_least_prime_above_two_to_the_256() -> None:
    def probably_prime(n: int) -> bool:
        odd = n - 1
        twos = (odd & -odd).bit_length() - 1
        odd >>= twos
        for base in range(2, 60):
            x = pow(base, odd, n)
            if x in (1, n - 1):
                continue
            if not any((x := x * x % n) == n - 1 for _ in range(twos - 1)):
                return False
        return True

    assert [n for n in range(2**256 + 1, PRIME + 1) if probably_prime(n)] == [PRIME]


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret: bytes, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.integers(1, 4096), min_size=1, max_size=20, unique=True))
    threshold = data.draw(st.integers(1, len(points)))
    shares = split(secret, threshold, points, bytes_from(secret))
    assert set(shares) == set(points)
    chosen = data.draw(st.permutations(points))[:threshold]
    assert secret_of(combine([shares[each] for each in chosen], weights(chosen))) == secret
    # Every other share lies on the same polynomial.
    for point in points:
        assert combine([shares[each] for each in chosen], weights(chosen, point)) == shares[point]


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(2, 8), st.integers(1, 2**255))
def test_a_wrong_share_gives_another_secret(secret: bytes, threshold: int, by: int) -> None:
    shares = split(secret, threshold, range(1, threshold + 1), os.urandom)
    shares[threshold] = (shares[threshold] + by) % PRIME
    found = combine(list(shares.values()), weights(list(shares)))
    assert found != int.from_bytes(secret, "little")


def test_a_value_of_more_than_32_bytes_is_no_secret() -> None:
    assert secret_of(PRIME - 1) is None
    with pytest.raises(UsageError, match="same point"):
        weights([1, 1])


def test_fewer_shares_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the field of 7 elements, over all polynomials, two of three shares are uniform.

    The secret is in the lowest byte; coefficients are drawn as one byte below 7 each.
    """
    monkeypatch.setattr(shamir, "PRIME", 7)
    monkeypatch.setattr(shamir, "_DRAWN", 1)
    seen: dict[int, Counter[tuple[int, int]]] = {}
    for secret in range(7):
        seen[secret] = Counter()
        for coefficients in product(range(7), repeat=2):
            drawn = partial(lambda to, _: bytes(to), coefficients)
            shares = split(bytes([secret]) + bytes(31), 3, [1, 3, 6], drawn)
            seen[secret][shares[1], shares[6]] += 1
    uniform = Counter(dict.fromkeys(product(range(7), repeat=2), 1))
    assert all(each == uniform for each in seen.values())


@pytest.mark.parametrize(
    ("secret", "threshold", "points"),
    [
        (bytes(31), 1, [1]), (bytes(33), 1, [1]), (bytes(32), 0, [1]), (bytes(32), 3, [1, 2]),
        (bytes(32), 2, [0, 1]), (bytes(32), 2, [1, 1]), (bytes(32), 2, [-1, 1]),
        (bytes(32), 2, [1, 2**32]),
    ],
)  # fmt: skip
def test_sharings_that_cannot_be_are_refused(
    secret: bytes, threshold: int, points: list[int]
) -> None:
    with pytest.raises(UsageError):
        split(secret, threshold, points, os.urandom)
