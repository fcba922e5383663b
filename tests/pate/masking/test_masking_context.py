"""The common context of a masked sum: invalid ones cannot be built, and each field is in the digest."""

from __future__ import annotations

import numpy as np
import pytest

from pate.errors import ProtocolError, UsageError
from pate.masking.context import MOST_MEMBERS, Member, check_threshold, threshold_for
from pate.masking.encoding import encode
from pate.masking.ring import Ring, centred
from tests.support.masking.attempts import changed, context_for

CONTEXT = context_for(5, 4, 1)
MEMBERS = CONTEXT.roster.members
RENAMED = (*MEMBERS[:4], Member("party_009", MEMBERS[4].identity))
CHANGES: dict[str, object] = {
    "campaign": b"1" * 16, "attempt": b"1" * 16, "batch": b"1" * 32, "terms": b"1" * 32, "rows": 3,
    "classes": 4, "bits": 32, "threshold": 5, "colluders": 2, "members": RENAMED,
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_every_field_is_in_the_digest(field: str) -> None:
    assert changed(CONTEXT, **{field: CHANGES[field]}).digest != CONTEXT.digest


def test_every_part_of_the_roster_is_in_the_digest() -> None:
    other = (*MEMBERS[:4], Member(MEMBERS[4].name, bytes(31) + b"1"))
    digests = {
        changed(CONTEXT, members=members).digest
        for members in (MEMBERS, other, MEMBERS[:4], RENAMED)
    }
    assert len(digests) == 4


def test_exchanged_dimensions_have_another_digest() -> None:
    assert context_for(3, 3, 0, rows=2).digest != context_for(3, 3, 0, rows=3, classes=2).digest


def test_an_encoding_is_of_one_list_alone() -> None:
    lists = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"b", b"a"), (encode("l", b"a"),)]
    assert len({encode("l", *parts) for parts in lists}) == len(lists)
    assert encode("l", b"a") != encode("la")


def test_contexts_that_cannot_be_are_refused() -> None:
    """Beyond the published ones, bad_contexts.json, which test_golden_masks.py replays."""
    changes: tuple[tuple[dict[str, object], str], ...] = (
        ({"terms": "x" * 32}, "terms hash of a masked sum is str"),
        ({"members": ()}, "t cannot be more than n"),
        ({"rows": True}, "over True queries"),
        ({"classes": -1}, "over -1 classes"),
        ({"bits": 64}, "8, 16 or 32 bits, got 64"),
        ({"threshold": 4.0}, "threshold must be a whole number"),
    )
    for change, otherwise in changes:
        with pytest.raises(ProtocolError, match=otherwise):
            changed(CONTEXT, **change)
    for name in ("x" * 65, "a\x00"):
        with pytest.raises(ProtocolError, match="cannot be a party's name"):
            Member(name, bytes(32))
    crowd = tuple(
        Member(f"{number:05d}", number.to_bytes(32, "little")) for number in range(MOST_MEMBERS + 1)
    )
    with pytest.raises(ProtocolError, match="at most 4096 can mask"):
        changed(CONTEXT, members=crowd)


def test_thresholds_are_as_published() -> None:
    """t > 2n/3 and c < n/3, but never with less than two honest parties in a sum."""
    assert [threshold_for(n) for n in (2, 3, 4, 5, 6, 7, 9, 10, 25, 100, 250)] == [
        (2, 0), (3, 0), (3, 1), (4, 1), (5, 1), (5, 2), (7, 2), (7, 3), (17, 8), (67, 33), (167, 83),
    ]  # fmt: skip
    for n in range(2, 300):
        threshold, colluders = threshold_for(n)
        check_threshold(n, threshold, colluders)
        assert 3 * threshold > 2 * n
    for n in range(4, 60):
        for colluders in range(n - 2):
            try:
                threshold, _ = threshold_for(n, colluders)
            except UsageError:
                # Then no threshold is: with everybody in the sum it is the best there is.
                with pytest.raises(UsageError):
                    check_threshold(n, n, colluders)
                continue
            check_threshold(n, threshold, colluders)


@pytest.mark.parametrize(("n", "colluders"), [(1, None), (3, 2), (5, 4), (0, 0)])
def test_rosters_without_a_threshold_are_refused(n: int, colluders: int | None) -> None:
    with pytest.raises(UsageError):
        threshold_for(n, colluders)


@pytest.mark.parametrize("bits", [1, 2, 3, 7, 8, 11, 16, 17, 31, 32])
def test_rings_wrap_at_their_own_width(bits: int) -> None:
    ring = Ring(bits)
    rng = np.random.default_rng(bits)
    one, other = rng.integers(-(2**40), 2**40, (2, 500))
    total = ring.reduce(one)
    assert (total == one % ring.size).all()
    ring.add(total, ring.reduce(other))
    assert (total == (one + other) % ring.size).all()
    ring.subtract(total, ring.reduce(one))
    assert (total == other % ring.size).all()
    packed = ring.pack(total)
    assert len(packed) == ring.packed_bytes(500) == 500 * total.itemsize
    assert (ring.unpack(packed, 500) == total).all()
    signed = centred(total, bits)
    assert ((signed - other) % ring.size == 0).all()
    assert signed.min() >= -(ring.size // 2)
    assert signed.max() < ring.size // 2


def test_extreme_integers_have_their_residues() -> None:
    extremes = np.array([-(2**63), 2**63 - 1])
    assert Ring(16).reduce(extremes).tolist() == [0, 2**16 - 1]


def test_bytes_that_are_no_residues_are_refused() -> None:
    with pytest.raises(ProtocolError, match="3 bytes, 4 are expected"):
        Ring(16).unpack(bytes(3), 2)
    with pytest.raises(ProtocolError, match=r"not a residue modulo 2\^3"):
        Ring(3).unpack(bytes([8]), 1)
    with pytest.raises(UsageError, match="not a residue modulo"):
        centred(np.array([256]), 8)
    for bits in (0, 33, True):
        with pytest.raises(UsageError, match="1 to 32 bits"):
            Ring(bits)


def test_packing_is_little_endian() -> None:
    assert Ring(16).pack(Ring(16).reduce(np.array([[1, 2], [256, -1]]))) == bytes(
        [1, 0, 2, 0, 0, 1, 255, 255]
    )
