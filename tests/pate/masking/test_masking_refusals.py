"""A malicious server: no context is built from it, and the party refuses and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pate.errors import ProtocolError, QuorumError, RefusedError, UsageError
from pate.masking.announced import sign_keys, survivors_to_sign
from pate.masking.context import (
    MOST_MEMBERS,
    Context,
    Member,
    Phase,
    check_threshold,
    threshold_for,
)
from pate.masking.encoding import encode
from pate.masking.keys import _LOW_ORDER, KeyPair, Keys
from pate.masking.party import PartyMasking
from pate.masking.ring import Ring, centred
from tests.support.masking.attempts import (
    Attempt,
    bytes_from,
    changed,
    context_for,
    identity_of,
    name_of,
    party_of,
)

ME, PEER, OTHER = name_of(0), name_of(1), name_of(2)
#: n = 6, t = 4, c = 1: two may be missing.
CONTEXT = context_for(6, 4, 1)
NAMES = CONTEXT.names


def attempt_at(phase: Phase, missing_votes: int = 0) -> Attempt:
    """An attempt in which all parties have answered all phases before ``phase``."""
    attempt = Attempt(CONTEXT)
    voters = NAMES[: len(NAMES) - missing_votes]
    steps: list[Callable[[], object]] = [
        lambda: attempt.announce(NAMES),
        lambda: attempt.share(NAMES),
        lambda: attempt.vote(voters),
        lambda: attempt.agree(voters),
    ]
    order: list[Phase] = [each for each in Phase if each is not Phase.PROOFS]
    for step in steps[: order.index(phase)]:
        step()
    return attempt


def me(attempt: Attempt) -> PartyMasking:
    return attempt.parties[ME]


def signed(context: Context, name: str, keys: Keys) -> Keys:
    """Keys as the party ``name`` itself would sign them."""
    return sign_keys(context, name, identity_of(name), keys)


# --- keys --------------------------------------------------------------------------------


def announced_keys() -> dict[str, Keys]:
    return {name: party_of(CONTEXT, name).keys() for name in NAMES}


def fresh(name: str, context: Context = CONTEXT) -> Keys:
    return party_of(context, name, instance="other").keys()


#: Beyond the published vectors, which test_golden_masks.py replays.
KEY_ATTACKS: dict[str, tuple[Callable[[dict[str, Keys]], dict[str, Keys]], str]] = {
    "the server's own share key for a peer": (
        lambda keys: {PEER: replace(keys[PEER], share_key=fresh(PEER).share_key)},
        f"keys of {PEER} are not signed",
    ),
    "both keys exchanged": (
        lambda keys: {
            PEER: replace(keys[PEER], mask_key=keys[PEER].share_key, share_key=keys[PEER].mask_key)
        },
        f"keys of {PEER} are not signed",
    ),
    "keys of the same attempt over other rows": (
        lambda _: {PEER: fresh(PEER, context_for(6, 4, 1, rows=3))},
        f"keys of {PEER} are not signed",
    ),
    "a colluder that announces my share key as its mask key": (
        lambda keys: {
            OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], mask_key=keys[ME].share_key))
        },
        f"{ME} and {OTHER} announced the same key",
    ),
}


@pytest.mark.parametrize("attack", sorted(KEY_ATTACKS))
def test_keys_are_refused(attack: str) -> None:
    change, otherwise = KEY_ATTACKS[attack]
    party = party_of(CONTEXT, ME)
    party.keys()
    keys = announced_keys()
    with pytest.raises(ProtocolError, match=otherwise):
        party.shares(keys | change(keys))
    assert party.phase is Phase.SHARES
    assert len(party.shares(keys)) == 5  # and nothing was spoiled


def test_low_order_is_known_by_a_list_and_by_the_secret_itself() -> None:
    """The list is right: the library finds no secret with any of its points."""
    for point in _LOW_ORDER:
        with pytest.raises(ProtocolError, match=f"key of {PEER} is a point of low order"):
            KeyPair(bytes(range(32))).agree(point.to_bytes(32, "little"), PEER)
    # And it is whole: 0 of order 2, 1 and -1 of order 4, two of order 8.
    assert len(_LOW_ORDER) == 5


def test_a_party_that_is_not_the_roster_s_takes_no_part() -> None:
    with pytest.raises(ProtocolError, match="identity that is not this party's"):
        PartyMasking(CONTEXT, name=ME, identity=identity_of(PEER), random=bytes_from(0))
    with pytest.raises(ProtocolError, match="'mallory' in this party's own place"):
        PartyMasking(CONTEXT, name="mallory", identity=identity_of(ME), random=bytes_from(0))


def test_a_short_random_source_is_refused() -> None:
    party = PartyMasking(
        CONTEXT, name=ME, identity=identity_of(ME), random=lambda count: bytes(count - 1)
    )
    with pytest.raises(UsageError, match="gave 31 instead of 32"):
        party.keys()


# --- boxes -------------------------------------------------------------------------------


def test_boxes_under_other_announced_keys_do_not_open() -> None:
    """The server leaves one party out of what it shows to another: their views do not meet."""
    attempt = attempt_at(Phase.SHARES)
    every = attempt.server.keys_for(ME)
    boxes = {name: attempt.parties[name].shares(every) for name in NAMES[1:]}
    me(attempt).shares({name: every[name] for name in NAMES[:5]})
    with pytest.raises(ProtocolError, match=f"box from {PEER} to {ME} does not open"):
        me(attempt).mask({name: boxes[name][ME] for name in NAMES[1:5]}, attempt.values[ME])


@pytest.mark.parametrize("shape", [(3, 2), (6,), (2, 2), (2, 3, 1)])
def test_values_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    attempt = attempt_at(Phase.MASKED)
    with pytest.raises(ProtocolError, match=r"the sum is over \(2, 3\)"):
        me(attempt).mask(attempt.server.boxes_for(ME), np.zeros(shape, dtype=np.int64))


def test_values_that_are_no_integers_are_refused() -> None:
    attempt = attempt_at(Phase.MASKED)
    halves: object = np.full((2, 3), 0.5)
    with pytest.raises(UsageError, match="only integers"):
        me(attempt).mask(attempt.server.boxes_for(ME), halves)  # type: ignore[arg-type]


# --- survivors ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "otherwise"),
    [
        ((*NAMES[:3], PEER), "list of survivors has a party twice"),
        ((*NAMES, PEER), "7 parties in a list of survivors"),
    ],
)
def test_lists_of_survivors_are_refused(survivors: tuple[str, ...], otherwise: str) -> None:
    attempt = attempt_at(Phase.CONSISTENCY)
    with pytest.raises(ProtocolError, match=otherwise):
        me(attempt).sign_survivors(survivors)
    attempt.agree(NAMES)


def test_a_survivor_whose_box_never_came_is_refused() -> None:
    """The server shows one party fewer senders than it lists as survivors afterwards."""
    attempt = attempt_at(Phase.MASKED)
    boxes = attempt.server.boxes_for(ME)
    del boxes[PEER]
    me(attempt).mask(boxes, attempt.values[ME])
    with pytest.raises(ProtocolError, match=f"{PEER} is listed as a survivor, but its box never"):
        me(attempt).sign_survivors(NAMES)
    me(attempt).sign_survivors([name for name in NAMES if name != PEER])


def test_a_survivor_that_announced_no_keys_is_refused() -> None:
    attempt = Attempt(CONTEXT)
    attempt.announce(NAMES[:5])
    attempt.share(NAMES[:5])
    attempt.vote(NAMES[:5])
    with pytest.raises(ProtocolError, match=f"{NAMES[5]} is listed as a survivor but announced no"):
        me(attempt).sign_survivors(NAMES)


def test_two_lists_of_survivors_are_not_both_signed() -> None:
    """A peer is declared alive to one half and dropped to the other: neither gets t signatures."""
    attempt = attempt_at(Phase.CONSISTENCY)
    alive, dropped = NAMES, NAMES[:5]
    signatures = {
        name: attempt.parties[name].sign_survivors(alive if place < 3 else dropped)
        for place, name in enumerate(dropped)
    }
    for name, other in ((ME, dropped), (NAMES[4], alive)):
        with pytest.raises(
            RefusedError, match="asked for signatures of the list of survivors a second time"
        ):
            attempt.parties[name].sign_survivors(other)
    for name in dropped:
        with pytest.raises(ProtocolError, match="the list of survivors is not signed by"):
            attempt.parties[name].unmask(signatures)
        own = {each: signatures[each] for each in (dropped[:3] if name in dropped[:3] else ())}
        with pytest.raises(QuorumError):
            attempt.parties[name].unmask(own)


# --- openings ----------------------------------------------------------------------------


def test_a_signature_of_another_attempt_is_refused() -> None:
    attempt = attempt_at(Phase.UNMASK, missing_votes=1)
    other = Attempt(context_for(6, 4, 1, attempt=1))
    other.announce(NAMES)
    signed_there = identity_of(PEER).sign(
        survivors_to_sign(other.server._known, attempt.server.survivors)
    )
    with pytest.raises(ProtocolError, match=f"not signed by {PEER}"):
        me(attempt).unmask({**attempt.server.signatures, PEER: signed_there})
    assert me(attempt).phase is Phase.UNMASK


# --- order -------------------------------------------------------------------------------


def test_phases_are_answered_in_order_alone() -> None:
    attempt = attempt_at(Phase.MASKED)
    boxes, values = attempt.server.boxes_for(ME), attempt.values[ME]
    keys = dict(attempt.server._known.keys)
    new = party_of(CONTEXT, ME)
    for ask, what in (
        (lambda: new.shares(keys), "key"),
        (lambda: new.mask(boxes, values), "key"),
        (lambda: new.sign_survivors(NAMES), "key"),
        (lambda: new.unmask({name: bytes(64) for name in NAMES}), "key"),
    ):
        with pytest.raises(ProtocolError, match=f"and the next is {what}"):
            ask()
    with pytest.raises(
        ProtocolError, match=r"asked for signatures of .*, and the next is masked votes"
    ):
        me(attempt).sign_survivors(NAMES)
    me(attempt).mask(boxes, values)
    with pytest.raises(ProtocolError, match="asked for openings, and the next is signatures"):
        me(attempt).unmask({name: bytes(64) for name in NAMES})


def test_the_same_request_gets_the_same_bytes_and_another_one_none() -> None:
    attempt = attempt_at(Phase.UNMASK, missing_votes=1)
    party, server = me(attempt), attempt.server
    keys = dict(server._known.keys)
    party.unmask(server.signatures)
    boxes = {name: server._boxes[name][ME] for name in NAMES[1:]}
    for _ in range(2):
        assert party.keys() == keys[ME]
        assert party.shares(dict(reversed(keys.items()))) == server._boxes[ME]
        packed = party.mask(boxes, attempt.values[ME])
        # Other values under the same masks would show their difference.
        assert party.mask(boxes, attempt.values[ME] + 1) == packed
        assert party.sign_survivors(server.survivors[::-1]) == server.signatures[ME]
        assert party.unmask(server.signatures) == party.unmask(dict(server.signatures))
    for ask in (
        lambda: party.shares({name: keys[name] for name in NAMES[:5]}),
        lambda: party.mask({name: boxes[name] for name in NAMES[1:5]}, attempt.values[ME]),
        lambda: party.sign_survivors(NAMES),
    ):
        with pytest.raises(RefusedError, match="a second time, with another request"):
            ask()


def test_nothing_is_answered_after_forgetting() -> None:
    attempt = attempt_at(Phase.UNMASK)
    party = me(attempt)
    party.forget()
    for ask in (party.keys, lambda: party.unmask(attempt.server.signatures)):
        with pytest.raises(RefusedError, match="is over"):
            ask()
    left = [getattr(party, name) for name in ("_own", "_held")]
    assert not any(left)


def test_no_secret_of_its_own_is_kept_once_its_votes_are_masked() -> None:
    attempt = attempt_at(Phase.CONSISTENCY)
    party = me(attempt)
    assert party._own is None


WHOLE = context_for(5, 4, 1)
MEMBERS = WHOLE.roster.members
RENAMED = (*MEMBERS[:4], Member("party_009", MEMBERS[4].identity))
CHANGES: dict[str, object] = {
    "campaign": b"1" * 16, "attempt": b"1" * 16, "batch": b"1" * 32, "terms": b"1" * 32, "rows": 3,
    "classes": 4, "bits": 32, "threshold": 5, "colluders": 2, "members": RENAMED,
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_every_field_is_in_the_digest(field: str) -> None:
    assert changed(WHOLE, **{field: CHANGES[field]}).digest != WHOLE.digest


def test_every_part_of_the_roster_is_in_the_digest() -> None:
    other = (*MEMBERS[:4], Member(MEMBERS[4].name, bytes(31) + b"1"))
    digests = {
        changed(WHOLE, members=members).digest for members in (MEMBERS, other, MEMBERS[:4], RENAMED)
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
            changed(WHOLE, **change)
    for name in ("x" * 65, "a\x00"):
        with pytest.raises(ProtocolError, match="cannot be a party's name"):
            Member(name, bytes(32))
    crowd = tuple(
        Member(f"{number:05d}", number.to_bytes(32, "little")) for number in range(MOST_MEMBERS + 1)
    )
    with pytest.raises(ProtocolError, match="at most 4096 can mask"):
        changed(WHOLE, members=crowd)


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
