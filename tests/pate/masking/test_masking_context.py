"""The common context of a masked sum: invalid ones cannot be built, and each field is in the digest."""

from __future__ import annotations

import numpy as np
import pytest

from pate.errors import ProtocolError, UsageError
from pate.masking.context import MOST_MEMBERS, VERSION, Member, check_threshold, threshold_for
from pate.masking.encoding import encode
from pate.masking.ring import ChaChaStream, Ring, centred
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


@pytest.mark.parametrize(
    ("change", "otherwise"),
    [
        ({"version": VERSION + 1}, f"version {VERSION + 1} of masked sums"),
        ({"campaign": bytes(15)}, "campaign id of a masked sum has 15 bytes"),
        ({"attempt": bytes(17)}, "attempt id of a masked sum has 17 bytes"),
        ({"batch": b""}, "batch hash of a masked sum has 0 bytes"),
        ({"terms": "x" * 32}, "terms hash of a masked sum is str"),
        ({"members": MEMBERS[::-1]}, "not sorted"),
        ({"members": (*MEMBERS, MEMBERS[4])}, "a name twice"),
        ({"members": (*MEMBERS, Member("z", MEMBERS[0].identity))}, "have one identity"),
        ({"members": ()}, "t cannot be more than n"),
        ({"rows": 0}, "over 0 queries"),
        ({"rows": True}, "over True queries"),
        ({"classes": -1}, "over -1 classes"),
        ({"rows": 2**20, "classes": 2**20}, "too many for one masked sum"),
        ({"bits": 7}, "8, 16 or 32 bits, got 7"),
        ({"bits": 64}, "8, 16 or 32 bits, got 64"),
        ({"threshold": 3}, "2t must be more than n"),
        ({"threshold": 6}, "t cannot be more than n"),
        ({"colluders": 3}, "t - c must be at least 2"),
        ({"colluders": -1}, "c cannot be negative"),
        ({"threshold": 4.0}, "threshold must be a whole number"),
    ],
)
def test_contexts_that_cannot_be_are_refused(change: dict[str, object], otherwise: str) -> None:
    with pytest.raises(ProtocolError, match=otherwise):
        changed(CONTEXT, **change)


def test_rosters_are_bounded() -> None:
    crowd = tuple(
        Member(f"{number:05d}", number.to_bytes(32, "little")) for number in range(MOST_MEMBERS + 1)
    )
    with pytest.raises(ProtocolError, match="at most 4096 can mask"):
        changed(CONTEXT, members=crowd)


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "a\x00"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="cannot be a party's name"):
        Member(name, bytes(32))


def test_identities_have_32_bytes() -> None:
    with pytest.raises(ProtocolError, match="identity of x has 31 bytes"):
        Member("x", bytes(31))


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


def test_the_mask_stream_is_chacha20_as_published() -> None:
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter of zeros."""
    block = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    stream = ChaChaStream(Ring(8))
    assert stream(bytes(32), 32).tobytes() == block
    wide = ChaChaStream(Ring(32))(bytes(32), 8)
    assert wide.tolist() == [int.from_bytes(block[at : at + 4], "little") for at in range(0, 32, 4)]
