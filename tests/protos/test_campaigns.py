"""A campaign and a public set that are sent once, and the committed code of the messages."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pate.accounting.events import GatedBatch
from pate.campaign.announced import LONGEST_TEXT, Announced
from pate.campaign.offer import Offer, Settled
from pate.campaign.roster import Member, SumTerms
from pate.data.values import Images, Inputs, Table, content_hash
from pate.errors import DataError, ProtocolError
from pate.storage.hash_chain import canonical
from protos import public_set, wire
from protos.bounds import PIECE_BYTES
from protos.generate import ROOT, generate
from protos.masked import bits_from_names, names_from_bits
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedPublicSet, pack_public_set, read_public_set
from protos.terms import Campaigns, NotSentError, packed
from tests.support.campaign_messages import (
    SERVER_KEY,
    CampaignMessage,
    MemberMessage,
    campaign_message,
    terms_message,
)

PUBLIC = Images(np.zeros((5, 4, 4, 1), dtype=np.uint8))
MEMBERS = [(f"p{number:02d}", bytes([number]) * 32, 3) for number in range(4)]


def campaign(members: list[tuple[str, bytes, int]] = MEMBERS) -> CampaignMessage:
    terms = terms_message(MEMBERS)
    terms.roster = [MemberMessage(*each) for each in members]
    return campaign_message(PUBLIC, terms, classes=("x", "y"))


def asked(of: bytes, digest: bytes = b"", key: Ed25519PrivateKey = SERVER_KEY) -> bytes:
    request = vote_pb2.PartyRequest(
        version=wire.VERSION, nonce=bytes(16), campaign=of, digest=digest
    )
    request.finish.epsilon_cap, request.finish.delta = 0.0, 1e-5
    return wire.sign_request(request, key)


def digest_of(whole: CampaignMessage) -> bytes:
    """By what is promised, whether or not such a campaign can be."""
    return hashlib.sha256(b"pate/v2/terms\0" + canonical(whole.text()).encode()).digest()


def short_of(whole: CampaignMessage, key: Ed25519PrivateKey = SERVER_KEY) -> bytes:
    return asked(b"", digest_of(whole), key)


def take(whole: CampaignMessage, campaigns: Campaigns) -> Offer:
    """Read a request with its campaign as a party that accepts it."""
    offer, _ = wire.read_request(asked(whole.packed()), campaigns)
    campaigns.keep(offer)
    return offer


def test_a_request_with_the_digest_of_its_campaign_reads_as_the_whole_one() -> None:
    campaigns, whole = Campaigns(), campaign()
    first = take(whole, campaigns)
    assert len(short_of(whole)) < 180 < len(asked(whole.packed())) - len(MEMBERS) * 20
    assert wire.read_request(short_of(whole), campaigns)[0] == first == whole.offer()
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
        (asked(b"", b"short"), "5 bytes, not 32"),
        (asked(b""), "0 bytes, not 32"),
        (asked(whole.packed(), digest_of(whole)), "and the digest of one"),
    ):
        with pytest.raises(ProtocolError, match=why):
            wire.read_request(body, campaigns)


@pytest.mark.parametrize(
    "members",
    [[*MEMBERS[:3], MEMBERS[2]], [*MEMBERS[:3], ("p03", MEMBERS[0][1], 3)], MEMBERS[::-1]],
    ids=["a party twice", "an identity twice", "not sorted"],
)
def test_a_campaign_that_cannot_be_is_refused_and_not_stored(
    members: list[tuple[str, bytes, int]],
) -> None:
    campaigns, bad = Campaigns(), campaign(members)
    with pytest.raises(ProtocolError, match=r"a party twice|distinct keys"):
        wire.read_request(asked(bad.packed()), campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(bad), campaigns)


def test_every_field_is_in_the_text_and_so_in_the_digest() -> None:
    gate = GatedBatch(Fraction(10), Fraction(17, 20), Fraction(3, 20), Fraction(1, 100_000))
    one = campaign().offer()
    wanted = replace(one.announced, wanted_teachers=5)
    settled = replace(one.require_settled(), composition="gate", cap=Fraction(1), gate=gate)
    gated = Offer(key=one.key, announced=wanted, settled=settled)
    records: dict[str, Any] = {
        "aggregator": "neighbour", "most_votes": 3, "series": "s", "code": "dense-4",
    }  # fmt: skip
    voting = campaign_message(PUBLIC, **records).offer()
    found: set[str] = set()
    for each in (gated, voting):
        text = json.loads(each.text)
        members = text.get("settled", {}).get("roster", [])
        found.update(text, *text.values(), *members)
        assert each.digest == hashlib.sha256(b"pate/v2/terms\0" + each.text.encode()).digest()
    named = {each.name for kind in (Announced, SumTerms, Settled, Member) for each in fields(kind)}
    assert found == named - {"sums"} | {"announced", "settled"}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace('"delta":1e-05', '"delta":0.00001'),
        lambda text: text.replace('"announced":', '"announced":{},"announced":'),
        lambda text: text.replace('"settled":', '"more":1,"settled":'),
        lambda text: text.replace('"unit":', '"units":"record","unit":'),
        lambda text: text.replace('{"announced":', '{"key":"' + "ab" * 32 + '","announced":'),
        lambda text: text + " ",
        lambda text: text[:-1],
        lambda _: "",
        lambda _: "[" * 100_000,
        lambda _: "[1]",
        lambda _: "{}",
        lambda text: text.replace("images", "images" + " " * LONGEST_TEXT),
    ],
)
def test_a_campaign_has_one_text(change: Callable[[str], str]) -> None:
    text = canonical(campaign().text())
    assert wire.read_request(asked(packed(text)))[0].text == text
    assert change(text) != text
    with pytest.raises(ProtocolError, match="the terms of a campaign"):
        wire.read_request(asked(packed(change(text))))


def test_what_does_not_unpack_is_no_campaign() -> None:
    whole = campaign().packed()
    for bad in (whole[:-1], whole + b"x", b"\0", b"x" * 1000, bytes(1000)):
        with pytest.raises(ProtocolError, match="the terms of a campaign"):
            wire.read_request(asked(bad))


def test_a_digest_is_of_one_campaign_of_one_server() -> None:
    campaigns, whole, other = Campaigns(), campaign(), campaign()
    other.id = bytes(16)
    take(whole, campaigns)
    stranger = Ed25519PrivateKey.generate()
    for body in (short_of(other), short_of(whole, stranger)):
        with pytest.raises(NotSentError):
            wire.read_request(body, campaigns)
    assert wire.read_request(short_of(whole), campaigns)[0] == whole.offer()


def test_a_campaign_that_was_only_read_is_not_stored() -> None:
    """Nine strangers' campaigns push none out, as only an accepted one is stored."""
    campaigns, whole = Campaigns(), campaign()
    take(whole, campaigns)
    for number in range(9):
        other = campaign()
        other.id = bytes([number]) * 16
        wire.read_request(asked(other.packed()), campaigns)
        with pytest.raises(NotSentError):
            wire.read_request(short_of(other), campaigns)
    assert wire.read_request(short_of(whole), campaigns)[0] == whole.offer()


