"""A server's identity on disk, and the enrolment service that uses it."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from aggregator_server.flower import deployment as deployment_module
from aggregator_server.flower.deployment import Deployment
from aggregator_server.flower.superlink import Changed, SuperLink, pem
from aggregator_server.identities import Identities, Member, require_identities
from aggregator_server.identities import enrolment_service as desk_module
from aggregator_server.identities import store as store_module
from aggregator_server.identities.authority import AUTHORITY_LIFE, CERTIFICATE_LIFE
from aggregator_server.identities.enrolment_service import ATTEMPTS, EnrolmentService
from pate.errors import DiskError, StateError, UsageError
from pate.formats.enrolment import fingerprint
from pate.runtime.child import joined, listen
from tests.support.server.identities import DAY, NOW, Clock, answer

FILES = {"ca.pem", "ca.key", "server.pem", "campaign.key", "settings.json", "parties.json"}


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    return Identities.create(tmp_path / "home", ("pate.example.org", "192.0.2.7"), 9092, NOW)


def test_it_is_made_for_its_owner_alone(identities: Identities) -> None:
    assert {file.name for file in identities.directory.iterdir()} == FILES
    assert identities.directory.stat().st_mode & 0o777 == 0o700
    for file in identities.directory.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file
    assert identities.address == "pate.example.org:9092"
    assert identities.fingerprint == fingerprint(identities.ca.read_bytes())


def test_what_was_made_is_what_is_opened(identities: Identities) -> None:
    again = Identities.open(identities.directory.parent)
    assert again is not None
    assert again.signing_key.private_bytes_raw() == identities.signing_key.private_bytes_raw()
    assert again.hosts == ("pate.example.org", "192.0.2.7", "localhost", "127.0.0.1", "::1")
    assert again.address == identities.address


def test_there_is_none_before_it_is_made(tmp_path: Path) -> None:
    assert Identities.open(tmp_path) is None


def test_it_is_never_made_twice(identities: Identities) -> None:
    before = {file.name: file.read_bytes() for file in identities.directory.iterdir()}
    with pytest.raises(StateError, match="already an identity"):
        Identities.create(identities.directory.parent, (), 9092, NOW)
    assert {file.name: file.read_bytes() for file in identities.directory.iterdir()} == before
    assert [p.name for p in identities.directory.parent.iterdir()] == ["identity"]


def test_nothing_is_left_of_one_that_broke_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def full(path: Path, content: bytes) -> None:
        written.append(path)
        if len(written) == 4:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr(store_module, "write_file", full)
    with pytest.raises(DiskError, match="No space left"):
        Identities.create(tmp_path, (), 9092, NOW)
    assert len(written) == 4
    assert list(tmp_path.iterdir()) == []
    assert Identities.open(tmp_path) is None


@pytest.mark.parametrize("file", sorted(FILES - {"ca.key", "parties.json"}))
@pytest.mark.parametrize("content", [None, b"", b"{}"])
def test_a_damaged_one_is_said_to_be_damaged(
    identities: Identities, file: str, content: bytes | None
) -> None:
    path = identities.directory / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StateError, match="is damaged"):
        Identities.open(identities.directory.parent)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port(tmp_path: Path, port: int) -> None:
    with pytest.raises(UsageError, match="not a port"):
        Identities.create(tmp_path, (), port, NOW)
    assert list(tmp_path.iterdir()) == []


def test_addresses_of_both_kinds_are_written_with_their_port() -> None:
    assert joined("::1", 5) == "[::1]:5"
    assert joined("127.0.0.1", 5) == "127.0.0.1:5"
    assert joined("localhost", 5) == "localhost:5"


def test_the_screen_says_what_expires_a_month_before(identities: Identities) -> None:
    until = NOW + CERTIFICATE_LIFE
    assert identities.warnings(until - 31 * DAY) == []
    [line] = identities.warnings(until - 29 * DAY)
    assert "server's certificate expires on 2027-01-01" in line
    assert "pate-server rotate" in line
    identities.require_valid(until - DAY)
    with pytest.raises(StateError, match="server's certificate expired on 2027-01-01 12:00 UTC"):
        identities.require_valid(until)
    assert "expired on" in identities.warnings(until)[0]
    late = NOW + AUTHORITY_LIFE
    assert "authority that parties pin expires" in identities.warnings(late - 29 * DAY)[0]
    with pytest.raises(StateError, match="authority that parties pin expired"):
        identities.require_valid(late)


def test_a_new_certificate_is_of_the_same_authority(identities: Identities) -> None:
    later = NOW + CERTIFICATE_LIFE - DAY
    before = identities.certificate.read_bytes()
    assert identities.rotate(later) == later + CERTIFICATE_LIFE
    assert identities.certificate.read_bytes() != before
    assert identities.warnings(later) == []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identities.certificate, identities.certificate_key)
    assert fingerprint(identities.ca.read_bytes()) == identities.fingerprint


def test_the_authoritys_key_may_be_kept_elsewhere(identities: Identities) -> None:
    (identities.directory / "ca.key").unlink()
    again = Identities.open(identities.directory.parent)
    assert again is not None
    with pytest.raises(StateError, match="restore it"):
        again.rotate(NOW)


def test_a_bundle_has_what_a_party_needs(identities: Identities) -> None:
    bundle = identities.invite("a", now=NOW)
    assert bundle.server == "pate.example.org:9092"
    assert bundle.ca == identities.ca.read_bytes()
    assert bundle.campaign_key == identities.signing_key.public_key().public_bytes_raw()
    assert dt.datetime.fromtimestamp(bundle.expires, dt.UTC) == NOW + 14 * DAY
    assert bundle.code != identities.invite("b", now=NOW, server="192.0.2.7:1").code
    identities.admit(answer(identities.invite("c", now=NOW, life=DAY)), NOW)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "pate.example.org", "::"])  # noqa: S104
def test_without_it_nobody_outside_is_served(
    host: str, identities: Identities, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="pate-server init") as refused:
        require_identities(host, None)
    assert "\n" not in str(refused.value)
    require_identities(host, identities)
    with pytest.raises(UsageError, match="pate-server init"):
        Deployment(tmp_path / "campaign", host=host)
    assert not (tmp_path / "campaign").exists()


def test_on_loopback_a_trial_needs_none() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        require_identities(host, None)


def test_an_expired_one_starts_nothing(identities: Identities, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(StateError, match="rotate"):
        # Said before the port is looked at.
        Deployment(
            tmp_path / "campaign",
            port=taken.getsockname()[1],
            identities=identities,
            clock=lambda: NOW + CERTIFICATE_LIFE,
        )
    assert not (tmp_path / "campaign").exists()


class Sequence:
    """Stands for the SuperLink's interface; notes who passed the gateway when it was asked."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.during: list[tuple[int, set[str]]] = []
        self.fails = False

    def __call__(self, _address: str, _trust: object, members: Mapping[str, Member]) -> Changed:
        passing = self.deployment._gateway.keys
        self.during.append((len(passing or ()), set(self.deployment.names.values())))
        if self.fails:
            raise httpx.ConnectError("busy")
        keys = frozenset(pem(member.node) for member in members.values())
        return Changed(keys, dict(enumerate(members)), ())


