"""Bundle and answer: read back as written, and refused when anything in them is changed."""

from __future__ import annotations

import datetime as dt
import json
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator_server.identities.authority import make_authority
from pate.errors import ProtocolError
from pate.formats.enrolment import (
    MAX_FILE,
    Answer,
    Bundle,
    SealingKey,
    check_name,
    fingerprint,
    line_of_party,
    split_address,
    verifier_of,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OURS, OTHERS = (make_authority((), NOW).certificate for _ in range(2))
IDENTITY, NODE = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())
BUNDLE = Bundle("hospital_a", "127.0.0.1:9092", OURS, bytes(range(32)), bytes(32), 2_000_000_000)
SEALING = SealingKey(bytes(32), bytes(64))
ANSWER = Answer.make(BUNDLE, IDENTITY, NODE, SEALING)


def test_both_files_are_read_back_as_they_were() -> None:
    assert Bundle.from_json(BUNDLE.to_json()) == BUNDLE
    assert Answer.from_json(ANSWER.to_json()) == ANSWER
    ca = json.dumps(OURS.decode())
    assert BUNDLE.to_json().decode() == (
        '{\n "format": "pate-enrolment-bundle/1",\n "name": "hospital_a",\n'
        f' "server": "127.0.0.1:9092",\n "ca": {ca},\n "code": "{bytes(range(32)).hex()}",\n'
        f' "campaign_key": "{"00" * 32}",\n "expires": 2000000000\n}}\n'
    )
    assert list(json.loads(ANSWER.to_json())) == [
        "format", "name", "identity", "node", "by_identity", "by_node", "by_code", "sealing",
    ]  # fmt: skip
    assert json.loads(ANSWER.to_json())["node"] == ANSWER.node.hex()
    assert max(len(BUNDLE.to_json()), len(ANSWER.to_json())) < MAX_FILE / 4


def test_an_answer_is_signed_by_both_keys_and_by_the_code() -> None:
    ANSWER.check_keys(fingerprint(OURS))
    assert ANSWER.made_with(verifier_of(BUNDLE.code), fingerprint(OURS))


def test_an_answer_holds_no_secret() -> None:
    body = ANSWER.to_json()
    assert BUNDLE.code.hex().encode() not in body
    assert IDENTITY.private_bytes_raw().hex().encode() not in body
    number = NODE.private_numbers().private_value
    assert f"{number:x}".encode() not in body


def test_what_the_server_keeps_of_a_code_makes_no_answer() -> None:
    """A reader of the server's records cannot answer in a party's place."""
    verifier = verifier_of(BUNDLE.code)
    forged = Answer.make(replace(BUNDLE, code=verifier), IDENTITY, NODE, SEALING)
    assert not forged.made_with(verifier, fingerprint(OURS))


def test_another_code_does_not_fit() -> None:
    assert not ANSWER.made_with(verifier_of(bytes(32)), fingerprint(OURS))


def test_an_answer_is_good_for_one_server() -> None:
    with pytest.raises(ProtocolError, match="another server"):
        ANSWER.check_keys(fingerprint(OTHERS))
    assert not ANSWER.made_with(verifier_of(BUNDLE.code), fingerprint(OTHERS))


OTHER = Answer.make(
    replace(BUNDLE, code=bytes(32)),
    Ed25519PrivateKey.generate(),
    ec.generate_private_key(ec.SECP384R1()),
    SEALING,
)


ALTERED = (
    {"sealing": SealingKey(bytes(32), bytes([1]) * 64)}, {"name": "hospital_b"},
    {"identity": OTHER.identity}, {"node": OTHER.node}, {"by_identity": OTHER.by_identity},
    {"by_node": OTHER.by_node}, {"identity": OTHER.identity, "by_identity": OTHER.by_identity},
    {"node": OTHER.node, "by_node": OTHER.by_node},
)  # fmt: skip


def test_no_part_of_an_answer_can_be_exchanged() -> None:
    for other in ALTERED:
        parts: Any = other
        with pytest.raises(ProtocolError, match="altered"):
            replace(ANSWER, **parts).check_keys(fingerprint(OURS))


def test_the_code_covers_keys_that_sign_themselves() -> None:
    """A man in the middle inserts his own keys; they sign validly, but he lacks the code."""
    swapped = replace(OTHER, by_code=ANSWER.by_code)
    swapped.check_keys(fingerprint(OURS))
    assert not swapped.made_with(verifier_of(BUNDLE.code), fingerprint(OURS))


@pytest.mark.parametrize("which", ["identity", "node"])
def test_one_key_cannot_be_exchanged_by_somebody_who_signs_for_his_own(which: str) -> None:
    """He knows all that is public, and can sign the right text with a key of his own."""
    other_code = replace(BUNDLE, code=bytes(32))
    if which == "node":
        his = Answer.make(other_code, IDENTITY, ec.generate_private_key(ec.SECP384R1()), SEALING)
        mixed = replace(his, by_identity=ANSWER.by_identity, by_code=ANSWER.by_code)
    else:
        his = Answer.make(other_code, Ed25519PrivateKey.generate(), NODE, SEALING)
        mixed = replace(his, by_node=ANSWER.by_node, by_code=ANSWER.by_code)
    his.check_keys(fingerprint(OURS))
    with pytest.raises(ProtocolError, match="altered"):
        mixed.check_keys(fingerprint(OURS))
    assert not mixed.made_with(verifier_of(BUNDLE.code), fingerprint(OURS))


def test_the_signatures_cannot_stand_for_each_other() -> None:
    with pytest.raises(ProtocolError, match="altered"):
        replace(ANSWER, by_identity=ANSWER.by_code).check_keys(fingerprint(OURS))
    stood_in = replace(ANSWER, by_code=ANSWER.by_identity)
    assert not stood_in.made_with(ANSWER.identity, fingerprint(OURS))


