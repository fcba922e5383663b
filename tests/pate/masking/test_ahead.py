"""Masked sums whose keys come ahead: exact sums, repeated answers, kills, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import PateError, ProtocolError, QuorumError, RefusedError, StateError
from pate.masking import keys as masking_keys
from pate.masking.ahead import store as waiting
from pate.masking.ahead.bundle import (
    Bundle,
    BundleRoster,
    Round,
    Sealed,
    sign_sealing,
    takes_consent,
)
from pate.masking.ahead.server import ServerAhead
from pate.masking.ahead.store import Kind
from pate.masking.announced import survivors_to_sign
from pate.masking.context import Member
from pate.masking.encoding import whole
from pate.masking.keys import KeyPair, Keys
from pate.masking.ring import centred
from tests.pate.masking.test_masking_sums import thresholds
from tests.support.masking.ahead import ASKER, Field, KilledError
from tests.support.masking.attempts import bytes_from, changed, identity_of, name_of

A, B, C, D, E = (name_of(number) for number in range(5))


@pytest.fixture
def field() -> Field:
    return Field(5, 4, 1)


def total(field: Field, names: list[str]) -> list[list[int]]:
    found: list[list[int]] = np.sum([field.values[name] for name in names], axis=0).tolist()
    return found


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_sum_is_exact_whoever_drops_out(data: st.DataObject) -> None:
    """Every party, and the server, is started anew between the steps."""
    parties = data.draw(st.integers(3, 8))
    threshold, colluders = data.draw(st.sampled_from(thresholds(parties)))
    consent = data.draw(st.booleans())
    field = Field(parties, threshold, colluders, consent, data.draw(st.sampled_from([8, 16, 32])))
    present = data.draw(st.permutations(field.names))

    def fewer(names: list[str]) -> list[str]:
        return names[: data.draw(st.integers(threshold, len(names)))]

    taking = fewer(present)
    answering = fewer(taking)
    opening = fewer(answering)
    round_ = field.round(dict.fromkeys(taking, 3))
    found = centred(field.run(round_, answering, opening), field.bits)
    assert found.tolist() == total(field, answering)


def test_a_bundle_serves_any_campaign_of_its_roster(field: Field) -> None:
    for number, campaign in enumerate((bytes(16), b"another campaign")):
        round_ = field.round(number, campaign=campaign)
        found = centred(field.run(round_, field.names, field.names), 16)
        assert found.tolist() == total(field, field.names)


@pytest.mark.parametrize("consent", [False, True])
def test_a_killed_party_gives_the_same_bytes_or_has_given_none(*, consent: bool) -> None:
    """KilledError at each of its changes in turn, it is started again and asked the same."""
    plain = Field(5, 4, 1, consent)
    round_ = plain.round()
    survivors = [A, B, C, D]
    for name in (B, C, D):
        plain.mask(name, round_)
    start = plain.saved()

    def story(field: Field, stop: Callable[[], None]) -> list[object]:
        """All that A answers; ``stop`` is called between the steps."""
        said: list[object] = []
        masked = field.signed(round_, survivors)

        def consents() -> dict[str, bytes]:
            return field.consents(round_, survivors) if consent else {}

        steps: list[Callable[[], object]] = [
            lambda: field.mask(A, round_),
            *([lambda: field.party(A).sign(round_, masked)] if consent else []),
            lambda: field.party(A).choose(round_, masked, consents()),
            lambda: field.party(A).unmask(round_),
        ]
        for step in steps:
            for _ in range(9):
                try:
                    said.append(step())
                except KilledError:
                    stop()
                    continue
                assert step() == said[-1]
                break
            else:
                pytest.fail("it never came back")
        return said

    def ready() -> Field:
        field = Field(5, 4, 1, consent)
        field.stores = {
            name: replace(each, entries=dict(each.entries)) for name, each in start.items()
        }
        return field

    want = story(ready(), lambda: None)
    kills = 0
    for lives in range(9):
        field = ready()
        field.stores[A].lives = lives

        def revive(field: Field = field) -> None:
            nonlocal kills
            kills += 1
            field.stores[A].lives = None

        assert story(field, revive) == want
    assert kills >= 4 + consent


def test_a_killed_server_goes_on_with_the_same_sum(field: Field) -> None:
    """Its state is stored and read after every message; a late answer stays out for good."""
    round_ = field.round()
    server = ServerAhead(round_)
    answers = {name: field.mask(name, round_) for name in field.names}
    for name in field.names[:4]:
        server = ServerAhead.restore(round_, server.to_bytes())
        server.take_masked(name, *answers[name])
        server.take_masked(name, *answers[name])
    server.advance()
    server = ServerAhead.restore(round_, server.to_bytes())
    assert server.survivors == tuple(field.names[:4])
    with pytest.raises(ProtocolError, match="too late"):
        server.take_masked(E, *answers[E])
    for name in server.survivors:
        server.take_unmasking(name, field.open(name, round_, server.survivors))
        server = ServerAhead.restore(round_, server.to_bytes())
    server.advance()
    assert centred(server.result(), 16).tolist() == total(field, field.names[:4])
    with pytest.raises(StateError, match="another round"):
        ServerAhead.restore(field.round(1), server.to_bytes())
    with pytest.raises(StateError, match="damaged"):
        ServerAhead.restore(round_, server.to_bytes()[:-1])


def test_other_votes_for_masks_that_were_used_are_not_masked(field: Field) -> None:
    round_ = field.round()
    first = field.mask(A, round_)
    assert field.mask(A, round_, values=field.values[A] + 1) == first


def test_secrets_go_once_they_are_used(field: Field) -> None:
    round_ = field.round()
    own = round_.bundles[A].digest
    store = field.stores[A]
    assert store.get(Kind.UNUSED, own)
    field.mask(A, round_)
    assert store.get(Kind.UNUSED, own) is None
    assert store.get(Kind.SHARES, round_.digest)
    field.mask(B, round_)
    field.open(A, round_, field.names)
    assert store.get(Kind.SHARES, round_.digest) is None
    field.party(B).forget(bytes(16))
    with pytest.raises(RefusedError, match="forgotten"):
        field.open(B, round_, field.names)


# --- what a lying server, or a carrier, is refused --------------------------------------------


def test_a_bundle_masks_in_one_round(field: Field) -> None:
    """Also after it masked: another attempt, another batch, other parties, other terms."""
    field.mask(A, field.round())
    others = [
        field.round(attempt=1),
        field.round(batch=b"b" * 32),
        field.round(terms=b"t" * 32),
        field.round(campaign=b"c" * 16),
        field.round(dict.fromkeys([A, B, C, D], 0)),
        field.round({**dict.fromkeys(field.names, 0), B: 1}),
    ]
    for round_ in others:
        with pytest.raises(RefusedError, match="used once"):
            field.mask(A, round_)


def test_another_partys_bundle_is_bound_to_one_round_too(field: Field) -> None:
    """Else a server could collect shares of a bundle in rounds that its owner never saw."""
    field.mask(A, field.round())
    for name in field.names[1:]:
        numbers = {**dict.fromkeys(field.names, 1), name: 0}
        with pytest.raises(RefusedError, match=f"bundle 0 of {name} was in another round"):
            field.mask(A, field.round(numbers, attempt=1))


def test_an_attempt_is_one_round(field: Field) -> None:
    field.mask(A, field.round())
    with pytest.raises(RefusedError, match="other content"):
        field.mask(A, field.round(1))


def test_a_party_unmasks_one_list(field: Field) -> None:
    round_ = field.round()
    field.mask(A, round_)
    first = field.open(A, round_, field.names)
    for other in ([A, B, C, D], [A, C, D, E]):
        with pytest.raises(RefusedError, match="another list of survivors"):
            field.open(A, round_, other)
    assert field.open(A, round_, field.names) == first
    assert first.key_shares == {}


def test_a_party_signs_one_list_and_unmasks_no_other() -> None:
    field = Field(5, 4, 1, consent=True)
    round_ = field.round()
    for name in field.names:
        field.mask(name, round_)
    consents = field.consents(round_, field.names)
    four = [A, B, C, D]
    with pytest.raises(RefusedError, match="another list"):
        field.party(A).sign(round_, field.signed(round_, four))
    # Even if t others have signed another one, which takes more colluders than there are.
    forged = {name: identity_of(name).sign(survivors_to_sign(round_, four)) for name in four}
    with pytest.raises(RefusedError, match="not the one that this party signed"):
        field.open(A, round_, four, forged)
    assert field.open(A, round_, field.names, consents).seed_shares.keys() == set(field.names)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda _: {}, QuorumError, "0 parties signed"),
        (lambda given: dict(list(given.items())[:3]), QuorumError, "3 parties signed"),
        (lambda given: {**given, A: given[B]}, ProtocolError, "not signed by"),
        (lambda given: {**given, A: bytes(63)}, ProtocolError, "63 bytes"),
    ],
    ids=["none", "too few", "another's", "cut short"],
)
def test_without_t_signatures_nothing_is_unmasked(
    change: Callable[[dict[str, bytes]], dict[str, bytes]], error: type[PateError], says: str
) -> None:
    field = Field(5, 4, 1, consent=True)
    round_ = field.round()
    for name in field.names:
        field.mask(name, round_)
    given = field.consents(round_, field.names)
    with pytest.raises(error, match=says):
        field.open(A, round_, field.names, change(given))
    assert field.open(A, round_, field.names, given)


def test_consent_is_part_of_the_round(field: Field) -> None:
    """A server cannot leave the step out: a party knows from the terms whether it is taken."""
    round_ = field.round()
    field.mask(A, round_)
    with pytest.raises(ProtocolError, match="which are not taken"):
        field.open(A, round_, field.names, {A: bytes(64)})
    with pytest.raises(ProtocolError, match="without consent"):
        field.party(A).sign(round_, field.signed(round_, field.names))
    with pytest.raises(RefusedError, match="used once"):
        field.mask(A, replace(round_, consent=True))


def test_who_did_not_mask_in_this_round_is_on_no_list(field: Field) -> None:
    """Else its seed could be collected in a round that it has no votes in."""
    round_, other = field.round(), field.round(1, attempt=1)
    field.mask(A, round_)
    masked = field.signed(round_, field.names)
    elsewhere = other.sign_masked(B, identity_of(B))
    for lie in (elsewhere, masked[C], bytes(64)):
        with pytest.raises(ProtocolError, match=f"{B} did not sign"):
            field.party(A).choose(round_, {**masked, B: lie}, {})


def test_lists_that_cannot_be(field: Field) -> None:
    round_ = field.round(dict.fromkeys([A, B, C, D], 0))
    with pytest.raises(ProtocolError, match="before this party has masked"):
        field.open(A, round_, [A, B, C, D])
    field.mask(A, round_)
    masked = field.signed(round_, [A, B, C, D])
    stranger = {**masked, E: masked[A]}
    with pytest.raises(ProtocolError, match="takes no part"):
        field.party(A).choose(round_, stranger, {})
    for few in ({}, {name: masked[name] for name in (A, B, C)}):
        with pytest.raises(QuorumError, match="4 are needed"):
            field.party(A).choose(round_, few, {})
    every = field.round(1, attempt=1)
    field.mask(A, every)
    with pytest.raises(ProtocolError, match="without it"):
        field.party(A).choose(every, field.signed(every, [B, C, D, E]), {})
    with pytest.raises(ProtocolError, match="before its survivors are fixed"):
        field.party(A).unmask(every)


def test_a_batch_is_unmasked_in_one_round(field: Field) -> None:
    """Two sums of one batch, of other parties, would differ by somebody's votes."""
    first, second = field.round(), field.round(1, attempt=1)
    for round_ in (first, second):
        field.mask(A, round_)
    field.open(A, first, field.names)
    with pytest.raises(RefusedError, match="unmasked in another round"):
        field.open(A, second, field.names)
    third = field.round(2, attempt=2, batch=b"b" * 32)
    field.mask(A, third)
    assert field.open(A, third, [A, B, C, D])


