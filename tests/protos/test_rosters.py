"""A roster that is sent once, and requests that have only its hash; bit sets over a roster."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.data.values import Images
from pate.errors import ProtocolError
from protos import wire
from protos.bits import bits_from_names, names_from_bits
from protos.pate.v1 import vote_pb2
from protos.rosters import Rosters, roster_hash, without_roster
from protos.terms import digest_of
from tests.support.campaign_messages import SERVER_KEY, campaign_message, terms_message

PUBLIC = Images(np.zeros((5, 4, 4, 1), dtype=np.uint8))
MEMBERS = [(f"p{number:02d}", bytes([number]) * 32, 3) for number in range(4)]


def campaign(members: list[tuple[str, bytes, int]] = MEMBERS) -> vote_pb2.Campaign:
    terms = terms_message(MEMBERS)
    del terms.roster[:]
    terms.roster.extend(
        vote_pb2.Member(name=name, identity=key, teachers=teachers)
        for name, key, teachers in members
    )
    return campaign_message(PUBLIC, terms, classes=("x", "y"))


def asked(of: vote_pb2.Campaign, roster: bytes = b"", key: Ed25519PrivateKey = SERVER_KEY) -> bytes:
    request = vote_pb2.PartyRequest(
        version=wire.VERSION, nonce=bytes(16), campaign=of, roster=roster
    )
    request.finish.epsilon_cap, request.finish.delta = 0.0, of.delta
    return wire.sign_request(request, key)


def take(whole: vote_pb2.Campaign, rosters: Rosters) -> vote_pb2.PartyRequest:
    """Read a request with its roster as a party that accepts the campaign."""
    key, request = wire.read_request(asked(whole), rosters)
    rosters.keep(key, request.campaign)
    return request


def test_a_request_with_the_hash_of_its_roster_reads_as_the_whole_one() -> None:
    rosters, whole = Rosters(), campaign()
    first = take(whole, rosters)
    short = asked(without_roster(whole), roster_hash(whole.terms.roster))
    assert len(asked(whole)) - len(short) > len(MEMBERS) * 40 - 40
    second = wire.read_request(short, rosters)[1]
    assert second == first
    assert digest_of(second.campaign) == digest_of(whole)


def test_a_hash_of_a_roster_that_was_not_sent_is_refused() -> None:
    whole = campaign()
    short = asked(without_roster(whole), roster_hash(whole.terms.roster))
    for rosters in (None, Rosters()):
        with pytest.raises(ProtocolError, match="not sent before"):
            wire.read_request(short, rosters)
    rosters = Rosters()
    take(whole, rosters)
    other = campaign([(name, key, 2) for name, key, _ in MEMBERS])
    with pytest.raises(ProtocolError, match="not sent before"):
        wire.read_request(asked(without_roster(whole), roster_hash(other.terms.roster)), rosters)
    with pytest.raises(ProtocolError, match="32"):
        wire.read_request(asked(without_roster(whole), b"short"), rosters)
    with pytest.raises(ProtocolError, match="a roster and the hash of one"):
        wire.read_request(asked(whole, roster_hash(whole.terms.roster)), rosters)
    bare = vote_pb2.Campaign()
    bare.CopyFrom(whole)
    bare.ClearField("terms")
    with pytest.raises(ProtocolError, match="without terms"):
        wire.read_request(asked(bare, roster_hash(whole.terms.roster)), rosters)


@pytest.mark.parametrize(
    "members",
    [
        [*MEMBERS[:3], MEMBERS[2]],
        [*MEMBERS[:3], ("p03", MEMBERS[0][1], 3)],
        MEMBERS[::-1],
    ],
    ids=["a party twice", "an identity twice", "not sorted"],
)
def test_a_roster_that_cannot_be_is_refused_and_not_stored(
    members: list[tuple[str, bytes, int]],
) -> None:
    rosters, bad = Rosters(), campaign(members)
    with pytest.raises(ProtocolError, match=r"one twice|one identity"):
        wire.read_request(asked(bad), rosters)
    with pytest.raises(ProtocolError, match="not sent before"):
        wire.read_request(asked(without_roster(bad), roster_hash(bad.terms.roster)), rosters)


def test_every_field_of_a_roster_is_in_its_hash() -> None:
    found = {
        roster_hash(campaign(members).terms.roster)
        for members in (
            MEMBERS,
            MEMBERS[:3],
            [*MEMBERS[:3], ("p04", *MEMBERS[3][1:])],
            [*MEMBERS[:3], ("p03", bytes(31) + b"x", 3)],
            [*MEMBERS[:3], ("p03", MEMBERS[3][1], 4)],
        )
    }
    assert len(found) == 5


def short_of(whole: vote_pb2.Campaign, key: Ed25519PrivateKey = SERVER_KEY) -> bytes:
    return asked(without_roster(whole), roster_hash(whole.terms.roster), key)


def test_a_roster_is_of_one_campaign_of_one_server() -> None:
    rosters, whole, other = Rosters(), campaign(), campaign()
    other.id = bytes(16)
    take(whole, rosters)
    stranger = Ed25519PrivateKey.generate()
    for body in (short_of(other), short_of(whole, stranger)):
        with pytest.raises(ProtocolError, match="not sent before"):
            wire.read_request(body, rosters)
    assert wire.read_request(short_of(whole), rosters)[1].campaign == whole


def test_a_campaign_that_was_only_read_leaves_no_roster() -> None:
    """Nine strangers' rosters push none out, as only an accepted campaign's is stored."""
    rosters, whole = Rosters(), campaign()
    take(whole, rosters)
    for number in range(9):
        other = campaign()
        other.id = bytes([number]) * 16
        wire.read_request(asked(other), rosters)
        with pytest.raises(ProtocolError, match="not sent before"):
            wire.read_request(short_of(other), rosters)
    assert wire.read_request(short_of(whole), rosters)[1].campaign == whole


def test_rosters_are_few() -> None:
    """Eight campaigns', the most recently used ones; a campaign has one."""
    rosters, sent = Rosters(), []
    for number in range(9):
        sent.append(campaign([(name, key, 1 + number) for name, key, _ in MEMBERS]))
        sent[-1].id = bytes([number]) * 16
        take(sent[-1], rosters)
    with pytest.raises(ProtocolError, match="not sent before"):
        wire.read_request(short_of(sent[0]), rosters)
    assert wire.read_request(short_of(sent[1]), rosters)[1].campaign == sent[1]
    changed = campaign()
    changed.id = sent[1].id
    take(changed, rosters)
    with pytest.raises(ProtocolError, match="not sent before"):
        wire.read_request(short_of(sent[1]), rosters)
    assert wire.read_request(short_of(sent[2]), rosters)[1].campaign == sent[2]