@given(st.integers(0, len(ANSWER.to_json()) - 1), st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_is_refused_or_changes_nothing(at: int, difference: int) -> None:
    body = bytearray(ANSWER.to_json())
    body[at] ^= difference
    try:
        read = Answer.from_json(bytes(body))
        read.check_keys(fingerprint(OURS))
    except ProtocolError:
        return
    fits = read.made_with(verifier_of(BUNDLE.code), fingerprint(OURS))
    assert not fits or read == ANSWER  # white space between two fields


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(max_examples=100, deadline=None)
def test_anything_else_is_refused(body: bytes) -> None:
    for kind in (Answer, Bundle):
        with pytest.raises(ProtocolError):
            kind.from_json(body)


def p256() -> str:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    ).hex()


def compressed() -> str:
    """The node key of the answer in the other form that its curve allows."""
    point = NODE.public_key().public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    return "3046301006072a8648ce3d020106052b81040022033200" + point.hex()


#: For each kind of file fields with another value, None for one that is taken out, and what is said.
NONE: tuple[tuple[type[Answer | Bundle], str, object, str], ...] = (
    (Answer, "node", compressed(), "not its own"),
    (Answer, "by_code", None, "lacks fields: 'by_code'"),
    (Answer, "more", "1", "has unknown fields: 'more'"),
    (Answer, "format", "pate-enrolment-answer/2", "another version"),
    (Answer, "format", "pate-enrolment-bundle/1", "another version"),
    (Answer, "name", "../a", "cannot be a party's name"),
    (Answer, "name", 7, "name must be text, got 7"),
    (Answer, "identity", "00" * 31, "31 bytes, not 32"),
    (Answer, "identity", "zz", "hexadecimal"),
    (Answer, "by_identity", "", "0 bytes, not 64"),
    (Answer, "by_node", "", "signature of the node key"),
    (Answer, "by_node", "00" * 105, "signature of the node key"),
    (Answer, "node", "", "empty or too long"),
    (Answer, "node", "00" * 300, "empty or too long"),
    (Answer, "node", "00" * 100, "cannot be read"),
    (Answer, "node", p256(), "P-384"),
    (Answer, "node", ANSWER.node.hex() + "00", "cannot be read|not its own"),
    (Bundle, "code", "00" * 16, "16 bytes, not 32"),
    (Bundle, "campaign_key", "00", "1 bytes, not 32"),
    (Bundle, "expires", "soon", "whole number"),
    (Bundle, "expires", True, "whole number"),
    (Bundle, "expires", -1, "at no time"),
    *((Bundle, "server", each, "no server address") for each in ("", "a b:1", "a:1/x", "a@b:1")),
    (Bundle, "name", "\ud800", "name must be text"),
    (Bundle, "name", "é", "cannot be a party's name"),
    (Bundle, "ca", "\ud800", "not of ASCII"),
    (Bundle, "ca", "no certificate", "no certificate of an authority"),
    (Bundle, "ca", (OURS + OTHERS).decode(), "one authority"),
    (Bundle, "ca", None, "lacks fields: 'ca'"),
    (Bundle, "ca", 7, "hexadecimal"),
)


def test_a_file_that_is_none_is_refused_in_words() -> None:
    for kind, name, value, words in NONE:
        fields = json.loads((ANSWER if kind is Answer else BUNDLE).to_json())
        fields[name] = value
        if value is None:
            del fields[name]
        with pytest.raises(ProtocolError, match=words):
            kind.from_json(json.dumps(fields).encode())


def test_files_that_are_too_large_or_too_deep_are_refused() -> None:
    with pytest.raises(ProtocolError, match="at most 8192"):
        Answer.from_json(b" " * (MAX_FILE + 1))
    with pytest.raises(ProtocolError, match="no file of enrolment"):
        Answer.from_json(b"[" * MAX_FILE)


def test_names_that_can_be_one_and_those_that_cannot() -> None:
    for name in ("a", "hospital_a", "St.Mary-2", "9", "a" * 64):
        assert check_name(name) == name
    for name in ("", ".", "-a", "a/b", "a b", "é", "a" * 65, "a\n"):
        with pytest.raises(ProtocolError, match="cannot be a party's name"):
            check_name(name)


ADDRESSES = {
    "pate.example.org:9092": ("pate.example.org", 9092), "localhost:1": ("localhost", 1),
    "192.0.2.7:65535": ("192.0.2.7", 65535), "[2001:db8::7]:9092": ("2001:db8::7", 9092),
    "pate_server:9092": ("pate_server", 9092),
}  # fmt: skip
NO_ADDRESSES = (
    "", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:١", "[a]:1", "[192.0.2.7]:1", "2001:db8::7:9092",
    "[fe80::1%eth0]:1", "192.168.1.300:1", "10.1:1", "a/b:1", "a#b:1", "user@a:1", "a:1\n", "\ud800:1",
)  # fmt: skip


def test_addresses_of_servers_and_what_is_none() -> None:
    for address, parts in ADDRESSES.items():
        assert split_address(address) == parts
    for address in NO_ADDRESSES:
        with pytest.raises(ProtocolError, match=r"no server address; write host:port$"):
            split_address(address)
    with pytest.raises(ProtocolError, match=r"write host:port, without https://$"):
        split_address("https://pate.example.org:9092")


def test_a_party_can_be_put_into_a_policy() -> None:
    for name in ("a", "hospital_a", "a-b", "7", "a.b", "1.5"):
        line = line_of_party(name, bytes(range(32)))
        assert tomllib.loads(f"[parties]\n{line}\n") == {"parties": {name: bytes(range(32)).hex()}}
