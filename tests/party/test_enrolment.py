"""A party enrols over TLS through the server's gateway, atomically."""

from __future__ import annotations

import datetime as dt
import json
import os
import pathlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from typer.testing import CliRunner

from aggregator_server.flower.gateway import Gateway
from aggregator_server.identities import Identities
from aggregator_server.identities.authority import AUTHORITY_LIFE, CERTIFICATE_LIFE
from aggregator_server.identities.enrolment_service import EnrolmentService
from party.cli import main
from party.flower.connection import Connection, make_client_app
from party.flower.supernode import Server, UntrustedServerError
from party.identity import enrolment
from party.identity.enrolment import Enrolment, enrol, read_bundle
from party.identity.keys import identity_key
from party.options import StartOptions
from party.session import take_part
from pate.errors import (
    DataError,
    DiskError,
    ProtocolError,
    RefusedError,
    StateError,
    UnreachableError,
    UsageError,
)
from pate.formats.enrolment import ROUTE, Answer, Bundle
from pate.runtime import home as home_module
from pate.runtime.child import free_port
from pate.runtime.screen import Screen

DAY = dt.timedelta(days=1)


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@dataclass
class Door:
    """A server of which only the gateway runs: enough to enrol, and nothing to connect to."""

    identities: Identities
    address: str
    events: list[str]

    def invite(self, name: str, *, again: bool = False) -> Bundle:
        return self.identities.invite(name, now=now(), server=self.address, again=again)

    def post(self, body: bytes) -> int:
        context = ssl.create_default_context(cafile=str(self.identities.ca))
        with httpx.Client(verify=context, trust_env=False) as client:
            return client.post(f"https://{self.address}{ROUTE}", content=body).status_code


def opened(identities: Identities, host: str = "127.0.0.1") -> tuple[Gateway, Door]:
    events: list[str] = []
    gateway = Gateway(
        host,
        0,
        certificate=(identities.certificate, identities.certificate_key),
        enrolment=EnrolmentService(identities, clock=now, on_event=events.append),
    )
    gateway.start()
    return gateway, Door(identities, f"{host}:{gateway.port}", events)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    home = tmp_path_factory.mktemp("server")
    gateway, service = opened(Identities.create(home, (), 9092, now()))
    yield service
    gateway.stop()


@pytest.fixture(autouse=True)
def nobody(service: Door) -> None:
    """Each test begins without parties, and with a server without refusals."""
    (service.identities.directory / "parties.json").write_bytes(service.identities.registry.empty())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_a_party_enrols_over_the_network(service: Door, tmp_path: Path) -> None:
    bundle = service.invite("a")
    done = enrol(bundle, tmp_path, file=tmp_path / "unused")
    assert (done.answer, done.why) == (None, "")
    kept = Enrolment.load(tmp_path)
    assert kept is not None
    assert (kept.name, kept.server) == ("a", service.address)
    assert kept.campaign_key == service.identities.signing_key.public_key().public_bytes_raw()
    assert kept.ca.read_bytes() == service.identities.ca.read_bytes()
    member = service.identities.enrolled()["a"]
    assert member.identity == done.identity
    assert identity_key(tmp_path).public_key().public_bytes_raw() == done.identity
    node = load_ssh_private_key(kept.node_key.read_bytes(), None)
    assert isinstance(node, ec.EllipticCurvePrivateKey)
    assert isinstance(node.curve, ec.SECP384R1)
    assert not (tmp_path / "unused").exists()
    for file in tmp_path.rglob("*"):
        assert file.stat().st_mode & 0o077 == 0 or file.is_dir(), file


def test_the_private_keys_and_the_code_stay_at_home(service: Door, tmp_path: Path) -> None:
    bundle = service.invite("a")
    enrol(bundle, tmp_path / "a", file=tmp_path / "answer", send=False)
    kept = Enrolment.load(tmp_path / "a")
    assert kept is not None
    answer = (tmp_path / "answer").read_bytes()
    assert identity_key(tmp_path / "a").private_bytes_raw().hex().encode() not in answer
    assert bundle.code.hex().encode() not in answer
    assert bundle.code.hex().encode() not in b"".join(snapshot(tmp_path / "a").values())
    assert service.identities.admit(Answer.from_json(answer), now())


def test_before_it_enrols_there_is_nothing(tmp_path: Path) -> None:
    assert Enrolment.load(tmp_path) is None


