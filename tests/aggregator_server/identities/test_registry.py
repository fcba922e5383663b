"""The registry: one-time codes, keys of one party each, and concurrent processes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.identities import Identities
from aggregator_server.identities.registry import ENROLLED, INVITED, REVOKED
from pate.errors import DiskError, ProtocolError, RefusedError, StateError, UsageError
from pate.formats.enrolment import Bundle
from tests.support.server.identities import DAY, NOW, answer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.create(tmp_path_factory.mktemp("server"), (), 9092, NOW)


@pytest.fixture
def identities(made: Identities) -> Identities:
    """One server for all tests, each of which begins without parties."""
    (made.directory / "parties.json").write_bytes(made.registry.empty())
    return made


def invite(identities: Identities, name: str = "a", *, again: bool = False) -> Bundle:
    return identities.invite(name, now=NOW, again=again)


def state(identities: Identities, name: str = "a") -> str:
    return identities.registry.parties()[name].state


def test_a_party_is_invited_and_then_enrolled(identities: Identities) -> None:
    bundle = invite(identities)
    assert state(identities) == INVITED
    assert identities.enrolled() == {}
    mine = answer(bundle)
    assert identities.admit(mine, NOW)
    assert state(identities) == ENROLLED
    [member] = identities.enrolled().values()
    assert (member.name, member.identity, member.node) == ("a", mine.identity, mine.node)


def test_the_code_itself_is_not_kept(identities: Identities) -> None:
    bundle = invite(identities)
    for file in identities.directory.iterdir():
        assert bundle.code.hex().encode() not in file.read_bytes()
        assert bundle.code not in file.read_bytes()


def test_a_used_code_is_used_up(identities: Identities) -> None:
    bundle = invite(identities)
    first = answer(bundle)
    identities.admit(first, NOW)
    with pytest.raises(RefusedError, match="no code is open"):
        identities.admit(answer(bundle), NOW)
    # The same answer once more changes nothing, and says so.
    assert not identities.admit(first, NOW)
    assert identities.enrolled()["a"].identity == first.identity


def test_an_expired_code_is_refused(identities: Identities) -> None:
    mine = answer(invite(identities))
    with pytest.raises(RefusedError, match="has expired"):
        identities.admit(mine, NOW + 14 * DAY)
    assert identities.admit(mine, NOW + 14 * DAY - DAY / 24)


def test_a_new_code_voids_the_one_before(identities: Identities) -> None:
    first, second = invite(identities), invite(identities)
    with pytest.raises(RefusedError, match="a wrong code"):
        identities.admit(answer(first), NOW)
    assert identities.admit(answer(second), NOW)


def test_a_wrong_code_an_altered_answer_and_an_unknown_name_are_refused(
    identities: Identities,
) -> None:
    bundle = invite(identities)
    with pytest.raises(RefusedError, match="a wrong code"):
        identities.admit(answer(replace(bundle, code=bytes(32))), NOW)
    with pytest.raises(ProtocolError, match="altered"):
        identities.admit(replace(answer(bundle), identity=bytes(32)), NOW)
    with pytest.raises(RefusedError, match="no code is open for b"):
        identities.admit(answer(replace(bundle, name="b")), NOW)
    assert identities.enrolled() == {}
    assert identities.admit(answer(bundle), NOW), "the code is still open"


def test_a_code_of_one_party_is_no_good_for_another(identities: Identities) -> None:
    first, second = invite(identities, "a"), invite(identities, "b")
    with pytest.raises(RefusedError, match="a wrong code"):
        identities.admit(answer(replace(first, code=second.code)), NOW)


@pytest.mark.parametrize("which", ["identity", "node"])
def test_a_key_belongs_to_one_name(identities: Identities, which: str) -> None:
    identity, node = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())
    identities.admit(answer(invite(identities, "a"), identity, node), NOW)
    bundle = invite(identities, "b")
    taken = answer(bundle, identity) if which == "identity" else answer(bundle, None, node)
    with pytest.raises(RefusedError, match="is, or was, a key of a"):
        identities.admit(taken, NOW)
    assert set(identities.enrolled()) == {"a"}


def test_to_enrol_again_must_be_asked_for_and_the_old_keys_stay_until_then(
    identities: Identities,
) -> None:
    identity, node = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())
    first = answer(invite(identities), identity, node)
    identities.admit(first, NOW)
    with pytest.raises(UsageError, match="a is already enrolled; --again"):
        invite(identities)
    bundle = invite(identities, again=True)
    assert identities.enrolled()["a"].node == first.node
    # The same identity may stay; the node's key is new, and the old one is never taken again.
    second = answer(bundle, identity)
    identities.admit(second, NOW)
    assert identities.enrolled()["a"].node == second.node
    with pytest.raises(RefusedError, match="is, or was, a key of a"):
        identities.admit(answer(invite(identities, again=True), identity, node), NOW)


def test_a_revoked_party_is_out_with_its_keys(identities: Identities) -> None:
    identity, node = Ed25519PrivateKey.generate(), ec.generate_private_key(ec.SECP384R1())
    first = answer(invite(identities), identity, node)
    identities.admit(first, NOW)
    assert identities.revoke("a", NOW) == ENROLLED
    assert state(identities) == REVOKED
    assert identities.enrolled() == {}
    with pytest.raises(RefusedError, match="no code is open"):
        identities.admit(first, NOW)
    with pytest.raises(UsageError, match="a is already revoked; --again"):
        invite(identities)
    bundle = invite(identities, again=True)
    for keys in ((identity, None), (None, node)):
        with pytest.raises(RefusedError, match="--new-identity"):
            identities.admit(answer(bundle, *keys), NOW)
    assert state(identities) == REVOKED
    # Nor by another name.
    with pytest.raises(RefusedError, match="is, or was, a key of a"):
        identities.admit(answer(invite(identities, "b"), identity), NOW)
    assert identities.admit(answer(bundle), NOW)
    assert state(identities) == ENROLLED
    # Nor later, when the name has other keys.
    with pytest.raises(RefusedError, match="is, or was, a key of a"):
        identities.admit(answer(invite(identities, again=True), identity), NOW)


def test_revoking_voids_an_open_code(identities: Identities) -> None:
    bundle = invite(identities)
    assert identities.revoke("a", NOW) == INVITED
    with pytest.raises(RefusedError, match="no code is open"):
        identities.admit(answer(bundle), NOW)
    identities.admit(answer(invite(identities)), NOW)
    again = invite(identities, again=True)
    identities.revoke("a", NOW)
    with pytest.raises(RefusedError, match="no code is open"):
        identities.admit(answer(again), NOW)
    assert identities.revoke("a", NOW + DAY) == REVOKED


def test_nobody_can_be_revoked_who_is_not_there(identities: Identities) -> None:
    with pytest.raises(UsageError, match="there is no party 'x'"):
        identities.revoke("x", NOW)


def test_a_name_that_cannot_be_one_is_not_invited(identities: Identities) -> None:
    with pytest.raises(ProtocolError, match="party's name"):
        invite(identities, "../a")


def test_every_change_can_be_seen_from_outside(identities: Identities) -> None:
    seen = [identities.registry.stamp()]
    bundle = invite(identities)
    seen.append(identities.registry.stamp())
    identities.admit(answer(bundle), NOW)
    seen.append(identities.registry.stamp())
    identities.revoke("a", NOW)
    seen.append(identities.registry.stamp())
    assert len(set(seen)) == 4
    with pytest.raises(UsageError):
        invite(identities)
    assert identities.registry.stamp() == seen[-1], "what is refused changes nothing"


def test_processes_that_change_it_at_once_lose_nothing(identities: Identities) -> None:
    script = textwrap.dedent(f"""
        import datetime as dt, sys
        from pathlib import Path
        from aggregator_server.identities import Identities
        found = Identities.open(Path({str(identities.directory.parent)!r}))
        sys.stdin.readline()
        for number in range(6):
            found.invite(f"{{sys.argv[1]}}{{number}}", now=dt.datetime.now(dt.UTC))
    """)
    workers = [
        subprocess.Popen([sys.executable, "-c", script, name], stdin=subprocess.PIPE)
        for name in "abc"
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    for worker in workers:
        worker.communicate(timeout=60)
        assert worker.returncode == 0
    assert len(identities.registry.parties()) == 18


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"format": "pate-parties/2", "parties": {}}',
        b'{"format": "pate-parties/1", "parties": {"a": {}}}',
        b'{"format": "pate-parties/1", "parties": []}',
    ],
)
def test_a_damaged_registry_is_said_to_be_damaged(identities: Identities, content: bytes) -> None:
    (identities.directory / "parties.json").write_bytes(content)
    with pytest.raises(StateError, match="damaged"):
        identities.enrolled()
    with pytest.raises(StateError, match="damaged"):
        invite(identities)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("state", "king"), ("state", []), ("identity", "00"), ("identity", 5), ("node", "00"),
        ("changed", "today"), ("retired", {}), ("code", {"verifier": "00", "expires": 1}),
        ("code", {"verifier": "00" * 32, "expires": "x"}), ("code", 7),
    ],
)  # fmt: skip
def test_a_damaged_entry_is_said_to_be_damaged(
    identities: Identities, field: str, value: object
) -> None:
    identities.admit(answer(invite(identities)), NOW)
    file = identities.directory / "parties.json"
    found = json.loads(file.read_bytes())
    found["parties"]["a"][field] = value
    file.write_text(json.dumps(found))
    with pytest.raises(StateError, match="damaged"):
        identities.enrolled()


def test_the_file_is_written_down(identities: Identities) -> None:
    # Homes of servers have it: it may never change.
    given = answer(invite(identities, "z"))
    node, sealing = given.node.hex(), given.sealing
    text = (
        '{\n "format": "pate-parties/1",\n "parties": {\n  "a": {\n   "state": "invited",\n'
        '   "identity": "",\n   "node": "",\n   "changed": 3,\n   "retired": [],\n'
        '   "code": {\n    "verifier": "' + "05" * 32 + '",\n    "expires": 9\n   }\n  },\n'
        '  "b": {\n   "state": "revoked",\n   "identity": "' + "00" * 32 + '",\n'
        f'   "node": "{node}",\n   "changed": 7,\n   "retired": [\n    "{"01" * 32}",\n'
        f'    "{"02" * 32}"\n   ],\n   "code": null,\n   "sealing": {{\n    "key": "{sealing.key.hex()}",\n'
        f'    "signature": "{sealing.signature.hex()}"\n   }}\n  }}\n }}\n}}\n'
    ).encode()
    file = identities.directory / "parties.json"
    file.write_bytes(text)
    before = identities.registry.parties()
    assert before["b"].retired == (b"\x01" * 32, b"\x02" * 32)
    identities.registry.invite("c", bytes(32), now=1, expires=2, again=False)
    identities.registry.revoke("c", now=1)
    assert file.read_bytes() == text
    assert identities.registry.parties() == before


def test_two_parties_with_one_key_are_not_accepted(identities: Identities) -> None:
    for name in "ab":
        identities.admit(answer(invite(identities, name)), NOW)
    file = identities.directory / "parties.json"
    found = json.loads(file.read_bytes())
    found["parties"]["b"]["identity"] = found["parties"]["a"]["identity"]
    file.write_text(json.dumps(found))
    with pytest.raises(StateError, match="two parties with one identity key"):
        identities.enrolled()


def test_a_registry_that_is_gone(identities: Identities) -> None:
    (identities.directory / "parties.json").unlink()
    assert identities.registry.stamp() is None
    with pytest.raises(StateError, match="cannot be read"):
        identities.enrolled()


def test_without_an_open_file_left_what_was_read_last_is_used_if_it_is_the_same(
    identities: Identities, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities.admit(answer(invite(identities)), NOW)
    assert set(identities.enrolled()) == {"a"}

    def exhausted(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as short:
        short.setattr(Path, "read_bytes", exhausted)
        assert set(identities.enrolled()) == {"a"}
    # Revoked meanwhile, by another process: what was read last is not true any more.
    other = Identities.open(identities.directory.parent)
    assert other is not None
    other.revoke("a", NOW)
    with monkeypatch.context() as short:
        short.setattr(Path, "read_bytes", exhausted)
        with pytest.raises(StateError, match="though it is intact"):
            identities.enrolled()
    assert identities.enrolled() == {}


def test_a_code_is_opened_only_when_its_bundle_is_kept(identities: Identities) -> None:
    first = invite(identities)

    def full(_bundle: Bundle) -> None:
        raise DiskError("No space left")

    for name in ("a", "b"):
        with pytest.raises(DiskError):
            identities.invite(name, now=NOW, hand_over=full)
    assert set(identities.registry.parties()) == {"a"}
    assert identities.admit(answer(first), NOW), "the code before it is good still"
    kept: list[Bundle] = []
    with pytest.raises(UsageError, match="--again"):
        identities.invite("a", now=NOW, hand_over=kept.append)
    assert kept == [], "an older bundle is not written over for nothing"
    assert identities.invite("a", now=NOW, again=True, hand_over=kept.append) == kept[0]


@pytest.mark.parametrize("server", ["127.0.0.1:1", "localhost:9092", "LocalHost:9092", "[0::1]:7"])
def test_a_party_may_be_told_another_of_the_servers_hosts(
    identities: Identities, server: str
) -> None:
    assert identities.invite("a", now=NOW, server=server).server == server


@pytest.mark.parametrize("server", ["pate.example.org:9092", "192.0.2.7:1", "localhost", "a b:1"])
def test_a_party_is_not_sent_where_the_certificate_is_no_good(
    identities: Identities, server: str
) -> None:
    with pytest.raises(UsageError):
        identities.invite("a", now=NOW, server=server)
    assert identities.registry.parties() == {}
