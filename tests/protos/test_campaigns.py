"""A campaign that is sent once, and requests that have only its digest; bit sets over a roster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.data.values import Images
from pate.errors import ProtocolError
from protos import wire
from protos.bits import bits_from_names, names_from_bits
from protos.campaigns import Campaigns, NotSentError
from protos.pate.v1 import vote_pb2
from protos.terms import digest_of
from tests.support.campaign_messages import SERVER_KEY, campaign_message, terms_message

if TYPE_CHECKING:
    from google.protobuf.message import Message

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


def asked(
    of: vote_pb2.Campaign | None, digest: bytes = b"", key: Ed25519PrivateKey = SERVER_KEY
) -> bytes:
    request = vote_pb2.PartyRequest(
        version=wire.VERSION, nonce=bytes(16), campaign=of, digest=digest
    )
    request.finish.epsilon_cap, request.finish.delta = 0.0, 1e-5
    return wire.sign_request(request, key)


def short_of(whole: vote_pb2.Campaign, key: Ed25519PrivateKey = SERVER_KEY) -> bytes:
    return asked(None, digest_of(whole), key)


def take(whole: vote_pb2.Campaign, campaigns: Campaigns) -> vote_pb2.PartyRequest:
    """Read a request with its campaign as a party that accepts it."""
    offer, request = wire.read_request(asked(whole), campaigns)
    campaigns.keep(offer, request)
    return request


def test_a_request_with_the_digest_of_its_campaign_reads_as_the_whole_one() -> None:
    campaigns, whole = Campaigns(), campaign()
    first = take(whole, campaigns)
    assert len(short_of(whole)) < 180 < len(asked(whole)) - len(MEMBERS) * 40
    assert wire.read_request(short_of(whole), campaigns)[1] == first
    assert first.campaign == whole
    assert first.digest == digest_of(whole)


def test_a_digest_of_a_campaign_that_was_not_sent_is_refused() -> None:
    whole = campaign()
    for campaigns in (None, Campaigns()):
        with pytest.raises(NotSentError, match="not sent before"):
            wire.read_request(short_of(whole), campaigns)
    campaigns = Campaigns()
    take(whole, campaigns)
    other = campaign([(name, key, 2) for name, key, _ in MEMBERS])
    with pytest.raises(NotSentError):
        wire.read_request(short_of(other), campaigns)
    for body, why in (
        (asked(None, b"short"), "5 bytes, not 32"),
        (asked(None), "0 bytes, not 32"),
        (asked(whole, digest_of(whole)), "and the digest of one"),
    ):
        with pytest.raises(ProtocolError, match=why):
            wire.read_request(body, campaigns)


@pytest.mark.parametrize(
    "members",
    [
        [*MEMBERS[:3], MEMBERS[2]],
        [*MEMBERS[:3], ("p03", MEMBERS[0][1], 3)],
        MEMBERS[::-1],
    ],
    ids=["a party twice", "an identity twice", "not sorted"],
)
def test_a_campaign_that_cannot_be_is_refused_and_not_stored(
    members: list[tuple[str, bytes, int]],
) -> None:
    campaigns, bad = Campaigns(), campaign(members)
    with pytest.raises(ProtocolError, match=r"one twice|distinct keys"):
        wire.read_request(asked(bad), campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(bad), campaigns)


def test_every_field_is_in_the_digest() -> None:
    """Each field of a campaign, of its terms and of a member: another value is another digest."""
    found, count = {digest_of(campaign())}, 1

    def messages(of: vote_pb2.Campaign) -> tuple[Message, ...]:
        return of, of.terms, of.terms.roster[0]

    for at, kind in enumerate(messages(campaign())):
        for field in kind.DESCRIPTOR.fields:
            changed = campaign()
            message = messages(changed)[at]
            value = getattr(message, field.name)
            if field.message_type is not None:
                continue
            if isinstance(value, str | bytes | bool | int | float):
                other = {str: "z", bytes: b"z", bool: not value}.get(type(value), 7)
                setattr(message, field.name, other)
            else:
                value.append("z")
            found.add(digest_of(changed))
            count += 1
    assert len(found) == count > 25


def test_a_digest_is_of_one_campaign_of_one_server() -> None:
    campaigns, whole, other = Campaigns(), campaign(), campaign()
    other.id = bytes(16)
    take(whole, campaigns)
    stranger = Ed25519PrivateKey.generate()
    for body in (short_of(other), short_of(whole, stranger)):
        with pytest.raises(NotSentError):
            wire.read_request(body, campaigns)
    assert wire.read_request(short_of(whole), campaigns)[1].campaign == whole


def test_a_campaign_that_was_only_read_is_not_stored() -> None:
    """Nine strangers' campaigns push none out, as only an accepted one is stored."""
    campaigns, whole = Campaigns(), campaign()
    take(whole, campaigns)
    for number in range(9):
        other = campaign()
        other.id = bytes([number]) * 16
        wire.read_request(asked(other), campaigns)
        with pytest.raises(NotSentError):
            wire.read_request(short_of(other), campaigns)
    assert wire.read_request(short_of(whole), campaigns)[1].campaign == whole


def test_stored_campaigns_are_few() -> None:
    """Eight, the most recently used ones; of each id the last."""
    campaigns, sent = Campaigns(), []
    for number in range(9):
        sent.append(campaign([(name, key, 1 + number) for name, key, _ in MEMBERS]))
        sent[-1].id = bytes([number]) * 16
        take(sent[-1], campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(sent[0]), campaigns)
    assert wire.read_request(short_of(sent[1]), campaigns)[1].campaign == sent[1]
    changed = campaign()
    changed.id = sent[1].id
    take(changed, campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(sent[1]), campaigns)
    assert wire.read_request(short_of(sent[2]), campaigns)[1].campaign == sent[2]


def test_fields_that_the_protocol_has_not_are_refused() -> None:
    """A megabyte of a field 99 in a member, which a signature covers and nothing reads."""
    stuffed = campaign()
    stuffed.terms.roster[0].MergeFromString(b"\x9a\x06" + b"\x80\x80\x40" + bytes(2**20))
    assert len(asked(stuffed)) > 2**20
    with pytest.raises(ProtocolError, match="not of this protocol"):
        wire.read_request(asked(stuffed))


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