def test_a_refused_party_keeps_what_it_had(service: Door, tmp_path: Path) -> None:
    enrol(service.invite("a"), tmp_path, file=tmp_path / "unused")
    before = snapshot(tmp_path)
    service.invite("b")  # so that the route exists
    wrong = replace(service.invite("a", again=True), code=bytes(32))
    for new_identity in (False, True):
        with pytest.raises(RefusedError, match="gives no reason"):
            enrol(wrong, tmp_path, file=tmp_path / "unused", new_identity=new_identity)
        assert snapshot(tmp_path) == before
    assert "a wrong code" in service.events[-1]


def test_a_used_code_is_refused_and_so_is_a_server_that_invited_nobody(
    service: Door, tmp_path: Path
) -> None:
    bundle = service.invite("a")
    enrol(bundle, tmp_path / "a", file=tmp_path / "unused")
    for others in ((), ("b",)):  # the route is shut, then open for somebody else
        for name in others:
            service.invite(name)
        with pytest.raises(RefusedError, match="was used"):
            enrol(bundle, tmp_path / "thief", file=tmp_path / "unused")
        assert Enrolment.load(tmp_path / "thief") is None
    assert set(service.identities.enrolled()) == {"a"}


def test_replayed_altered_and_late_answers_get_the_same_reply(
    service: Door, tmp_path: Path
) -> None:
    enrol(service.invite("a"), tmp_path / "a", file=tmp_path / "a.json", send=False)
    body = (tmp_path / "a.json").read_bytes()
    altered = json.loads(body)
    altered["name"] = "b"
    service.invite("b")
    assert service.post(json.dumps(altered).encode()) == 403
    assert service.post(body[:-20]) == 403
    assert service.post(b"") == 403
    assert service.post(body) == 200
    before = list(service.events)
    assert service.post(body) == 200, "the same once more: its sender may not have heard"
    assert service.events == before
    service.identities.invite("c", now=now() - 15 * DAY, server=service.address)
    late = service.identities.invite("c", now=now() - 15 * DAY, server=service.address)
    enrol(late, tmp_path / "c", file=tmp_path / "c.json", send=False)
    assert service.post((tmp_path / "c.json").read_bytes()) == 403
    assert set(service.identities.enrolled()) == {"a"}


