"""The server's side: messages are validated, wrong shares are detected, and none is accepted in part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pate.errors import ProtocolError
from pate.masking import masks
from pate.masking.masks import MOST_TRIES, _choices
from pate.masking.shamir import PRIME, UnmaskingShares, from_bytes, to_bytes
from tests.support.masking.attempts import Attempt, context_for, name_of, party_of

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
