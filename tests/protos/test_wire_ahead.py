"""Requests and replies of sums whose keys come ahead: every bound, on arrival."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pate.errors import ProtocolError
from protos import ahead, wire
from protos.pate.v1 import vote_pb2
from tests.protos.test_wire import BATCH, CAMPAIGN, IMAGES, NONCE
from tests.support.campaign_messages import SERVER_KEY, campaign_message, terms_message

NAMES = ("a", "b", "c", "d")
KEYS = vote_pb2.MaskingKeys(
    mask_key=b"m" * 32, share_key=b"s" * 32, seed_commitment=b"c" * 32, signature=b"g" * 64
)
SIGNED = [vote_pb2.PeerSignature(party=name, signature=b"g" * 64) for name in NAMES]
#: A valid request of each kind.
BODIES = {
    "ask_bundles": vote_pb2.AskBundles(
        roster=[
            vote_pb2.SealingMember(
                party=name,
                identity=name.encode() * 32,
                sealing=vote_pb2.SealingKey(key=b"k" * 32, signature=b"g" * 64),
            )
            for name in NAMES
        ],
        threshold=3,
        colluders=1,
        count=2,
    ),
    "ask_masked_ahead": vote_pb2.AskMaskedAhead(
        attempt=b"t" * 16,
        batch=vote_pb2.Batch(rows=range(2, 10), digest=BATCH),
        roster=b"r" * 32,
        bundles=[vote_pb2.PeerBundle(party=name, keys=KEYS, box=b"x" * 82) for name in NAMES],
    ),
    "ask_consent_ahead": vote_pb2.AskConsentAhead(attempt=b"t" * 16, masked=SIGNED),
    "ask_opening_ahead": vote_pb2.AskOpeningAhead(
        attempt=b"t" * 16, masked=SIGNED, consents=SIGNED[:3]
    ),
}


def request(what: str, *, terms: bool = True, **changes: Any) -> vote_pb2.PartyRequest:
    members = terms_message([(name, name.encode() * 32, 3) for name in NAMES])
    about: dict[str, Any] = {
        "id": CAMPAIGN, "classes": ["a", "b"], "public_set": b"p" * 32, "queries": 10,
        "aggregation": "masked", "min_parties": 3, "colluders": 1,
    }  # fmt: skip
    campaign = campaign_message(IMAGES, members if terms else None, **about | changes)
    made = vote_pb2.PartyRequest(version=wire.VERSION, nonce=NONCE, campaign=campaign.packed())
    getattr(made, what).CopyFrom(BODIES[what])
    return made


def read(made: vote_pb2.PartyRequest) -> vote_pb2.PartyRequest:
    return wire.read_request(wire.sign_request(made, SERVER_KEY))[1]


@pytest.mark.parametrize("what", BODIES)
def test_valid_requests_pass(what: str) -> None:
    assert read(request(what)).WhichOneof("body") == what


def test_bundles_are_asked_for_before_the_roster_is_complete_and_votes_are_not() -> None:
    assert read(request("ask_bundles", terms=False))
    for what in sorted(BODIES.keys() - {"ask_bundles"}):
        with pytest.raises(ProtocolError, match="before the roster"):
            read(request(what, terms=False))


@pytest.mark.parametrize(
    ("what", "change", "says"),
    [
        ("ask_bundles", {"vote_proofs": True}, "proofs of votes"),
        ("ask_bundles", {"aggregation": "plain"}, "plain"),
        ("ask_masked_ahead", {"vote_proofs": True}, "proofs of votes"),
    ],
)
def test_not_every_campaign_has_bundles(what: str, change: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        read(request(what, **change))


#: A field, what it is set to, and what is said.
BAD: tuple[tuple[str, str, Any, str], ...] = (
    ("ask_bundles", "count", 0, "0 bundles"),
    ("ask_bundles", "count", 65, "65 bundles"),
    ("ask_bundles", "first", 2**32 - 1, "there are not"),
    ("ask_bundles", "threshold", 4, "another threshold"),
    ("ask_bundles", "colluders", 0, "another threshold"),
    ("ask_bundles", "roster 0 identity", b"z" * 32, "another roster"),
    ("ask_bundles", "roster 0 sealing key", b"k", "sealing key has 1 bytes"),
    ("ask_bundles", "roster 0 sealing signature", b"", "0 bytes"),
    ("ask_masked_ahead", "attempt", b"", "attempt"),
    ("ask_masked_ahead", "roster", b"", "roster"),
    ("ask_masked_ahead", "bundles 1 party", "a", "one twice"),
    ("ask_masked_ahead", "bundles 1 box", b"x" * 513, "513 bytes"),
    ("ask_masked_ahead", "bundles 1 keys mask_key", b"m" * 33, "33 bytes"),
    ("ask_consent_ahead", "attempt", b"t", "attempt"),
    ("ask_opening_ahead", "attempt", b"t", "attempt"),
    ("ask_opening_ahead", "masked 0 signature", b"g" * 63, "63 bytes"),
    ("ask_opening_ahead", "consents 0 party", "A/b", "calls itself|not sorted"),
)


@pytest.mark.parametrize(("what", "path", "value", "says"), BAD)
def test_a_request_with_one_bad_field_is_refused(
    what: str, path: str, value: object, says: str
) -> None:
    made = request(what)
    *above, field = path.split()
    target = getattr(made, what)
    for name in above:
        target = target[int(name)] if name.isdigit() else getattr(target, name)
    setattr(target, field, value)
    with pytest.raises(ProtocolError, match=says):
        read(made)


@pytest.mark.parametrize(
    ("what", "change", "says"),
    [
        ("ask_bundles", lambda asked: asked.roster.pop(), "another roster"),
        ("ask_bundles", lambda asked: asked.roster.reverse(), "not sorted"),
        ("ask_masked_ahead", lambda asked: asked.batch.rows.append(2), "twice"),
        ("ask_masked_ahead", lambda asked: asked.bundles.reverse(), "not sorted"),
        ("ask_consent_ahead", lambda asked: asked.masked.reverse(), "not sorted"),
    ],
)
def test_a_request_with_a_bad_list_is_refused(
    what: str, change: Callable[[Any], object], says: str
) -> None:
    made = request(what)
    change(getattr(made, what))
    with pytest.raises(ProtocolError, match=says):
        read(made)


def test_more_parties_than_can_all_mask_with_one_another() -> None:
    made = request("ask_masked_ahead")
    del made.ask_masked_ahead.bundles[:]
    made.ask_masked_ahead.bundles.extend(
        vote_pb2.PeerBundle(party=f"p{number:03d}", keys=KEYS) for number in range(129)
    )
    with pytest.raises(ProtocolError, match="129 bundles"):
        read(made)


def test_bundles_that_were_not_asked_for() -> None:
    asked = BODIES["ask_bundles"]
    assert isinstance(asked, vote_pb2.AskBundles)
    boxes = [vote_pb2.Box(party=name, content=b"x" * 82) for name in NAMES[1:]]
    good = vote_pb2.Bundles(
        bundles=[
            vote_pb2.Bundle(number=number, roster=b"r" * 32, keys=KEYS, boxes=boxes)
            for number in range(2)
        ]
    )
    ahead.check_bundles(good, asked)
    for number, roster, count, says in (
        (5, b"r" * 32, 3, "not asked for"), (1, b"r", 3, "roster has 1"), (1, b"r" * 32, 2, "2 boxes"),
    ):  # fmt: skip
        bad = vote_pb2.Bundles()
        bad.CopyFrom(good)
        bad.bundles[1].number, bad.bundles[1].roster = number, roster
        del bad.bundles[1].boxes[count:]
        with pytest.raises(ProtocolError, match=says):
            ahead.check_bundles(bad, asked)


def test_a_description_with_half_a_sealing_key() -> None:
    said = vote_pb2.Description(teachers=1, classes=["a", "b"], unit="record")
    wire.check_description(said)
    said.sealing.key = b"k" * 32
    with pytest.raises(ProtocolError, match="signature of a sealing key"):
        wire.check_description(said)
    said.sealing.signature = b"g" * 64
    wire.check_description(said)