def test_fields_that_the_protocol_has_not_are_not_stored() -> None:
    """A megabyte of a field 99 in a member, which a signature covers and nothing reads."""
    rosters, whole = Rosters(), campaign()
    field = b"\x9a\x06" + b"\x80\x80\x40" + bytes(2**20)
    stuffed = vote_pb2.Campaign()
    stuffed.CopyFrom(whole)
    stuffed.terms.roster[0].MergeFromString(field)
    assert len(asked(stuffed)) > 2**20
    request = take(stuffed, rosters)
    assert request.campaign.SerializeToString(deterministic=True) == whole.SerializeToString(
        deterministic=True
    )
    completed = wire.read_request(short_of(whole), rosters)[1]
    assert len(completed.SerializeToString()) < 2**16


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_a_bit_set_is_read_back(count: int) -> None:
    roster = [f"p{number:04d}" for number in range(count)]
    for some in (roster, [], roster[::3], roster[-1:]):
        bits = bits_from_names(some, roster)
        assert len(bits) == -(-count // 8)
        assert list(names_from_bits(bits, roster, "a list")) == some


def test_bit_sets_that_cannot_be() -> None:
    roster = [f"p{number}" for number in range(9)]
    for bits in (b"", b"\1", bytes(3), b"\0\2", b"\xff\xff"):
        with pytest.raises(ProtocolError, match="a list"):
            names_from_bits(bits, roster, "a list")
