"""A whole masked sum byte for byte, and messages that must be refused, from ``vectors/``.

What is derived is worked out here once more from the text of the protocol, without its code.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pate import errors
from pate.masking import shamir
from pate.masking.context import Context, Member
from pate.masking.keys import Keys
from pate.masking.party import PartyMasking
from pate.masking.ring import ChaChaStream, Ring
from pate.masking.server import ServerMasking
from pate.masking.shamir import UnmaskingShares
from tests.support.masking.attempts import flat_context
from tests.support.masking.by_the_text import (
    PRIME,
    chacha_blocks,
    encoded,
    hkdf,
    number,
    sha,
    value_at,
)

Json = Any

PLACE = Path(__file__).parent / "vectors"


def read(name: str) -> Json:
    return json.loads((PLACE / name).read_text(encoding="utf-8"))


RUN = read("run.json")
NAMES = list(RUN["keys"])
SURVIVORS = RUN["survivors"]
#: The calls of a party and of the server, in their order.
CALLS = ["keys", "shares", "mask", "sign_survivors", "unmask"]
TAKES = ["take_keys", "take_boxes", "take_masked", "take_signature", "take_unmasking"]


def unhex(value: Json) -> Json:
    if isinstance(value, str):
        return bytes.fromhex(value)
    if isinstance(value, dict):
        return {name: unhex(each) for name, each in value.items()}
    return [unhex(each) for each in value]


def context_of(fields: Json) -> Context:
    raw = {name: unhex(fields[name]) for name in ("campaign", "attempt", "batch", "terms")}
    members = tuple(Member(each["name"], unhex(each["identity"])) for each in fields["members"])
    return flat_context(**{**fields, **raw, "members": members})


def keys_of(fields: Json) -> Keys:
    return Keys(**unhex(fields))


def message(call: str, given: Json) -> Json:
    """The argument of a call, from JSON."""
    if call == "shares":
        return {name: keys_of(fields) for name, fields in given.items()}
    if call == "take_keys":
        return keys_of(given)
    if call == "take_unmasking":
        return UnmaskingShares(**unhex(given))
    return given if call == "sign_survivors" else unhex(given)


def boxes_for(name: str) -> dict[str, str]:
    return {peer: sealed[name] for peer, sealed in RUN["boxes"].items() if peer != name}


def good(call: str, name: str) -> Json:
    """What a party is given in the run."""
    return {
        "shares": RUN["keys"], "mask": boxes_for(name), "sign_survivors": SURVIVORS,
        "unmask": RUN["signatures"],
    }[call]  # fmt: skip


def replay(call: str, party: PartyMasking, given: Json) -> Json:
    if call == "keys":
        return party.keys()
    argument = message(call, given)
    if call == "mask":
        return party.mask(argument, np.array(RUN["votes"][party.name], dtype=np.int64))
    return getattr(party, call)(argument)


def party_before(call: str, name: str) -> PartyMasking:
    """A party of the run that waits for ``call``."""
    drawn = iter(unhex(RUN["drawn"][name]))

    def tape(count: int) -> bytes:
        raw: bytes = next(drawn)
        assert len(raw) == count
        return raw

    party = PartyMasking(
        context_of(RUN["context"]), name=name,
        identity=Ed25519PrivateKey.from_private_bytes(unhex(RUN["identities"][name])),
        random=tape,
    )  # fmt: skip
    for step in CALLS[: CALLS.index(call)]:
        replay(step, party, None if step == "keys" else good(step, name))
    return party


def answers(take: str) -> Json:
    """What the server gets with one of its calls, by party."""
    which = dict(zip(TAKES, ("keys", "boxes", "masked", "signatures", "openings"), strict=True))
    return RUN[which[take]]


def server_before(take: str) -> ServerMasking:
    server = ServerMasking(context_of(RUN["context"]))
    for step in TAKES[: TAKES.index(take)]:
        for name, given in answers(step).items():
            getattr(server, step)(name, message(step, given))
        server.advance()
    return server


# --- the run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_party_says_what_it_said(name: str) -> None:
    party = party_before("keys", name)
    assert party.keys() == keys_of(RUN["keys"][name])
    if name in RUN["boxes"]:
        assert replay("shares", party, good("shares", name)) == unhex(RUN["boxes"][name])
    if name not in SURVIVORS:
        return
    assert replay("mask", party, good("mask", name)).hex() == RUN["masked"][name]
    signature = replay("sign_survivors", party, SURVIVORS)
    assert signature.hex() == RUN["signatures"][name]
    opening = replay("unmask", party, RUN["signatures"])
    assert opening == UnmaskingShares(**unhex(RUN["openings"][name]))


def test_the_server_comes_to_the_sum() -> None:
    server = server_before("take_unmasking")
    assert list(server.survivors) == SURVIVORS
    for name, given in RUN["openings"].items():
        server.take_unmasking(name, message("take_unmasking", given))
    server.advance()
    votes = np.sum([RUN["votes"][name] for name in SURVIVORS], axis=0)
    assert server.result().tolist() == RUN["sum"] == (votes % 2**16).tolist()
    assert server.faults == ()


# --- once more, by the text ------------------------------------------------------------------


def test_the_digests() -> None:
    fields = RUN["context"]
    roster = [
        part
        for each in fields["members"]
        for part in (each["name"].encode(), unhex(each["identity"]))
    ]
    context = sha(
        "context", number(2), unhex(fields["campaign"]), unhex(fields["attempt"]),
        unhex(fields["batch"]), encoded("roster", *roster),
        *(number(fields[name]) for name in ("rows", "classes", "bits", "threshold", "colluders")),
        unhex(fields["terms"]),
    )  # fmt: skip
    assert context.hex() == RUN["digest"] == context_of(fields).digest.hex()
    keys = {name: unhex(each) for name, each in RUN["keys"].items()}
    one, two, three, four, five = (
        sha("announced keys", name.encode(), *(keys[name][kind] for kind in KINDS))
        for name in sorted(keys)
    )
    left = join(join(one, two), join(three, four))
    names = encoded("names", *(name.encode() for name in sorted(keys)))
    assert sha("announced", context, names, join(left, five)).hex() == RUN["announced"]


def join(left: bytes, right: bytes) -> bytes:
    return sha("announced node", left, right)


KINDS = ("mask_key", "share_key", "seed_commitment")


@pytest.mark.parametrize("name", NAMES)
def test_keys_commitments_and_signatures(name: str) -> None:
    keys, context = unhex(RUN["keys"][name]), unhex(RUN["digest"])
    mask, share, seed, *_ = unhex(RUN["drawn"][name])
    for private, kind in ((mask, "mask_key"), (share, "share_key")):
        public = X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
        assert public == keys[kind]
    assert keys["seed_commitment"] == sha("seed", context, name.encode(), seed)
    identities = {each["name"]: unhex(each["identity"]) for each in RUN["context"]["members"]}
    identity = Ed25519PublicKey.from_public_bytes(identities[name])
    signed = encoded("signed keys", context, name.encode(), *(keys[kind] for kind in KINDS))
    identity.verify(keys["signature"], signed)
    if name in SURVIVORS:
        listed = encoded("names", *(each.encode() for each in SURVIVORS))
        identity.verify(
            unhex(RUN["signatures"][name]),
            encoded("signed survivors", context, unhex(RUN["announced"]), listed),
        )


def agreed(one: str, other: str, kind: str) -> bytes:
    private = unhex(RUN["drawn"][one])[{"mask_key": 0, "share_key": 1}[kind]]
    public = X25519PublicKey.from_public_bytes(unhex(RUN["keys"][other][kind]))
    return X25519PrivateKey.from_private_bytes(private).exchange(public)


def test_mask_keys() -> None:
    bound = unhex(RUN["digest"]), unhex(RUN["announced"])
    for name, key in RUN["own_mask_keys"].items():
        seed = unhex(RUN["drawn"][name])[2]
        assert hkdf(seed, encoded("own mask", *bound, name.encode())).hex() == key
    assert len(RUN["pair_mask_keys"]) == 6
    for one, other, key in RUN["pair_mask_keys"]:
        named = [
            part
            for name in sorted((one, other))
            for part in (name.encode(), unhex(RUN["keys"][name]["mask_key"]))
        ]
        secret = agreed(one, other, "mask_key")
        assert secret == agreed(other, one, "mask_key")
        assert hkdf(secret, encoded("pair mask", *bound, *named)).hex() == key


def test_masked_votes_are_votes_and_masks() -> None:
    count = RUN["context"]["rows"] * RUN["context"]["classes"]
    pairs = {(one, other): stretched(unhex(key), count) for one, other, key in pair_keys()}
    for name, masked in RUN["masked"].items():
        total = np.array(RUN["votes"][name]).ravel()
        own = stretched(unhex(RUN["own_mask_keys"][name]), count)
        assert own.tolist() == RUN["own_masks"][name]
        total = total + own
        for (one, other), mask in pairs.items():
            total = total + mask if one == name else total - mask if other == name else total
        assert (total % 2**16).astype("<u2").tobytes().hex() == masked


def pair_keys() -> list[tuple[str, str, str]]:
    return [(one, other, key) for one, other, key in RUN["pair_mask_keys"]]


def stretched(key: bytes, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(b"".join(chacha_blocks(key, 2 * count)), "<u2")[:count].astype(np.int64)


def test_boxes_hold_shares_that_give_the_secrets_back() -> None:
    bound = unhex(RUN["digest"]), unhex(RUN["announced"])
    points = {name: at for at, name in enumerate(NAMES, 1)}
    for sender, sealed in RUN["boxes"].items():
        mask, _, seed, *coefficients = unhex(RUN["drawn"][sender])
        for kind, secret, drawn in zip((0, 1), (seed, mask), coefficients, strict=True):
            for recipient, box in sealed.items():
                about = encoded(
                    "box", *bound,
                    sender.encode(), unhex(RUN["keys"][sender]["share_key"]),
                    recipient.encode(), unhex(RUN["keys"][recipient]["share_key"]),
                )  # fmt: skip
                key = hkdf(agreed(sender, recipient, "share_key"), about)
                held = ChaCha20Poly1305(key).decrypt(bytes(12), unhex(box), about)
                assert len(held) == 66
                share = int.from_bytes(held[33 * kind : 33 * kind + 33], "little")
                assert share == value_at(points[recipient], secret, drawn)
                for opening in (RUN["openings"].get(recipient),):
                    revealed = opening and opening[("seed_shares", "key_shares")[kind]].get(sender)
                    assert not revealed or unhex(revealed) == held[33 * kind : 33 * kind + 33]


def test_nobody_opened_both_secrets_of_a_party() -> None:
    for opening in RUN["openings"].values():
        assert set(opening["seed_shares"]) == set(SURVIVORS)
        assert set(opening["key_shares"]) == set(RUN["boxes"]) - set(SURVIVORS)


# --- shares and masks ------------------------------------------------------------------------

SHARES = read("shares.json")


def named(cases: list[Json]) -> list[Any]:
    return [pytest.param(case, id=f"{case.get('to', '')} {case['name']}") for case in cases]


@pytest.mark.parametrize("case", named(SHARES["cases"]))
def test_shares(case: Json) -> None:
    assert int(SHARES["prime"]) == PRIME == shamir.PRIME
    secret, drawn = unhex(case["secret"]), unhex(case["drawn"])
    threshold = case["threshold"]
    points = [int(point) for point in case["shares"]]
    found = shamir.split(secret, threshold, points, lambda count: drawn[:count])
    for point, share in case["shares"].items():
        assert shamir.to_bytes(found[int(point)]).hex() == share
        assert found[int(point)] == value_at(int(point), secret, drawn)
        assert shamir.from_bytes(unhex(share), "a share") == found[int(point)]
    for some in itertools.combinations(points, threshold):
        value = shamir.combine([found[at] for at in some], shamir.weights(some))
        assert shamir.secret_of(value) == secret


@pytest.mark.parametrize("case", named(SHARES["bad"]))
def test_shares_that_are_none(case: Json) -> None:
    with pytest.raises(getattr(errors, case["error"]), match=re.escape(case["says"])):
        shamir.from_bytes(unhex(case["share"]), "a share")


@pytest.mark.parametrize("case", named(read("masks.json")))
def test_masks(case: Json) -> None:
    ring, count = Ring(case["bits"]), len(case["mask"])
    assert ChaChaStream(ring)(unhex(case["key"]), count).tolist() == case["mask"]
    raw = b"".join(chacha_blocks(unhex(case["key"]), count * case["bits"] // 8))
    dtype = np.dtype(f"<u{case['bits'] // 8}")
    assert np.frombuffer(raw, dtype)[:count].tolist() == case["mask"]


# --- what must be refused --------------------------------------------------------------------


@pytest.mark.parametrize("case", named(read("bad_contexts.json")))
def test_contexts_that_are_none(case: Json) -> None:
    with pytest.raises(getattr(errors, case["error"]), match=re.escape(case["says"])):
        context_of(case["given"])


BAD = read("bad_messages.json")


@pytest.mark.parametrize("case", named([case for case in BAD if case["to"] != "server"]))
def test_a_party_refuses(case: Json) -> None:
    call, name = case["call"], case["to"]
    party = party_before(call, name)
    if case.get("again"):
        before = replay(call, party, good(call, name))
    phase = party.phase
    with pytest.raises(getattr(errors, case["error"]), match=re.escape(case["says"])):
        replay(call, party, case["given"])
    assert party.phase is phase
    # It is as it was: what it should answer it still does, with the bytes of the run.
    answer = replay(call, party, good(call, name))
    if case.get("again"):
        assert answer == before
    untouched = party_before(call, name)
    assert answer == replay(call, untouched, good(call, name))


@pytest.mark.parametrize("case", named([case for case in BAD if case["to"] == "server"]))
def test_the_server_refuses(case: Json) -> None:
    take, (name, given) = case["call"], case["given"]
    server = server_before(take)
    refused = pytest.raises(getattr(errors, case["error"]), match=re.escape(case["says"]))
    if case.get("refused_by") == "advance":
        for peer, each in answers(take).items():
            getattr(server, take)(peer, message(take, given if peer == name else each))
        with refused:
            server.advance()
        with pytest.raises(errors.ProtocolError, match="no sum yet"):
            server.result()
        return
    for peer, each in answers(take).items():
        if peer != name:
            getattr(server, take)(peer, message(take, each))
    before = (server.phase, server.awaited, server.answered)
    with refused:
        getattr(server, take)(name, message(take, given))
    assert before == (server.phase, server.awaited, server.answered)
    finish(server, take)
    assert server.result().tolist() == RUN["sum"]


def finish(server: ServerMasking, take: str) -> None:
    """Give a server the rest of the run."""
    for step in TAKES[TAKES.index(take) :]:
        for name, given in answers(step).items():
            taken: Callable[[str, Json], None] = getattr(server, step)
            taken(name, message(step, given))
        server.advance()


def test_there_are_vectors_for_every_call() -> None:
    assert {case["call"] for case in BAD} == {*CALLS[1:], *TAKES}
    names = [(case["to"], case["call"], case["name"]) for case in BAD]
    assert len(names) == len(set(names)) > 60
