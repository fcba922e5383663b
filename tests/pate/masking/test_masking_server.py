"""The server's side of a masked sum, and the secret sharing under it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import ProtocolError, UsageError
from pate.masking import masks, shamir
from pate.masking.masks import MOST_TRIES, _choices
from pate.masking.shamir import (
    PRIME,
    UnmaskingShares,
    combine,
    from_bytes,
    secret_of,
    split,
    to_bytes,
    weights,
)
from tests.support.masking.attempts import Attempt, bytes_from, context_for, name_of, party_of

ME, PEER, OTHER = name_of(0), name_of(1), name_of(2)
#: n = 6, t = 4, c = 1.
CONTEXT = context_for(6, 4, 1)
NAMES = CONTEXT.names


def test_an_answer_sent_again_is_no_harm_and_another_one_is_refused() -> None:
    """What no party may send at all, the published vectors have; test_golden_masks.py replays them."""
    attempt = Attempt(CONTEXT)
    server, party = attempt.server, attempt.parties[ME]

    def twice(take: Callable[[str, Any], None], answer: object, other: object) -> None:
        for _ in range(2):
            take(ME, answer)
        with pytest.raises(ProtocolError, match=f"{ME} sent .* a second time"):
            take(ME, other)
        assert server.answered == {ME}

    twice(server.take_keys, party.keys(), party_of(CONTEXT, ME, instance=1).keys())
    attempt.announce(NAMES)
    boxes = party.shares(server.keys_for(ME))
    twice(server.take_boxes, boxes, boxes | {PEER: boxes[OTHER]})
    attempt.share(NAMES)
    packed = party.mask(server.boxes_for(ME), attempt.values[ME])
    for wrong in (packed[:-1], b""):
        with pytest.raises(ProtocolError, match="12 are expected"):
            server.take_masked(ME, wrong)
    twice(server.take_masked, packed, packed[::-1])
    attempt.vote(NAMES)
    attempt.agree(NAMES)
    attempt.open(NAMES)
    assert (server.result() == attempt.expected(NAMES)).all()


def test_answers_of_another_phase_or_after_a_missed_one_are_refused() -> None:
    attempt = Attempt(CONTEXT)
    attempt.announce(NAMES[:5])
    server = attempt.server
    with pytest.raises(ProtocolError, match=r"keys of .*, while the server waits for shares"):
        server.take_keys(NAMES[5], attempt.parties[NAMES[5]].keys())
    with pytest.raises(ProtocolError, match="missed a phase"):
        server.take_boxes(NAMES[5], {})
    with pytest.raises(ProtocolError, match="missed a phase"):
        server.keys_for(NAMES[5])
    with pytest.raises(ProtocolError, match="waits for shares"):
        server.boxes_for(ME)
    assert server.awaited == set(NAMES[:5])


def opened(attempt: Attempt, voters: int) -> dict[str, UnmaskingShares]:
    """Go on to the openings, and return them untaken."""
    attempt.announce(NAMES)
    attempt.share(NAMES)
    attempt.vote(NAMES[:voters])
    attempt.agree(NAMES[:voters])
    return {
        name: attempt.parties[name].unmask(attempt.server.signatures) for name in NAMES[:voters]
    }


def test_an_opening_with_both_shares_of_a_party_is_none() -> None:
    with pytest.raises(ProtocolError, match=f"both the seed and the key of {PEER}"):
        UnmaskingShares({PEER: bytes(33)}, {PEER: bytes(33)}).check(ME)


def off_by_one(shares: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: to_bytes((from_bytes(share, "it") + 1) % PRIME) for name, share in shares.items()}


def lying(opening: UnmaskingShares) -> UnmaskingShares:
    return UnmaskingShares(off_by_one(opening.seed_shares), off_by_one(opening.key_shares))


@pytest.mark.parametrize("liar", NAMES[:5])
def test_one_wrong_opening_is_done_without_and_named(liar: str) -> None:
    attempt = Attempt(CONTEXT)
    openings = opened(attempt, 5)
    for name, opening in openings.items():
        attempt.server.take_unmasking(name, lying(opening) if name == liar else opening)
    attempt.server.advance()
    assert (attempt.server.result() == attempt.expected(NAMES[:5])).all()
    assert {holder for _, holder in attempt.server.faults} <= {liar}
    # The shares of who comes last are not needed, and not looked at.
    assert bool(attempt.server.faults) == (liar != NAMES[4])


def test_wrong_openings_without_shares_to_spare_leave_no_sum() -> None:
    attempt = Attempt(CONTEXT)
    openings = opened(attempt, 5)
    for name in NAMES[:4]:
        attempt.server.take_unmasking(
            name, lying(openings[name]) if name == PEER else openings[name]
        )
    with pytest.raises(ProtocolError, match=f"the 4 shares of the seed of {ME} do not give it"):
        attempt.server.advance()
    with pytest.raises(ProtocolError, match="no sum yet"):
        attempt.server.result()
    # One more share, and there is one.
    attempt.server.take_unmasking(NAMES[4], openings[NAMES[4]])
    attempt.server.advance()
    assert (attempt.server.result() == attempt.expected(NAMES[:5])).all()


def test_what_tries_may_cost_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One try more would find the seed: with no work to spare for it, there is no sum."""
    monkeypatch.setattr(masks, "MOST_WORK", 0)
    attempt = Attempt(CONTEXT)
    openings = opened(attempt, 5)
    for name in NAMES[:5]:
        attempt.server.take_unmasking(
            name, lying(openings[name]) if name == PEER else openings[name]
        )
    with pytest.raises(ProtocolError, match="do not give it back"):
        attempt.server.advance()


