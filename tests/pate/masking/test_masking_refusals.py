"""A malicious server: the party refuses, and sends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.errors import PateError, ProtocolError, QuorumError, RefusedError, UsageError
from pate.masking.announced import Announced, sign_keys, survivors_to_sign
from pate.masking.context import Phase
from pate.masking.keys import _LOW_ORDER, BOX_BYTES, KeyPair, Keys, seal
from pate.masking.party import PartyMasking
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.attempts import (
    Attempt,
    bytes_from,
    context_for,
    identity_of,
    name_of,
    party_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pate.masking.context import Context

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


KEY_ATTACKS: dict[str, tuple[Callable[[dict[str, Keys]], Mapping[str, Keys]], str]] = {
    "the server's own key for a peer": (
        lambda keys: keys | {PEER: replace(keys[PEER], mask_key=fresh(PEER).mask_key)},
        f"keys of {PEER} are not signed",
    ),
    "the server's own share key for a peer": (
        lambda keys: keys | {PEER: replace(keys[PEER], share_key=fresh(PEER).share_key)},
        f"keys of {PEER} are not signed",
    ),
    "another commitment": (
        lambda keys: keys | {PEER: replace(keys[PEER], seed_commitment=bytes(32))},
        f"keys of {PEER} are not signed",
    ),
    "both keys exchanged": (
        lambda keys: (
            keys
            | {
                PEER: replace(
                    keys[PEER], mask_key=keys[PEER].share_key, share_key=keys[PEER].mask_key
                )
            }
        ),
        f"keys of {PEER} are not signed",
    ),
    "keys of another attempt": (
        lambda keys: keys | {PEER: fresh(PEER, context_for(6, 4, 1, attempt=1))},
        f"keys of {PEER} are not signed",
    ),
    "keys of the same attempt over other rows": (
        lambda keys: keys | {PEER: fresh(PEER, context_for(6, 4, 1, rows=3))},
        f"keys of {PEER} are not signed",
    ),
    "one party's keys under another's name": (
        lambda keys: keys | {PEER: keys[OTHER]},
        f"keys of {PEER} are not signed",
    ),
    "a signature of somebody else": (
        lambda keys: keys | {PEER: sign_keys(CONTEXT, PEER, identity_of(OTHER), keys[PEER])},
        f"keys of {PEER} are not signed",
    ),
    "a colluder that announces a peer's mask key as its own": (
        lambda keys: (
            keys
            | {OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], mask_key=keys[PEER].mask_key))}
        ),
        f"{PEER} and {OTHER} announced the same key",
    ),
    "a colluder that announces my share key as its mask key": (
        lambda keys: (
            keys
            | {OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], mask_key=keys[ME].share_key))}
        ),
        f"{ME} and {OTHER} announced the same key",
    ),
    "one key for two uses": (
        lambda keys: (
            keys
            | {OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], mask_key=keys[OTHER].share_key))}
        ),
        f"{OTHER} announced one key for two uses",
    ),
    "a share key of low order": (
        lambda keys: (
            keys | {OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], share_key=bytes(32)))}
        ),
        f"key of {OTHER} is a point of low order",
    ),
    "a peer's key with its unused bit set": (
        lambda keys: (
            keys
            | {
                OTHER: signed(
                    CONTEXT,
                    OTHER,
                    replace(
                        keys[OTHER],
                        mask_key=(
                            int.from_bytes(keys[PEER].mask_key, "little") | 1 << 255
                        ).to_bytes(32, "little"),
                    ),
                )
            }
        ),
        f"mask key of {OTHER} is not a key in its one written form",
    ),
    "a key of 31 bytes": (
        lambda keys: (
            keys | {OTHER: signed(CONTEXT, OTHER, replace(keys[OTHER], mask_key=bytes(31)))}
        ),
        f"mask key of {OTHER} has 31 bytes",
    ),
    "no signature": (
        lambda keys: keys | {OTHER: replace(keys[OTHER], signature=b"")},
        f"signature of {OTHER} has 0 bytes",
    ),
    "a stranger": (
        lambda keys: {name: keys[name] for name in NAMES[:5]} | {"mallory": keys[PEER]},
        "'mallory' in a list of keys is not in the roster",
    ),
    "more than the roster": (
        lambda keys: keys | {"mallory": keys[PEER]},
        "7 parties in a list of keys, the roster has 6",
    ),
    "without me": (
        lambda keys: {name: keys[name] for name in NAMES[1:]},
        f"{ME} is missing in a list of keys",
    ),
    "with other keys for me": (
        lambda keys: keys | {ME: fresh(ME)},
        f"{ME} is missing in a list of keys, or with other keys",
    ),
}


@pytest.mark.parametrize("attack", sorted(KEY_ATTACKS))
def test_keys_are_refused(attack: str) -> None:
    change, otherwise = KEY_ATTACKS[attack]
    party = party_of(CONTEXT, ME)
    party.keys()
    with pytest.raises(ProtocolError, match=otherwise):
        party.shares(change(announced_keys()))
    assert party.phase is Phase.SHARES
    assert len(party.shares(announced_keys())) == 5  # and nothing was spoiled


def test_too_few_keys_are_refused() -> None:
    party = party_of(CONTEXT, ME)
    party.keys()
    keys = announced_keys()
    with pytest.raises(QuorumError, match="3 parties announced keys, 4 are needed"):
        party.shares({name: keys[name] for name in NAMES[:3]})


def test_low_order_is_known_by_a_list_and_by_the_secret_itself() -> None:
    """The list is right: the library finds no secret with any of its points."""
    for point in _LOW_ORDER:
        with pytest.raises(ProtocolError, match=f"key of {PEER} is a point of low order"):
            KeyPair(bytes(range(32))).agree(point.to_bytes(32, "little"), PEER)
    # And it is whole: 0 of order 2, 1 and -1 of order 4, two of order 8.
    assert len(_LOW_ORDER) == 5


@pytest.mark.parametrize("point", sorted(_LOW_ORDER))
def test_keys_of_low_order_are_refused(point: int) -> None:
    keys = announced_keys()
    bad = replace(keys[OTHER], mask_key=point.to_bytes(32, "little"))
    party = party_of(CONTEXT, ME)
    party.keys()
    with pytest.raises(ProtocolError, match=f"mask key of {OTHER} is a point of low order"):
        party.shares(keys | {OTHER: signed(CONTEXT, OTHER, bad)})


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


def test_boxes_that_are_not_for_me_or_not_from_their_sender_are_refused() -> None:
    attempt = attempt_at(Phase.MASKED)
    party, values = me(attempt), attempt.values[ME]
    mine = attempt.server.boxes_for(ME)
    for_peer = attempt.server.boxes_for(PEER)
    attacks: dict[str, tuple[dict[str, bytes], str]] = {
        "exchanged senders": (
            mine | {PEER: mine[OTHER], OTHER: mine[PEER]},
            f"box from {PEER} to {ME} does not open",
        ),
        "another's box": (mine | {OTHER: for_peer[OTHER]}, f"box from {OTHER} to {ME}"),
        "my own box sent back": (mine | {PEER: for_peer[ME]}, f"box from {PEER} to {ME}"),
        "one bit": (
            mine | {PEER: bytes([mine[PEER][0] ^ 1]) + mine[PEER][1:]},
            f"box from {PEER} to {ME} does not open: {PEER} sealed it wrongly",
        ),
        "short": (mine | {PEER: mine[PEER][:-1]}, f"box from {PEER} has {BOX_BYTES - 1} bytes"),
        "from myself": (mine | {ME: mine[PEER]}, f"box from {ME}, which does not mask with {ME}"),
        "from a stranger": (
            {name: mine[name] for name in NAMES[1:4]} | {"mallory": mine[PEER]},
            "'mallory' in a list of boxes",
        ),
    }
    for boxes, otherwise in attacks.values():
        with pytest.raises(ProtocolError, match=otherwise):
            party.mask(boxes, values)
        assert party.phase is Phase.MASKED
    with pytest.raises(QuorumError, match=r"2 neighbours and .* 4 are needed"):
        party.mask({name: mine[name] for name in NAMES[1:3]}, values)
    attempt.vote(NAMES)


def test_boxes_under_other_announced_keys_do_not_open() -> None:
    """The server leaves one party out of what it shows to another: their views do not meet."""
    attempt = attempt_at(Phase.SHARES)
    every = attempt.server.keys_for(ME)
    boxes = {name: attempt.parties[name].shares(every) for name in NAMES[1:]}
    me(attempt).shares({name: every[name] for name in NAMES[:5]})
    with pytest.raises(ProtocolError, match=f"box from {PEER} to {ME} does not open"):
        me(attempt).mask({name: boxes[name][ME] for name in NAMES[1:5]}, attempt.values[ME])


def test_boxes_of_another_attempt_do_not_open() -> None:
    old = Attempt(context_for(6, 4, 1, attempt=1))
    old.announce(NAMES)
    old.share(NAMES)
    attempt = attempt_at(Phase.MASKED)
    boxes = attempt.server.boxes_for(ME) | {PEER: old.server.boxes_for(ME)[PEER]}
    with pytest.raises(ProtocolError, match=f"box from {PEER} to {ME} does not open"):
        me(attempt).mask(boxes, attempt.values[ME])


def test_a_share_outside_the_field_is_refused_and_its_sender_named() -> None:
    attempt = attempt_at(Phase.SHARES)
    keys = attempt.server.keys_for(ME)
    for name in NAMES:
        attempt.parties[name].shares(keys)
    announced = Announced(CONTEXT, keys)

    def sealed(name: str, shares: tuple[int, int]) -> bytes:
        own = attempt.parties[name]._own
        assert own is not None
        return seal(own.share, keys[ME].share_key, ME, announced.box(name, ME), shares)

    boxes = {name: sealed(name, (1, 1)) for name in NAMES[1:]}
    bad = sealed(PEER, (1, 2**257))
    with pytest.raises(ProtocolError, match=f"share from {PEER} to {ME} is no element"):
        me(attempt).mask(boxes | {PEER: bad}, attempt.values[ME])
    me(attempt).mask(boxes, attempt.values[ME])


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
    ("survivors", "kind", "otherwise"),
    [
        (NAMES[1:], ProtocolError, f"{ME} is asked to sign a list of survivors without it"),
        (NAMES[:3], QuorumError, "3 parties survive, 4 are needed"),
        ((*NAMES[:4], PEER), ProtocolError, "list of survivors has a party twice"),
        ((*NAMES[:3], PEER), ProtocolError, "list of survivors has a party twice"),
        ((*NAMES[:4], "mallory"), ProtocolError, "'mallory' in a list of survivors"),
        ((*NAMES, PEER), ProtocolError, "7 parties in a list of survivors"),
    ],
)
def test_lists_of_survivors_are_refused(
    survivors: tuple[str, ...], kind: type[PateError], otherwise: str
) -> None:
    attempt = attempt_at(Phase.CONSISTENCY)
    with pytest.raises(kind, match=otherwise):
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


def test_an_opening_has_a_seed_of_the_living_and_a_key_of_the_dropped() -> None:
    attempt = attempt_at(Phase.UNMASK, missing_votes=2)
    opening = me(attempt).unmask(attempt.server.signatures)
    assert set(opening.seed_shares) == set(NAMES[:4])
    assert set(opening.key_shares) == set(NAMES[4:])


def test_signatures_are_refused() -> None:
    attempt = attempt_at(Phase.UNMASK, missing_votes=1)
    good = dict(attempt.server.signatures)
    known, alive = attempt.server._known, attempt.server.survivors
    other_attempt = Attempt(context_for(6, 4, 1, attempt=1))
    other_attempt.announce(NAMES)

    def by(name: str, who: Announced, survivors: tuple[str, ...]) -> bytes:
        return identity_of(name).sign(survivors_to_sign(who, survivors))

    attacks: dict[str, tuple[dict[str, bytes], type[PateError], str]] = {
        "few": ({name: good[name] for name in NAMES[:3]}, QuorumError, "3 parties signed"),
        "by who is no survivor": (
            good | {NAMES[5]: by(NAMES[5], known, alive)},
            ProtocolError,
            f"{NAMES[5]} signed a list of survivors that it is not on",
        ),
        "by a stranger": (
            {name: good[name] for name in NAMES[:4]} | {"mallory": good[ME]},
            ProtocolError,
            "'mallory' in a list of signatures",
        ),
        "over another list": (
            good | {PEER: by(PEER, known, NAMES)},
            ProtocolError,
            f"not signed by {PEER}",
        ),
        "in another attempt": (
            good | {PEER: by(PEER, other_attempt.server._known, alive)},
            ProtocolError,
            f"not signed by {PEER}",
        ),
        "by one for another": (good | {PEER: good[OTHER]}, ProtocolError, f"signed by {PEER}"),
        "its keys' signature": (
            good | {PEER: known.keys[PEER].signature},
            ProtocolError,
            f"not signed by {PEER}",
        ),
        "short": (good | {PEER: good[PEER][:-1]}, ProtocolError, "has 63 bytes"),
    }
    for signatures, kind, otherwise in attacks.values():
        with pytest.raises(kind, match=otherwise):
            me(attempt).unmask(signatures)
        assert me(attempt).phase is Phase.UNMASK
    assert isinstance(me(attempt).unmask(good), UnmaskingShares)


def test_a_second_opening_is_refused() -> None:
    attempt = attempt_at(Phase.UNMASK)
    every = dict(attempt.server.signatures)
    first = me(attempt).unmask(every)
    with pytest.raises(RefusedError, match="asked for openings a second time"):
        me(attempt).unmask({name: every[name] for name in NAMES[:4]})
    assert me(attempt).unmask(every) == first


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
        ProtocolError,
        match=r"asked for signatures of .*, and the next is masked votes",
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