def test_who_is_revoked_is_out_though_the_superlink_cannot_be_told(
    identities: Identities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the gateway and the wire are narrowed, then the SuperLink is asked, then both widened."""
    for name in ("a", "b"):
        identities.admit(answer(identities.invite(name, now=NOW)), NOW)
    events: list[str] = []
    deployment = Deployment(
        tmp_path / "campaign", identities=identities, clock=lambda: NOW, on_event=events.append
    )
    told = Sequence(deployment)
    monkeypatch.setattr(deployment_module, "let_in", told)
    superlink = cast("SuperLink", SimpleNamespace(address="x", trust=None))
    deployment._let_in(superlink)
    assert sorted(deployment.names.values()) == ["a", "b"]
    node_of_b = next(node for node, name in deployment.names.items() if name == "b")
    assert deployment._admits(node_of_b)
    told.fails = True
    identities.revoke("b", NOW)
    identities.admit(answer(identities.invite("c", now=NOW)), NOW)
    for _ in range(3):
        deployment._look_at_registry(superlink)
    # Out everywhere, and the new one is in only when the SuperLink knows it too.
    assert told.during[-1] == (1, {"a"})
    assert list(deployment.names.values()) == ["a"]
    assert not deployment._admits(node_of_b)
    assert not deployment._admits(12345), "nor is whom nobody enrolled"
    assert len(events) == 1, "said once"
    assert "cannot apply" in events[0]
    told.fails = False
    deployment._look_at_registry(superlink)
    assert sorted(deployment.names.values()) == ["a", "c"]
    # A new node key of the same party: the node with the old one is out at once.
    node_of_a = next(node for node, name in deployment.names.items() if name == "a")
    identities.admit(answer(identities.invite("a", now=NOW, again=True)), NOW)
    told.fails = True
    deployment._look_at_registry(superlink)
    assert not deployment._admits(node_of_a)
    deployment.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registered(tmp_path: Path) -> Identities:
    return Identities.create(tmp_path, (), 9092, NOW)


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def enrolment(registered: Identities, clock: Clock, events: list[str]) -> EnrolmentService:
    return EnrolmentService(registered, clock=clock, on_event=events.append)


def test_it_is_open_while_a_code_is_and_a_while_longer(
    registered: Identities, enrolment: EnrolmentService, clock: Clock
) -> None:
    assert not enrolment.open()
    bundle = registered.invite("a", now=NOW)
    assert enrolment.open()
    clock.now = NOW + 14 * DAY
    assert not enrolment.open()
    clock.now = NOW
    assert enrolment.answer(answer(bundle).to_json(), "192.0.2.1")
    # Its sender may have missed the confirmation, and repeat it.
    assert enrolment.open()
    clock.now = NOW + 14 * DAY
    assert not enrolment.open()
    clock.now = NOW
    (registered.directory / "parties.json").write_bytes(b"")
    assert not enrolment.open(), "a registry that cannot be read lets nobody in"


def test_who_was_taken_in_is_said(
    registered: Identities, enrolment: EnrolmentService, events: list[str]
) -> None:
    assert enrolment.answer(answer(registered.invite("a", now=NOW)).to_json(), "192.0.2.1")
    [line] = events
    assert line == f"a is enrolled; its identity key is {registered.enrolled()['a'].identity.hex()}"
    assert set(registered.enrolled()) == {"a"}


def test_every_fault_is_refused_alike_and_told_to_the_operator(
    registered: Identities, enrolment: EnrolmentService, clock: Clock, events: list[str]
) -> None:
    bundle = registered.invite("a", now=NOW)
    mine = answer(bundle)
    faults = {
        b"": "no file of enrolment",
        b"\xff" * 8192: "no file of enrolment",
        mine.to_json().replace(b'"a"', b'"b"'): "altered",
        answer(replace(bundle, code=bytes(32))).to_json(): "a wrong code",
        answer(replace(bundle, name="c")).to_json(): "no code is open for c",
    }
    for number, (body, reason) in enumerate(faults.items()):
        assert enrolment.answer(body, f"192.0.2.{number}") is False
        assert reason in events[-1]
        assert f"192.0.2.{number}" in events[-1]
    clock.now = NOW + 14 * DAY
    assert enrolment.answer(mine.to_json(), "192.0.2.1") is False
    assert "has expired" in events[-1]
    assert registered.enrolled() == {}


def test_an_answer_sent_again_is_acknowledged_and_changes_nothing(
    registered: Identities, enrolment: EnrolmentService, events: list[str]
) -> None:
    """The sender may have missed the confirmation."""
    body = answer(registered.invite("a", now=NOW)).to_json()
    for _ in range(ATTEMPTS + 2):
        assert enrolment.answer(body, "192.0.2.1")
    assert len(events) == 1
    registered.invite("a", now=NOW, again=True)
    before = registered.registry.stamp()
    assert enrolment.answer(body, "192.0.2.1"), "also while another code is open"
    assert registered.registry.stamp() == before
    registered.revoke("a", NOW)
    assert not enrolment.answer(body, "192.0.2.1")


def test_an_address_may_be_wrong_a_few_times_only(
    registered: Identities,
    enrolment: EnrolmentService,
    events: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    body = answer(registered.invite("a", now=NOW)).to_json()
    for _ in range(ATTEMPTS):
        assert not enrolment.answer(b"wrong", "192.0.2.1")
    assert len(events) == ATTEMPTS
    assert not enrolment.answer(body, "192.0.2.1"), "not even read any more"
    assert len(events) == ATTEMPTS
    assert enrolment.answer(body, "192.0.2.2"), "others are not punished for it"
    # After a while it may try again.
    monkeypatch.setattr(desk_module, "WITHIN_S", 0.0)
    assert not enrolment.answer(b"wrong", "192.0.2.1")
    assert len(events) == ATTEMPTS + 2


def test_addresses_are_not_remembered_without_end(
    enrolment: EnrolmentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_ADDRESSES", 3)
    for number in range(10):
        enrolment.answer(b"wrong", str(number))
    assert list(enrolment._refused) == ["7", "8", "9"]