def test_a_party_that_dealt_wrong_shares_is_named() -> None:
    """It shares another seed than the one it is committed to."""
    attempt = Attempt(CONTEXT)
    attempt.announce(NAMES)
    own = attempt.parties[PEER]._own
    assert own is not None
    attempt.parties[PEER]._own = replace(own, seed=bytes(32))
    attempt.share(NAMES)
    attempt.vote(NAMES)
    attempt.agree(NAMES)
    with pytest.raises(ProtocolError, match=f"seed of {PEER} do not give it back: {PEER} dealt"):
        attempt.open(NAMES)


def test_only_those_that_signed_are_asked_to_open() -> None:
    attempt = Attempt(CONTEXT)
    attempt.announce(NAMES)
    attempt.share(NAMES)
    attempt.vote(NAMES)
    attempt.agree(NAMES[:4])
    assert attempt.server.awaited == set(NAMES[:4])
    assert set(attempt.server.signatures) == set(NAMES[:4])


def test_a_signature_over_another_list_is_refused() -> None:
    attempt = Attempt(CONTEXT)
    attempt.announce(NAMES)
    attempt.share(NAMES)
    attempt.vote(NAMES)
    with pytest.raises(ProtocolError, match=f"not signed by {ME}: it saw another list"):
        attempt.server.take_signature(ME, attempt.parties[ME].sign_survivors(NAMES[:5]))
    assert not attempt.server.answered


def test_a_result_cannot_be_changed_from_outside() -> None:
    attempt = Attempt(CONTEXT)
    found = attempt.run()
    found += 1
    np.testing.assert_array_equal(attempt.server.result(), attempt.expected(NAMES))


def test_choices_of_shares_are_many_and_bounded() -> None:
    holders = [name_of(number) for number in range(60)]
    chosen = list(_choices(holders[:5], 3))
    assert len(chosen) == len(set(chosen)) == 10  # all there are
    assert len(list(_choices(holders, 30))) == MOST_TRIES
    # Any two liars among 42 with 40 needed are left out by one of the choices.
    left_out = [
        set(range(42)) - set(map(holders.index, each)) for each in _choices(holders[:42], 40)
    ]
    for pair in ({0, 1}, {0, 41}, {20, 39}, {38, 39}, {40, 41}):
        assert any(pair <= each for each in left_out)


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