def test_with_consent_another_round_of_the_same_survivors_makes_the_same_sum() -> None:
    """So a party that deals garbage, and is left out of the next round, costs no batch."""
    field = Field(5, 4, 1, consent=True)
    four = [A, B, C, D]
    field.run(field.round(), four, four)
    again = field.round(dict.fromkeys(four, 1), attempt=1)
    assert centred(field.run(again, four, four), 16).tolist() == total(field, four)
    other = field.round(2, attempt=2)
    for name in field.names:
        field.mask(name, other)
    with pytest.raises(RefusedError, match="unmasked in another round"):
        field.open(A, other, field.names, field.consents(other, field.names))


def resigned(bundle: Bundle, owner: str, keys: Keys) -> Bundle:
    """A bundle that its owner made otherwise, and signed."""
    return replace(bundle, keys=keys).signed(identity_of(owner))


def bad_bundles(field: Field) -> dict[str, tuple[Bundle, str]]:
    """Bundles of B that nobody masks with."""
    bundle, keys = field.bundle(B, 0)[0], field.bundle(B, 0)[0].keys
    wrong = bytes([keys.signature[0] ^ 1]) + keys.signature[1:]
    smaller = Field(4, 3, 1)
    return {
        "a server's own mask key": (
            replace(bundle, keys=replace(keys, mask_key=KeyPair(b"s" * 32).public)),
            "not signed by its identity",
        ),
        "a wrong signature": (replace(bundle, keys=replace(keys, signature=wrong)), "not signed"),
        "another commitment": (
            replace(bundle, keys=replace(keys, seed_commitment=bytes(32))), "not signed",
        ),
        "another number": (replace(bundle, number=7), "not signed"),
        "signed by another": (bundle.signed(identity_of(A)), "not signed"),
        "another party's": (field.bundle(C, 0)[0], "is listed for"),
        "another roster's": (smaller.bundle(B, 0)[0], "for another roster"),
        "another roster's, put right by the server": (
            replace(smaller.bundle(B, 0)[0], roster=field.roster.digest), "not signed",
        ),
        "a key of low order": (
            resigned(bundle, B, replace(keys, mask_key=bytes(32))), "low order",
        ),
        "one key for two uses": (
            resigned(bundle, B, replace(keys, share_key=keys.mask_key)), "two uses",
        ),
        "a key of another": (
            resigned(bundle, B, replace(keys, mask_key=field.bundle(A, 0)[0].keys.mask_key)),
            "announced the same key",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("which", bad_bundles(Field(5, 4, 1)))
def test_bundles_that_nobody_masks_with(field: Field, which: str) -> None:
    bundle, says = bad_bundles(field)[which]
    good = field.round()
    with pytest.raises(ProtocolError, match=says):
        replace(good, bundles={**good.bundles, B: bundle})


def test_boxes_that_do_not_open_stop_a_party_before_it_masks(field: Field) -> None:
    round_ = field.round()
    boxes = field.boxes(A, round_)
    changed = bytes([boxes[B][0] ^ 1]) + boxes[B][1:]
    for box, says in (
        (changed, f"the box from {B} to {A} does not open"),
        (field.bundle(B, 0)[1][C], "does not open"),
        (field.bundle(B, 1)[1][A], "does not open"),
        (boxes[C], "does not open"),
        (boxes[B][:-1], "81 bytes"),
        (b"", "0 bytes"),
    ):
        with pytest.raises(ProtocolError, match=says):
            field.party(A).begin(round_, {**boxes, B: box})
        assert field.stores[A].get(Kind.BOUND, round_.bundles[A].digest) is None
    for wrong in ({**boxes, A: boxes[B]}, {n: b for n, b in boxes.items() if n != B}):
        with pytest.raises(ProtocolError, match="not one of each other party"):
            field.party(A).begin(round_, wrong)
    field.party(A).begin(round_, boxes)


def test_rounds_that_do_not_fit_their_bundles(field: Field) -> None:
    good = field.round()
    few = {name: good.bundles[name] for name in (A, B, C)}
    with pytest.raises(QuorumError, match="4 are needed"):
        replace(good, bundles=few)
    for context, says in (
        (changed(good.context, threshold=5), "t = 4"),
        (changed(good.context, colluders=0), "c = 1"),
        (
            changed(good.context, members=good.context.roster.members[:4], threshold=3),
            "another roster",
        ),
    ):
        with pytest.raises(ProtocolError, match=says):
            replace(good, context=context)
    without = field.round(dict.fromkeys([B, C, D, E], 0))
    with pytest.raises(ProtocolError, match="without its bundle"):
        field.mask(A, without)
    with pytest.raises(ProtocolError, match="was not begun"):
        field.party(A).mask(good, lambda: field.values[A])
    field.party(A).begin(good, field.boxes(A, good))
    with pytest.raises(ProtocolError, match="shape"):
        field.party(A).mask(good, lambda: field.values[A][:1])


def test_an_own_bundle_that_is_not_of_this_home(field: Field) -> None:
    """After a restore the secrets are gone: their bundles are never used again."""
    round_ = field.round()
    boxes = field.boxes(A, round_)
    for place in [place for place in field.stores[A].entries if place[0] is Kind.UNUSED]:
        del field.stores[A].entries[place]
    with pytest.raises(RefusedError, match="was used before, or is not of this home"):
        field.party(A).begin(round_, boxes)


def test_rosters_that_no_bundles_are_made_for(field: Field) -> None:
    def sealed(name: str, key: bytes, signer: str | None = None) -> Sealed:
        member = Member(name, identity_of(name).public_key().public_bytes_raw())
        return Sealed(member, key, sign_sealing(name, identity_of(signer or name), key))

    own = field.roster.parties
    server = KeyPair(b"s" * 32).public
    with pytest.raises(ProtocolError, match="not signed by its identity"):
        sealed(B, server, signer=A)
    with pytest.raises(ProtocolError, match="low order"):
        sealed(B, bytes(32))
    with pytest.raises(ProtocolError, match="not sorted"):
        BundleRoster(own[::-1], 4, 1)
    with pytest.raises(ProtocolError, match="one key"):
        BundleRoster((own[0], sealed(B, own[0].key), *own[2:]), 4, 1)
    with pytest.raises(ProtocolError, match="hide nothing"):
        BundleRoster(own, 3, 1)
    rotated = BundleRoster((sealed(A, server), *own[1:]), 4, 1)
    with pytest.raises(ProtocolError, match="another sealing key than it has now"):
        field.party(A).bundles(rotated, 0, 1, ASKER)
    impostor = Sealed(
        Member(A, identity_of(A, 1).public_key().public_bytes_raw()),
        own[0].key, sign_sealing(A, identity_of(A, 1), own[0].key),
    )  # fmt: skip
    with pytest.raises(ProtocolError, match="an identity that is not this party's"):
        field.party(A).bundles(BundleRoster((impostor, *own[1:]), 4, 1), 0, 1, ASKER)
    assert BundleRoster.from_bytes(field.roster.to_bytes()) == field.roster
    with pytest.raises(RefusedError, match="has none for: it made none"):
        field.party(A).roster(bytes(32))


def test_more_parties_than_can_all_mask_with_one_another() -> None:
    with pytest.raises(ProtocolError, match="at most 128"):
        Field(129, 100, 10)


def test_bundles_asked_for_again_are_the_same(field: Field) -> None:
    first = field.party(A).bundles(field.roster, 0, 3, ASKER)
    assert field.party(A).bundles(field.roster, 1, 2, ASKER) == first[1:]
    assert [bundle.number for bundle, _ in first] == [0, 1, 2]
    place = (Kind.MADE, field.roster.digest + whole(0))
    assert field.stores[A].entries[place]


def test_bundles_that_wait_are_bounded_for_each_roster_and_key(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_OF_ROSTER", 2)
    monkeypatch.setattr(waiting, "MOST_OF_KEY", 3)
    party = field.party(A)
    with pytest.raises(RefusedError, match="0 bundles for these parties wait for a round, and 2"):
        party.bundles(field.roster, 0, 3, ASKER)
    field.mask(A, field.round())
    assert len(party.bundles(field.roster, 0, 3, ASKER)) == 3
    with pytest.raises(RefusedError, match="2 bundles for these parties"):
        party.bundles(field.roster, 3, 1, ASKER)
    other = replace(field.roster, threshold=5)
    assert len(party.bundles(other, 0, 1, ASKER)) == 1
    with pytest.raises(RefusedError, match="3 bundles for campaigns of this key"):
        party.bundles(other, 1, 1, ASKER)
    # Another coordinator is not concerned, with the same parties or others.
    strange = replace(ASKER, key=b"k" * 32)
    assert len(party.bundles(other, 1, 1, strange)) == 1
    assert len(party.bundles(field.roster, 3, 1, strange)) == 1


def test_bundles_that_are_not_used_are_dropped(field: Field) -> None:
    """With their campaign, with an earlier sealing key, after a year; no other one takes their number."""
    ended, later = replace(ASKER, campaign=b"e" * 16), ASKER.at + 366 * 86_400
    party, store = field.party(A), field.stores[A]
    for number, asker in enumerate((ended, ASKER, replace(ASKER, at=later))):
        party.bundles(field.roster, number, 1, asker)
        if number == 0:
            party.forget(ended.campaign)
            assert not store.find(Kind.UNUSED)
            with pytest.raises(RefusedError, match="bundle 0 for these parties was dropped"):
                party.bundles(field.roster, 0, 1, asker)
    # The second one waits for more than a year when the third is made.
    assert len(store.find(Kind.UNUSED)) == len(store.find(Kind.MADE)) == 1
    with pytest.raises(RefusedError, match="bundle 1 for these parties was dropped"):
        party.bundles(field.roster, 1, 1, replace(ASKER, at=later))
    assert not waiting.drop_stale(store, field.sealing[A].public, later)
    assert store.find(Kind.ROSTER)
    assert waiting.drop_stale(store, field.sealing[B].public, later) == 1
    assert not store.find(Kind.UNUSED)
    assert not store.find(Kind.ROSTER)


def test_no_round_is_masked_with_a_bundle_that_was_dropped(field: Field) -> None:
    rounds = field.round(), field.round(1)
    boxes = [field.boxes(A, each) for each in rounds]
    field.party(A).begin(rounds[0], boxes[0])
    field.party(A).forget(ASKER.campaign)
    with pytest.raises(ProtocolError, match="not begun"):
        field.party(A).mask(rounds[0], lambda: field.values[A])
    for each, its in zip(rounds, boxes, strict=True):
        with pytest.raises(RefusedError, match="used before"):
            field.party(A).begin(each, its)


# --- what a party that lies costs -------------------------------------------------------------


def test_a_party_that_deals_garbage_spoils_the_sums_it_is_in(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its boxes open, and hold shares of nothing: no sum with its bundle, and no wrong one."""
    garbage = itertools.count(5)
    with monkeypatch.context() as patch:
        patch.setattr(masking_keys, "split", lambda *given: {at: next(garbage) for at in given[2]})
        field.bundle(E, 0)
    field.values[E] = field.values[A]
    for survivors in (field.names, [A, B, C, D]):
        round_ = field.round({**dict.fromkeys(field.names, 1), E: 0})
        before = field.saved()
        with pytest.raises(ProtocolError, match=f"of {E} do not give it back"):
            field.run(round_, survivors, survivors)
        field.stores = before
    assert (
        field.run(field.round(9, attempt=9, batch=b"9" * 32), field.names, field.names) is not None
    )


def test_answers_that_the_server_refuses(field: Field) -> None:
    round_ = field.round()
    server = ServerAhead(round_)
    packed, signature = field.mask(A, round_)
    other = field.mask(B, round_)
    for name, answer, says in (
        (A, (packed[:-2], signature), "bytes"),
        (A, (packed, other[1]), "did not sign"),
        (B, (packed, signature), "did not sign"),
        ("fulda", (packed, signature), "takes no part"),
    ):
        with pytest.raises(ProtocolError, match=says):
            server.take_masked(name, *answer)
    server.take_masked(A, packed, signature)
    with pytest.raises(ProtocolError, match="a second time"):
        server.take_masked(A, other[0], signature)
    with pytest.raises(QuorumError, match="4 are needed"):
        server.advance()
    with pytest.raises(ProtocolError, match="while the server waits"):
        server.take_signature(A, signature)
    server.take_masked(B, *other)
    for name in (C, D):
        server.take_masked(name, *field.mask(name, round_))
    server.advance()
    opening = field.open(A, round_, server.survivors)
    few = {name: share for name, share in opening.seed_shares.items() if name != B}
    for lie, says in (
        (replace(opening, seed_shares=few), "each survivor"),
        (replace(opening, key_shares={}), "each dropout"),
        (replace(opening, key_shares={E: bytes(32)}), "33 bytes"),
    ):
        with pytest.raises(ProtocolError, match=says):
            server.take_unmasking(A, lie)
    with pytest.raises(ProtocolError, match="there is no sum yet"):
        server.result()


def test_consent_is_taken_where_lists_could_be_mixed() -> None:
    """By the condition itself; that it is the right one, test_ahead_secrecy.py shows."""
    assert not takes_consent(5, 5, 1, noisy=False)
    assert takes_consent(5, 4, 1, noisy=False)
    assert not takes_consent(5, 4, 1, noisy=True)
    assert takes_consent(5, 3, 0, noisy=True)
    assert not takes_consent(100, 93, 33, noisy=True)
    assert takes_consent(100, 92, 33, noisy=True)


def test_secrets_are_of_the_random_source(field: Field) -> None:
    """Two bundles share no key, seed or box."""
    (one, first), (two, second) = field.party(A).bundles(field.roster, 0, 2, ASKER)
    assert not {one.keys.mask_key, one.keys.share_key} & {two.keys.mask_key, two.keys.share_key}
    assert one.keys.seed_commitment != two.keys.seed_commitment
    assert not set(first.values()) & set(second.values())
    assert len(bytes_from("x")(7)) == 7
    assert isinstance(field.round(), Round)
