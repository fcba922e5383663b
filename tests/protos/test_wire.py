"""Bytes of the network: what is accepted, and what must be refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting.events import GatedBatch
from pate.data.values import Images, Table, content_hash
from pate.errors import ProtocolError
from protos import ahead, wire
from protos.bounds import check_classes, check_name
from protos.pate.v1 import vote_pb2
from protos.public_set import pack_public_set, read_public_set
from tests.support.campaign_messages import SERVER_KEY, campaign_message, terms_message

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CAMPAIGN = b"c" * 16
NONCE = b"n" * 16
BATCH = b"b" * 32


GATE = GatedBatch(Fraction(10), Fraction(17, 20), Fraction(3, 20), Fraction(1, 100_000))
GATE_TEXT: dict[str, Any] = GATE.to_dict()
BAD_GATES: tuple[Any, ...] = (
    "{",
    [1],
    {},
    GATE_TEXT | {"more": 1},
    *(GATE_TEXT | {"order": order} for order in ("0", "20/2", "9" * 100, 10)),
    {"event": "gaussian-max", "sigma": "40", "votes_per_unit": 1},
)


def request(**changes: object) -> vote_pb2.PartyRequest:
    terms = terms_message([("a", b"a" * 32, 3), ("b", b"b" * 32, 4)])
    campaign = campaign_message(
        IMAGES, terms, id=CAMPAIGN, classes=["a", "b"], public_set=b"p" * 32, queries=10
    )
    made = vote_pb2.PartyRequest(version=wire.VERSION, nonce=NONCE)
    made.ask.batch.rows.extend(range(2, 10))
    made.ask.batch.digest = BATCH
    for path, value in changes.items():
        *above, field = path.split("__")
        target: Any = campaign if above[:1] == ["campaign"] else made
        for name in above[target is campaign :]:
            target = getattr(target, name)
        if isinstance(target, vote_pb2.Batch) and isinstance(value, list):
            del getattr(target, field)[:]
            getattr(target, field).extend(value)
        else:
            setattr(target, field, value)
    made.campaign = campaign.packed()
    return made


def read(made: vote_pb2.PartyRequest) -> vote_pb2.PartyRequest:
    return wire.read_request(wire.sign_request(made, SERVER_KEY))[1]


def test_a_valid_request_passes() -> None:
    offer, read_back = wire.read_request(wire.sign_request(request(), SERVER_KEY))
    assert offer.key == SERVER_KEY.public_key().public_bytes_raw()
    assert list(read_back.ask.batch.rows) == list(range(2, 10))


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"nonce": b"short"},
        {"campaign__id": b""},
        {"campaign__public_set": b"x" * 31},
        {"campaign__queries": 0},
        {"campaign__schema": ""},
        {"campaign__schema": "images\n8x8x1"},
        {"campaign__aggregator": "gnmax\x1b[2J"},
        {"campaign__aggregation": "x" * 65},
        {"campaign__unit": "nobody"},
        {"campaign__unit": "party"},  # of which one has 4 teachers, and one vote is charged
        {"campaign__epsilon": -1.0},
        {"campaign__delta": 0.0},
        {"campaign__aggregation": "masked"},
        {"campaign__aggregation": "some"},
        {"campaign__noise": "none"},
        {"campaign__noise": "distributed"},
        {"campaign__rounds": 0},
        {"campaign__min_parties": 0},
        {"campaign__min_parties": 3},
        {"campaign__terms__cap": "0"},
        {"campaign__terms__cap": "1/2/3"},
        {"campaign__terms__composition": ""},
        {"campaign__terms__mechanisms": []},
        {"campaign__terms__mechanisms": ["{"]},
        {"campaign__terms__mechanisms": ["[1]"]},
        {"campaign__terms__mechanisms": ['{"aggregator": "gnmax"}']},
        {"campaign__terms__mechanisms": ["[" * 100_000]},
        {"campaign__terms__gate": GATE_TEXT},  # of a campaign that is not gated
        {"campaign__terms__composition": "gate"},
        *(
            {"campaign__terms__composition": "gate", "campaign__terms__gate": bad}
            for bad in BAD_GATES
        ),
        {"ask__batch__rows": []},
        {"ask__batch__rows": [1, 1]},
        {"ask__batch__rows": [10]},
        {"ask__batch__rows": [2**63]},
        {"ask__batch__digest": b"b" * 31},
    ],
)
def test_a_request_with_one_bad_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ProtocolError):
        read(request(**change))


def test_a_gate_comes_back_as_it_was_fixed() -> None:
    changes = {"campaign__terms__composition": "gate", "campaign__terms__gate": GATE_TEXT}
    offer, _ = wire.read_request(wire.sign_request(request(**changes), SERVER_KEY))
    assert offer.require_settled().gate == GATE


def test_a_request_for_votes_needs_a_class_list() -> None:
    with pytest.raises(ProtocolError, match="class list"):
        read(request(campaign__classes=()))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(float("nan"), 1e-5), (float("inf"), 1e-5), (-1.0, 1e-5), (2.0, 1e-5), (1.0, 1e-6)],
)
def test_a_campaign_ends_at_no_other_guarantee_than_it_began_with(
    epsilon: float, delta: float
) -> None:
    ending = request()
    ending.finish.epsilon_cap, ending.finish.delta = 1.0, 1e-5
    assert read(ending).finish.epsilon_cap == 1.0
    ending.finish.epsilon_cap, ending.finish.delta = epsilon, delta
    with pytest.raises(ProtocolError, match="another guarantee"):
        read(ending)


def test_a_campaign_ends_before_any_votes_for_a_known_cause_only() -> None:
    ending = request()
    ending.finish.epsilon_cap, ending.finish.delta = 1.0, 1e-5
    ending.finish.cause = "threshold"
    assert read(ending).finish.cause == "threshold"
    ending.finish.queries_asked = 1
    with pytest.raises(ProtocolError, match="asked for nothing ended with queries"):
        read(ending)
    ending.finish.queries_asked = 0
    ending.finish.cause = "boredom"
    with pytest.raises(ProtocolError, match="ended by 'boredom'"):
        read(ending)


def test_a_class_name_is_one_line_of_text() -> None:
    with pytest.raises(ProtocolError, match="class name"):
        check_classes(["benign", "malig\nnant"])
    check_classes([f"{at:06d}" + "k" * 58 for at in range(1_024)])
    with pytest.raises(ProtocolError, match="class names of 65,600 bytes"):
        check_classes([f"{at:06d}" + "k" * 58 for at in range(1_025)])


def test_one_long_category_does_not_cost_a_machine() -> None:
    greedy = vote_pb2.PublicSet()
    greedy.table.columns.add(name="x").categories.values.extend([*["a"] * 2000, "a" * 1_000_000])
    with pytest.raises(ProtocolError, match="would take"):
        read_public_set(greedy.SerializeToString(), public_set=b"p" * 32, queries=2001)


@given(st.binary(max_size=300))
def test_noise_bytes_are_refused_and_never_crash(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.read_request(body)
    with pytest.raises(ProtocolError):
        wire.read_reply(body, campaign=CAMPAIGN, nonce=NONCE)
    with pytest.raises(ProtocolError):
        read_public_set(body, public_set=b"p" * 32, queries=3)


def reply() -> vote_pb2.Reply:
    made = vote_pb2.Reply(version=wire.VERSION, nonce=NONCE, campaign=CAMPAIGN, party="a")
    made.farewell.SetInParent()
    return made


def test_a_signed_reply_comes_back_with_its_identity() -> None:
    identity, found = wire.read_reply(wire.sign_reply(reply(), KEY), campaign=CAMPAIGN, nonce=NONCE)
    assert identity == KEY.public_key().public_bytes_raw()
    assert found.party == "a"


def test_a_replayed_reply_is_refused() -> None:
    with pytest.raises(ProtocolError, match="replayed"):
        wire.read_reply(wire.sign_reply(reply(), KEY), campaign=CAMPAIGN, nonce=b"m" * 16)


def test_a_reply_for_another_campaign_is_refused() -> None:
    with pytest.raises(ProtocolError, match="another campaign"):
        wire.read_reply(wire.sign_reply(reply(), KEY), campaign=b"d" * 16, nonce=NONCE)


@pytest.mark.parametrize("field", ["body", "identity", "signature"])
def test_a_changed_byte_breaks_the_signature(field: str) -> None:
    signed = vote_pb2.SignedReply.FromString(wire.sign_reply(reply(), KEY))
    held = bytearray(getattr(signed, field))
    held[-1] ^= 1
    setattr(signed, field, bytes(held))
    with pytest.raises(ProtocolError, match="signed"):
        wire.read_reply(signed.SerializeToString(), campaign=CAMPAIGN, nonce=NONCE)


@pytest.mark.parametrize("name", ["", "a" * 65, "../etc", "a b", "-a", "é", "a\n", "[red]x"])
def test_a_name_must_fit_a_file_and_a_screen(name: str) -> None:
    with pytest.raises(ProtocolError):
        check_name(name)


@pytest.mark.parametrize(("teachers", "width"), [(3, 1), (255, 1), (256, 2), (65_536, 4)])
def test_votes_travel_in_the_least_width(teachers: int, width: int) -> None:
    votes = np.array([[teachers, 0], [1, teachers - 1]], dtype=np.int64)
    packed = wire.pack_votes(votes, teachers=teachers, batch=BATCH)
    assert packed.width == width
    found = wire.read_votes(packed, teachers=teachers, classes=2, queries=2, batch=BATCH)
    np.testing.assert_array_equal(found, votes)


def packed_votes() -> vote_pb2.VoteMatrix:
    return wire.pack_votes(np.array([[2, 1], [0, 3]], dtype=np.int64), teachers=3, batch=BATCH)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("rows", 3, "expected"), ("rows", 2**62, "expected"), ("classes", 3, "expected"),
        ("teachers", 4, "declared"), ("width", 3, "bytes"), ("width", 2, "bytes"),
        ("counts", b"\x02\x01\x00", "bytes"), ("counts", b"\x02\x02\x00\x03", "do not sum"),
        ("counts", b"\x04\x00\x00\x03", "outside"), ("batch", b"x" * 32, "other queries"),
    ],
)  # fmt: skip
def test_a_bad_vote_matrix_is_refused(field: str, value: object, why: str) -> None:
    bad = packed_votes()
    setattr(bad, field, value)
    with pytest.raises(ProtocolError, match=why):
        wire.read_votes(bad, teachers=3, classes=2, queries=2, batch=BATCH)


IMAGES = Images(np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4, 1))
TABLE = Table(("age", "job"), (np.array([1.5, np.nan]), np.array(["nurse", ""], dtype=np.str_)))


def test_a_public_set_with_another_hash_or_size_is_refused() -> None:
    body = pack_public_set(IMAGES)
    with pytest.raises(ProtocolError, match="another hash"):
        read_public_set(body, public_set=content_hash(TABLE), queries=2)
    with pytest.raises(ProtocolError, match="announced"):
        read_public_set(body, public_set=content_hash(IMAGES), queries=3)


def test_a_public_set_that_lies_about_its_shape_allocates_nothing() -> None:
    lying = vote_pb2.PublicSet()
    lying.images.count, lying.images.height, lying.images.width = 2**31, 2**31, 2**31
    lying.images.channels = 1
    lying.images.pixels = b"abc"
    with pytest.raises(ProtocolError, match="shape"):
        read_public_set(lying.SerializeToString(), public_set=b"p" * 32, queries=2)


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


def ahead_request(what: str, *, terms: bool = True, **changes: Any) -> vote_pb2.PartyRequest:
    members = terms_message([(name, name.encode() * 32, 3) for name in NAMES])
    about: dict[str, Any] = {
        "id": CAMPAIGN, "classes": ["a", "b"], "public_set": b"p" * 32, "queries": 10,
        "aggregation": "masked", "min_parties": 3, "colluders": 1,
    }  # fmt: skip
    campaign = campaign_message(IMAGES, members if terms else None, **about | changes)
    made = vote_pb2.PartyRequest(version=wire.VERSION, nonce=NONCE, campaign=campaign.packed())
    getattr(made, what).CopyFrom(BODIES[what])
    return made


@pytest.mark.parametrize("what", BODIES)
def test_valid_requests_pass(what: str) -> None:
    assert read(ahead_request(what)).WhichOneof("body") == what


def test_bundles_are_asked_for_before_the_roster_is_complete_and_votes_are_not() -> None:
    assert read(ahead_request("ask_bundles", terms=False))
    for what in sorted(BODIES.keys() - {"ask_bundles"}):
        with pytest.raises(ProtocolError, match="before the roster"):
            read(ahead_request(what, terms=False))


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
        read(ahead_request(what, **change))


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
def test_a_request_with_keys_ahead_and_one_bad_field_is_refused(
    what: str, path: str, value: object, says: str
) -> None:
    made = ahead_request(what)
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
    made = ahead_request(what)
    change(getattr(made, what))
    with pytest.raises(ProtocolError, match=says):
        read(made)


def test_more_parties_than_can_all_mask_with_one_another() -> None:
    made = ahead_request("ask_masked_ahead")
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