def test_enrolling_again_changes_the_nodes_key_and_keeps_the_identity(
    service: Door, tmp_path: Path
) -> None:
    first = enrol(service.invite("a"), tmp_path, file=tmp_path / "unused")
    before = Enrolment.load(tmp_path)
    second = enrol(service.invite("a", again=True), tmp_path, file=tmp_path / "unused")
    after = Enrolment.load(tmp_path)
    assert before is not None
    assert after is not None
    assert first.identity == second.identity
    assert before.node_key != after.node_key
    assert not before.node_key.exists()


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize(("earlier", "new_identity"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(
    "where", ["before it is sent", "after it", "enrolment.json", "identity.key", "pending"]
)
def test_a_crash_while_enrolling_is_mended_by_the_same_command(
    service: Door,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    earlier: bool,
    new_identity: bool,
) -> None:
    """Wherever it breaks off, the old enrolment or the new one is whole, and none is lost."""
    home, unused = tmp_path / "home", tmp_path / "unused"
    if earlier:
        enrol(service.invite("a"), home, file=unused)
    before = service.identities.enrolled().get("a")
    bundle = service.invite("a", again=True)
    send, write = enrolment._send, home_module.write_file

    def broken_send(server: Server, answer: Answer) -> str:
        if where == "after it":
            assert send(server, answer) == ""
        if where in ("before it is sent", "after it"):
            raise Crash
        return send(server, answer)

    def broken_write(path: Path, content: bytes, *, mode: int = 0o600) -> None:
        if path.name == where and path.parent == home:
            raise DiskError("No space left")
        write(path, content, mode=mode)

    def broken_unlink(path: Path, missing_ok: bool = False) -> None:
        if where == "pending" and path.name == "enrolment.pending.json":
            raise Crash
        os.unlink(path)  # noqa: PTH108 - its method is what is replaced

    service.events.clear()
    monkeypatch.setattr(enrolment, "_send", broken_send)
    monkeypatch.setattr(enrolment, "write_file", broken_write)
    monkeypatch.setattr(pathlib.Path, "unlink", broken_unlink)
    survives = where == "identity.key" and not new_identity  # it is not written then
    if survives:
        enrol(bundle, home, file=unused, new_identity=new_identity)
    else:
        with pytest.raises((Crash, DiskError)):
            enrol(bundle, home, file=unused, new_identity=new_identity)
    monkeypatch.undo()
    # What is there can be read, and is of one piece.
    committed = where in ("identity.key", "pending")
    if earlier or committed:
        kept = Enrolment.load(home)
        assert kept is not None
        assert kept.pending is (not committed and earlier)
        if not committed:
            assert before is not None
            assert public_node_key(kept) == before.node
            assert "waits" in kept.warnings(now())[0]
    else:
        with pytest.raises(StateError, match="was not completed"):
            Enrolment.load(home)
    done = enrol(bundle, home, file=unused, new_identity=new_identity)
    assert (done.answer, done.waits) == (None, False)
    kept = Enrolment.load(home)
    assert kept is not None
    assert not kept.pending
    member = service.identities.enrolled()["a"]
    assert (member.identity, member.node) == (done.identity, public_node_key(kept))
    assert identity_key(home).public_key().public_bytes_raw() == done.identity
    if before is not None:
        assert (member.identity == before.identity) is not new_identity
        assert member.node != before.node
    assert len(list((home / "enrolments").iterdir())) == 1
    assert not list(home.rglob("identity.new"))


def public_node_key(kept: Enrolment) -> bytes:
    key = load_ssh_private_key(kept.node_key.read_bytes(), None)
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def test_an_answer_as_a_file_leaves_the_enrolment_before_it_in_use(
    service: Door, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    enrol(service.invite("a"), home, file=tmp_path / "unused")
    before = Enrolment.load(home)
    bundle = service.invite("a", again=True)
    done = enrol(bundle, home, file=tmp_path / "answer", send=False)
    assert done.waits
    kept = Enrolment.load(home)
    assert kept is not None
    assert before is not None
    assert kept.pending
    assert kept.node_key == before.node_key
    assert public_node_key(kept) == service.identities.enrolled()["a"].node
    assert service.identities.admit(Answer.from_json((tmp_path / "answer").read_bytes()), now())
    done = enrol(bundle, home, file=tmp_path / "unused")
    assert not done.waits
    kept = Enrolment.load(home)
    assert kept is not None
    assert not kept.pending
    assert public_node_key(kept) == service.identities.enrolled()["a"].node


def test_an_answer_that_may_have_been_taken_is_not_thrown_away_for_a_refusal(
    service: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at the second time, say because the address sent too many wrong ones."""
    home = tmp_path / "home"
    enrol(service.invite("a"), home, file=tmp_path / "unused")
    bundle = service.invite("a", again=True)

    def lost(server: Server, answer: Answer) -> str:
        assert send(server, answer) == ""
        return "no reply came"

    def refused(_server: Server, _answer: Answer) -> str:
        raise RefusedError("not now")

    send = enrolment._send
    monkeypatch.setattr(enrolment, "_send", lost)
    assert enrol(bundle, home, file=tmp_path / "answer").waits
    before = snapshot(home)
    with pytest.raises(UsageError, match="answered before"):
        enrol(bundle, home, file=tmp_path / "answer", new_identity=True)
    monkeypatch.setattr(enrolment, "_send", refused)
    with pytest.raises(RefusedError):
        enrol(bundle, home, file=tmp_path / "answer")
    assert snapshot(home) == before
    monkeypatch.setattr(enrolment, "_send", send)
    assert not enrol(bundle, home, file=tmp_path / "answer").waits
    kept = Enrolment.load(home)
    assert kept is not None
    assert public_node_key(kept) == service.identities.enrolled()["a"].node


def test_a_damaged_enrolment_is_no_hindrance_to_a_new_one(service: Door, tmp_path: Path) -> None:
    enrol(service.invite("a"), tmp_path, file=tmp_path / "unused")
    for file in ("enrolment.json", "enrolment.pending.json"):
        (tmp_path / file).write_bytes(b"[]")
    done = enrol(service.invite("a", again=True), tmp_path, file=tmp_path / "answer", send=False)
    assert not done.waits, "nothing that could be used was there"
    assert Enrolment.load(tmp_path) is not None


def test_a_revoked_party_needs_a_new_identity(service: Door, tmp_path: Path) -> None:
    first = enrol(service.invite("a"), tmp_path, file=tmp_path / "unused")
    service.identities.revoke("a", now())
    bundle = service.invite("a", again=True)
    with pytest.raises(RefusedError, match="--new-identity"):
        enrol(bundle, tmp_path, file=tmp_path / "unused")
    second = enrol(bundle, tmp_path, file=tmp_path / "unused", new_identity=True)
    assert first.identity != second.identity
    assert identity_key(tmp_path).public_key().public_bytes_raw() == second.identity
    assert Enrolment.load(tmp_path) is not None


def test_a_server_that_is_away_leaves_a_file_for_the_coordinator(
    service: Door, tmp_path: Path
) -> None:
    bundle = replace(service.invite("a"), server=f"127.0.0.1:{free_port()}")
    done = enrol(bundle, tmp_path / "a", file=tmp_path / "answer")
    assert done.answer == tmp_path / "answer"
    assert "does not answer" in done.why
    assert Enrolment.load(tmp_path / "a") is not None
    assert service.identities.admit(Answer.from_json(done.answer.read_bytes()), now())


def test_a_false_server_gets_nothing(
    service: Door, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its certificate is of another authority; no file is offered as a way around."""
    others = Identities.create(tmp_path / "others", (), 9092, now())
    gateway, false = opened(others)
    try:
        bundle = replace(service.invite("a"), server=false.address)
        with pytest.raises(UntrustedServerError, match="not one that this party trusts"):
            enrol(bundle, tmp_path / "a", file=tmp_path / "answer")
    finally:
        gateway.stop()
    assert false.events == []
    assert not (tmp_path / "answer").exists()
    assert Enrolment.load(tmp_path / "a") is None


def test_a_server_whose_certificate_has_expired_is_said_to_be_so(tmp_path: Path) -> None:
    old = Identities.create(tmp_path / "old", (), 9092, now() - CERTIFICATE_LIFE - DAY)
    gateway, service = opened(old)
    try:
        with pytest.raises(UntrustedServerError, match=r"has expired.*pate-server rotate"):
            Server(service.address, old.ca).probe()
    finally:
        gateway.stop()
    old.rotate(now())
    gateway, service = opened(old)
    try:
        # Trusted again, by a party that did nothing; that no SuperLink is there is another matter.
        with pytest.raises(UnreachableError, match="not ready"):
            Server(service.address, old.ca).probe()
    finally:
        gateway.stop()


def test_a_certificate_of_another_host_is_said_to_be_so(service: Door) -> None:
    gateway, elsewhere = opened(service.identities, "127.0.0.2")
    try:
        with pytest.raises(UntrustedServerError, match="is for another host"):
            Server(elsewhere.address, service.identities.ca).probe()
    finally:
        gateway.stop()


def test_who_comes_in_clear_is_told_to_enrol(service: Door) -> None:
    with pytest.raises(UntrustedServerError, match=r"speaks TLS.*pate-party enroll"):
        Server(service.address).probe()


def test_who_is_not_enrolled_is_told_before_a_record_is_read(service: Door, tmp_path: Path) -> None:
    data, home = tmp_path / "h.csv", tmp_path / "home"
    data.write_text("a table whose label column is not named\n")
    home.mkdir()
    options = StartOptions(data=data, server=service.address)
    with pytest.raises(UntrustedServerError, match=r"speaks TLS.*pate-party enroll"):
        take_part(options, "h", home, Screen("pate-party"))
    assert {path.name for path in home.iterdir()} <= {"ledger.db", "ledger.head", "shard.key"}


def test_who_brings_tls_to_a_server_without_is_told_so(service: Door) -> None:
    plain = Gateway("127.0.0.1", 0)
    plain.start()
    try:
        with pytest.raises(UntrustedServerError, match="does not speak TLS"):
            Server(f"127.0.0.1:{plain.port}", service.identities.ca).probe()
    finally:
        plain.stop()


def test_nothing_older_than_tls_13_is_spoken(service: Door) -> None:
    context = ssl.create_default_context(cafile=str(service.identities.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with httpx.Client(verify=context, trust_env=False) as client, pytest.raises(httpx.ConnectError):
        client.get(f"https://{service.address}/health")
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    with httpx.Client(verify=context, trust_env=False) as client:
        assert client.get(f"https://{service.address}/health").status_code == 503


def test_a_node_key_is_not_used_in_clear(service: Door, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in clear"):
        Connection(
            Server(service.address), make_client_app(bytes), tmp_path, node_key=tmp_path / "key"
        )


@pytest.fixture(scope="module")
def home(service: Door, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An enrolled party; tests that damage it restore it."""
    home = tmp_path_factory.mktemp("party")
    enrol(service.invite("kept"), home, file=home / "answer", send=False)
    return home


@pytest.mark.parametrize("which", ["enrolment.json", "identity.key", "ca.pem", "node.key"])
@pytest.mark.parametrize("content", [None, b"{}", bytes(32)])
def test_a_damaged_enrolment_is_said_to_be_damaged(
    home: Path, which: str, content: bytes | None
) -> None:
    [path] = home.rglob(which)
    before = path.read_bytes()
    path.unlink()
    try:
        if content is not None:
            path.write_bytes(content)
        if (which, content) == ("enrolment.json", None):
            assert Enrolment.load(home) is None
        else:
            with pytest.raises(StateError, match="is damaged"):
                Enrolment.load(home)
        if (which, content) == ("identity.key", None):
            assert not path.exists(), "an identity was made that nobody knows"
    finally:
        path.write_bytes(before)
    assert Enrolment.load(home) is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "pate-party-enrolment/2"), ("folder", "../elsewhere"), ("folder", 7),
        ("name", ""), ("server", "nowhere"), ("campaign_key", "00"),
    ],
)  # fmt: skip
def test_an_enrolment_that_was_changed_is_said_to_be_damaged(
    home: Path, field: str, value: object
) -> None:
    file = home / "enrolment.json"
    before = file.read_bytes()
    file.write_text(json.dumps({**json.loads(before), field: value}))
    try:
        with pytest.raises(StateError, match="is damaged"):
            Enrolment.load(home)
    finally:
        file.write_bytes(before)


def test_the_screen_says_what_expires_a_month_before(home: Path) -> None:
    kept = Enrolment.load(home)
    assert kept is not None
    until = kept.ends
    assert abs(until - now() - AUTHORITY_LIFE) < DAY
    assert kept.warnings(until - 31 * DAY) == []
    [line] = kept.warnings(until - 29 * DAY)
    assert f"expires on {until:%Y-%m-%d}" in line
    assert "new bundle" in line
    kept.require_valid(until - DAY)
    with pytest.raises(StateError, match="expired on"):
        kept.require_valid(until)


def test_bundles_are_read_with_care(service: Door, tmp_path: Path) -> None:
    file = tmp_path / "bundle"
    with pytest.raises(StateError, match="cannot read"):
        read_bundle(file, now())
    file.write_bytes(b"no")
    with pytest.raises(ProtocolError):
        read_bundle(file, now())
    bundle = service.invite("a")
    file.write_bytes(bundle.to_json())
    assert read_bundle(file, now()) == bundle
    with pytest.raises(StateError, match=r"the code in .* expired"):
        read_bundle(file, now() + 14 * DAY)


@pytest.mark.parametrize("name", ["../a", "a/b", "", "x" * 65, ".a", "a b", "ä"])
def test_what_is_no_name_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("party.cli.home.default_home", lambda _role: tmp_path / "state")
    data = tmp_path / "my data.csv"  # what it is called makes no name either
    data.write_text("x,y\n1,a\n2,b\n")
    for asked in (["--name", name], []):
        if not name and asked:
            continue  # as if it were left out
        for home in ([], ["--home", str(tmp_path / "home")]):
            run = CliRunner().invoke(main.app, ["start", "--data", str(data), *asked, *home])
            assert isinstance(run.exception, UsageError), run.output
            assert "--name" in str(run.exception)
    assert list(tmp_path.iterdir()) == [data]


def test_an_enrolled_party_has_one_name(home: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("x,y\n")

    def start(*options: str) -> BaseException | None:
        data = ["--data", str(table), "--label", "y", "--home", str(home)]
        return CliRunner().invoke(main.app, ["start", *data, *options]).exception

    error = start("--name", "other")
    assert isinstance(error, UsageError)
    assert "is enrolled as kept, not as other" in str(error)
    for options in ((), ("--name", "kept")):
        assert isinstance(start(*options), DataError), "it went on to read the data"


def test_another_file_is_said_to_be_a_new_party_where_one_is_enrolled(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monthly file without --name would get a home of its own."""
    table = tmp_path / "may.csv"
    table.write_text("x,y\n")
    monkeypatch.setattr("party.cli.home.default_home", lambda _: home.parent)

    def said(*options: str) -> str:
        return CliRunner().invoke(main.app, ["start", "--data", str(table), *options]).stderr

    note = f"goes on with its --name: {home.name}"
    assert note in said("--label", "y")
    assert note not in said("--label", "y"), "its home is there now"
    assert note not in said("--label", "y", "--name", "june")


@pytest.mark.parametrize("address", ["", "a", "a b:1", "a/b:1", "10.1:1", "[::1]", "::1:2", "a:0"])
def test_what_is_no_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError, match="no server address"):
        Server(address)


def test_the_parts_of_an_address() -> None:
    server = Server("[::1]:9092")
    assert (server.host, server.port, server.url) == ("::1", 9092, "http://[::1]:9092")