def test_stored_campaigns_are_few() -> None:
    """Eight, the most recently used ones; of each id the last."""
    campaigns, sent = Campaigns(), []
    for number in range(9):
        sent.append(campaign([(name, key, 1 + number) for name, key, _ in MEMBERS]))
        sent[-1].id = bytes([number]) * 16
        take(sent[-1], campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(sent[0]), campaigns)
    assert wire.read_request(short_of(sent[1]), campaigns)[0] == sent[1].offer()
    changed = campaign()
    changed.id = sent[1].id
    take(changed, campaigns)
    with pytest.raises(NotSentError):
        wire.read_request(short_of(sent[1]), campaigns)
    assert wire.read_request(short_of(sent[2]), campaigns)[0] == sent[2].offer()


def test_fields_that_the_protocol_has_not_are_refused() -> None:
    """A megabyte of a field 99, which a signature covers and nothing reads."""
    request = vote_pb2.PartyRequest.FromString(b"\x9a\x06" + b"\x80\x80\x40" + bytes(2**20))
    request.version, request.nonce = wire.VERSION, bytes(16)
    request.campaign = campaign().packed()
    request.finish.epsilon_cap, request.finish.delta = 0.0, 1e-5
    body = wire.sign_request(request, SERVER_KEY)
    assert len(body) > 2**20
    with pytest.raises(ProtocolError, match="not of this protocol"):
        wire.read_request(body)


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


RNG = np.random.default_rng(4)
IMAGES = Images(RNG.integers(0, 256, (300, 3, 5, 1), dtype=np.uint8))
TABLE = Table(
    ("age", "ward"), (RNG.normal(size=200), np.array([f"w{at % 7}" for at in range(200)], np.str_))
)


@pytest.mark.parametrize("inputs", [IMAGES, TABLE, IMAGES.take([0]), TABLE.take([1])])
@pytest.mark.parametrize("piece", [1, 7, 100, 10**6])
def test_slices_of_any_size_are_the_message(inputs: Inputs, piece: int) -> None:
    packed = PackedPublicSet(inputs, piece)
    body = b"".join(packed)
    assert vote_pb2.PublicSet.FromString(body).SerializeToString(deterministic=True) == body
    found = read_public_set(body, public_set=content_hash(inputs), queries=len(inputs))
    assert content_hash(found) == content_hash(inputs)
    assert all(len(each) == piece for each in packed[:-1])
    assert len(packed) == -(-len(body) // piece)
    assert packed[len(packed) - 1] == body[(len(packed) - 1) * piece :]
    with pytest.raises(IndexError):
        packed[len(packed)]
    assert pack_public_set(inputs) == body


@pytest.mark.parametrize("window", [(0, 4095), (-1024, 3071), (-5, 0), (0, 1)])
def test_a_window_travels_with_the_images(window: tuple[int, int]) -> None:
    inputs = Images(IMAGES.pixels, window)
    packed = PackedPublicSet(inputs, 7)
    digest = content_hash(inputs)
    assert digest != content_hash(IMAGES)
    found = read_public_set(b"".join(packed), public_set=digest, queries=len(inputs))
    assert isinstance(found, Images)
    assert found.window == window
    assert found.row_hashes() == IMAGES.row_hashes()
    message = vote_pb2.PublicSet.FromString(b"".join(packed))
    message.images.window_low, message.images.window_high = 9, 9
    with pytest.raises(ProtocolError, match="malformed: a window goes"):
        read_public_set(message.SerializeToString(), public_set=digest, queries=len(inputs))


def test_one_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_set, "MAX_PUBLIC_SET", 1000)
    with pytest.raises(DataError, match="too large"):
        PackedPublicSet(IMAGES)
    with pytest.raises(DataError, match="too large"):
        PackedPublicSet(TABLE)


def test_images_in_a_file_are_not_read_into_memory_whole(tmp_path: Path) -> None:
    size = 24 * PIECE_BYTES
    whole = np.lib.format.open_memmap(
        tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(size // 64, 8, 8, 1)
    )
    whole[::1000] = 7
    whole.flush()
    del whole
    packed = PackedPublicSet(Images(np.load(tmp_path / "x.npy", mmap_mode="r")))
    tracemalloc.start()
    try:
        total = sum(len(each) for each in packed)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total > size
    assert peak < 4 * PIECE_BYTES


def test_generated_code_is_not_stale(tmp_path: Path) -> None:
    generate(tmp_path)
    made = {p.relative_to(tmp_path): p.read_text() for p in tmp_path.rglob("*_pb2*")}
    held = {
        p.relative_to(ROOT): p.read_text()
        for p in (ROOT / "protos").rglob("*_pb2*.py*")
        if p.suffix != ".pyc"
    }
    assert made.keys() == held.keys()
    stale = sorted(str(name) for name in made if made[name] != held[name])
    assert not stale, f"stale: {stale}; run `make protos`"
