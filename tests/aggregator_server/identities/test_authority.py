"""Certificates of the server's own names, and the commands from `init` to `revoke`."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
import typer
from click.testing import Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from typer.testing import CliRunner

from aggregator_server.cli.identities import register
from aggregator_server.identities import Identities
from aggregator_server.identities.authority import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    Authority,
    ends,
    issue,
    make_authority,
)
from party.cli.main import app as party_app
from party.identity.enrolment import Enrolment
from pate.errors import (
    DataError,
    DiskError,
    PateError,
    ProtocolError,
    RefusedError,
    StateError,
    UsageError,
)
from pate.formats.enrolment import Bundle, fingerprint, readable
from tests.support.server.identities import NOW as TODAY
from tests.support.server.identities import answer

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
HOSTS = ("pate.example.org", "192.0.2.7", "2001:db8::7")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority(HOSTS, NOW)


def leaf(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pem)[0]


def verify(authority: Authority, pem: bytes, host: str, now: dt.datetime) -> None:
    """As a strict client does (RFC 5280 and the rules of the web), other than OpenSSL's code."""
    subject: x509.DNSName | x509.IPAddress
    try:
        subject = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        subject = x509.DNSName(host)
    store = Store([x509.load_pem_x509_certificate(authority.certificate)])
    PolicyBuilder().store(store).time(now).build_server_verifier(subject).verify(leaf(pem), [])


@pytest.mark.parametrize("host", [*HOSTS, "localhost", "127.0.0.1", "::1"])
def test_the_certificate_is_good_for_each_host(authority: Authority, host: str) -> None:
    pem = issue(authority, HOSTS, NOW)
    verify(authority, pem, host, NOW)
    verify(authority, pem, host, NOW - DAY / 2)  # a party whose clock is behind


def test_the_name_of_a_container_is_proven_to_a_party(tmp_path: Path) -> None:
    """By OpenSSL, which parties use; rules of the web allow no underscore."""
    now = dt.datetime.now(dt.UTC)
    made = make_authority(("pate_server",), now)
    (tmp_path / "server.pem").write_bytes(issue(made, ("pate_server",), now))
    serves = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serves.load_cert_chain(tmp_path / "server.pem")
    asks = ssl.create_default_context(cadata=made.certificate.decode())

    def shake_hands(name: str) -> str | None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        party = asks.wrap_bio(there, back, server_hostname=name)
        server = serves.wrap_bio(back, there, server_side=True)
        for end in (party, server) * 3:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        return party.version()

    assert shake_hands("pate_server") == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands("pate_party")


@pytest.mark.parametrize("host", ["example.org", "192.0.2.8", "::2"])
def test_it_is_good_for_no_other(authority: Authority, host: str) -> None:
    with pytest.raises(VerificationError):
        verify(authority, issue(authority, HOSTS, NOW), host, NOW)


@pytest.mark.parametrize("host", ["evil.example.com", "203.0.113.1", "2001:db8::8"])
def test_the_authority_cannot_vouch_for_another_host(authority: Authority, host: str) -> None:
    """Even a thief of its key: it is constrained to the server's names."""
    with pytest.raises(VerificationError):
        verify(authority, issue(authority, (host,), NOW), host, NOW)
    # It is the constraint that says no: the same certificate of a free authority is good.
    free = make_authority((host,), NOW)
    verify(free, issue(free, (host,), NOW), host, NOW)


@pytest.mark.parametrize("host", ["mail.pate.example.org", "a.b.pate.example.org", "x.localhost"])
def test_it_can_vouch_for_names_below_the_servers_and_a_party_does_not_mind(
    authority: Authority, host: str
) -> None:
    """A DNS constraint is a subtree (RFC 5280): the documents say so, and a party checks the name."""
    below = issue(authority, (host,), NOW)
    verify(authority, below, host, NOW)
    only_below = _without_own_names(authority, host)
    verify(authority, only_below, host, NOW)
    for name in ("pate.example.org", "localhost"):
        with pytest.raises(VerificationError):
            verify(authority, only_below, name, NOW)


def _without_own_names(authority: Authority, host: str) -> bytes:
    """A certificate of the authority for one name and no other, as a thief of its key makes it."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    parent = x509.load_pem_x509_certificate(authority.certificate)
    own = leaf(issue(authority, HOSTS, NOW))
    made = (
        x509.CertificateBuilder(parent.subject, own.subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(NOW + 30 * DAY)
    )
    for each in own.extensions:
        if each.oid == x509.SubjectAlternativeName.oid:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            made = made.add_extension(names, each.critical)
        elif each.oid == x509.SubjectKeyIdentifier.oid:
            digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            made = made.add_extension(digest, each.critical)
        else:
            made = made.add_extension(each.value, each.critical)
    return made.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_another_authority_is_not_trusted(authority: Authority) -> None:
    with pytest.raises(VerificationError):
        verify(make_authority(HOSTS, NOW), issue(authority, HOSTS, NOW), "localhost", NOW)


def test_lives_and_ends(authority: Authority) -> None:
    pem = issue(authority, HOSTS, NOW)
    assert ends(pem) == NOW + CERTIFICATE_LIFE
    assert ends(authority.certificate) == NOW + AUTHORITY_LIFE
    for time in (NOW + CERTIFICATE_LIFE + DAY, NOW - 2 * DAY):
        with pytest.raises(VerificationError):
            verify(authority, pem, "localhost", time)
    # The last certificate does not outlive its authority.
    late = NOW + AUTHORITY_LIFE - DAY
    assert ends(issue(authority, HOSTS, late)) == NOW + AUTHORITY_LIFE
    with pytest.raises(StateError, match="authority expired on 2036-01-02"):
        issue(authority, HOSTS, NOW + AUTHORITY_LIFE)


def test_what_each_may_be_used_for(authority: Authority) -> None:
    root = x509.load_pem_x509_certificate(authority.certificate)
    certificate = leaf(issue(authority, HOSTS, NOW))
    for each, is_authority in ((root, True), (certificate, False)):
        constraints = each.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = each.extensions.get_extension_for_class(x509.KeyUsage)
        assert constraints.critical
        assert usage.critical
        assert constraints.value.ca is is_authority
        assert usage.value.key_cert_sign is is_authority
        assert usage.value.digital_signature is not is_authority
    names = root.extensions.get_extension_for_class(x509.NameConstraints)
    assert names.critical
    assert len(names.value.permitted_subtrees or ()) == len(HOSTS) + 3
    purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_every_certificate_has_its_own_key(authority: Authority) -> None:
    first, second = (leaf(issue(authority, HOSTS, NOW)) for _ in range(2))
    assert first.public_key() != second.public_key()
    assert first.serial_number != second.serial_number


def test_a_key_of_another_authority_signs_nothing(authority: Authority) -> None:
    mixed = Authority(authority.certificate, make_authority(HOSTS, NOW).key)
    with pytest.raises(StateError, match="does not match its certificate"):
        issue(mixed, HOSTS, NOW)


@pytest.mark.parametrize(
    "host",
    [
        "", "a b", "-a", "a..b", "*.example.org", "x" * 64, "http://a", "192.168.1.300", "10.1",
        "1", "fe80::1%eth0",
    ],
)  # fmt: skip
def test_what_is_no_host(host: str) -> None:
    with pytest.raises(UsageError, match="neither a host name"):
        make_authority((host,), NOW)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "224.0.0.1"])  # noqa: S104 - refused
def test_an_address_of_no_machine(host: str) -> None:
    with pytest.raises(UsageError, match="not the address of a machine"):
        make_authority((host,), NOW)


def test_ends_of_nothing() -> None:
    with pytest.raises(StateError, match="no certificate"):
        ends(b"nothing")


SERVER = typer.Typer()
register(SERVER)


def run(app: typer.Typer, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def server(*arguments: str | Path) -> str:
    """Run a command of the coordinator that works, and return all that it said."""
    result = run(SERVER, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(app: typer.Typer, kind: type[PateError], *arguments: str | Path) -> str:
    result = run(app, *arguments)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    server("init", "--home", tmp_path / "server", "--port", "1")
    return tmp_path / "server"


def test_init_says_where_what_and_what_next(tmp_path: Path) -> None:
    said = server("init", "--home", tmp_path, "--host", "pate.example.org", "--host", "192.0.2.7")
    found = Identities.open(tmp_path)
    assert found is not None
    assert found.address == "pate.example.org:9092"
    assert readable(found.fingerprint) in said
    assert "pate-server enroll" in said
    assert "already" in refused(SERVER, StateError, "init", "--home", tmp_path)


def test_init_as_json(tmp_path: Path) -> None:
    found = json.loads(run(SERVER, "init", "--home", tmp_path, "--json").stdout)
    assert found["server"] == "127.0.0.1:9092"
    assert len(found["authority"]) == len(found["campaign_key"]) == 64


def test_from_the_bundle_to_the_roll_without_a_network(home: Path, tmp_path: Path) -> None:
    bundle, reply = tmp_path / "a.bundle.json", tmp_path / "a.answer.json"
    said = server("enroll", "a", "--home", home, "--out", bundle)
    assert str(bundle) in said
    assert bundle.stat().st_mode & 0o777 == 0o600
    mark = readable(fingerprint(Bundle.from_json(bundle.read_bytes()).ca))
    assert mark in said
    party = run(party_app, "enroll", bundle, "--home", tmp_path / "a", "--answer", reply)
    assert party.exit_code == 0, (party.output, party.exception)
    assert mark in party.output
    assert "pate-server admit" in party.output
    said = server("admit", reply, "--home", home)
    assert "is enrolled;" in said
    assert "already" in server("admit", reply, "--home", home)
    # The unabridged key, for comparison and for policies.
    identities = Identities.open(home)
    assert identities is not None
    key = identities.enrolled()["a"].identity.hex()
    assert key in said
    assert f'a = "{key}"' in party.output
    assert f'a = "{key}"\n' in server("parties", "--home", home)
    kept = Enrolment.load(tmp_path / "a")
    assert kept is not None
    assert kept.name == "a"
    listing = json.loads(run(SERVER, "parties", "--home", home, "--json").stdout)
    [entry] = listing["parties"]
    assert (entry["name"], entry["state"], entry["code_open_until"]) == ("a", "enrolled", None)
    assert listing["warnings"] == []


def test_a_server_that_cannot_be_reached_gets_a_file(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server("enroll", "a", "--home", home)
    party = run(party_app, "enroll", "a.bundle.json", "--home", tmp_path / "a", "--json")
    assert party.exit_code == 0, (party.output, party.exception)
    assert "does not answer" in party.output
    assert json.loads(party.stdout)["answer"] == "a.answer.json"
    assert "is enrolled" in server("admit", "a.answer.json", "--home", home)


def test_parties_revoke_and_again(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    for name in ("a", "b"):
        server("enroll", name, "--home", home, "--out", out)
    identities = Identities.open(home)
    assert identities is not None
    (tmp_path / "b").write_bytes(answer(Bundle.from_json(out.read_bytes())).to_json())
    server("admit", tmp_path / "b", "--home", home)
    assert "--again" in refused(SERVER, UsageError, "enroll", "b", "--home", home, "--out", out)
    server("enroll", "b", "--home", home, "--out", out, "--again")
    assert "its code is void" in server("revoke", "a", "--home", home)
    assert "b is revoked" in server("revoke", "b", "--home", home)
    assert "before" in server("revoke", "b", "--home", home)
    assert "no party" in refused(SERVER, UsageError, "revoke", "a", "--home", home)
    said = server("parties", "--home", home)
    assert "revoked" in said
    assert "enrolled" not in said


def test_rotate(home: Path) -> None:
    before = (home / "identity" / "server.pem").read_bytes()
    assert "start the server again" in server("rotate", "--home", home)
    assert (home / "identity" / "server.pem").read_bytes() != before


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_rotate_makes_a_certificate_that_was_lost(home: Path, content: bytes | None) -> None:
    place = home / "identity" / "server.pem"
    place.unlink()
    if content is not None:
        place.write_bytes(content)
    assert "rotate" in refused(SERVER, StateError, "parties", "--home", home)
    server("rotate", "--home", home)
    server("parties", "--home", home)
    assert ends(place.read_bytes()) > dt.datetime.now(dt.UTC)


def test_a_bundle_that_cannot_be_written_opens_no_code(home: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "bundle"
    refused(SERVER, DiskError, "enroll", "a", "--home", home, "--out", nowhere)
    assert json.loads(run(SERVER, "parties", "--home", home, "--json").stdout)["parties"] == []


@pytest.mark.parametrize(
    ("app", "command", "argument"),
    [
        (SERVER, "enroll", "NAME"),
        (SERVER, "revoke", "NAME"),
        (SERVER, "admit", "FILE"),
        (party_app, "enroll", "BUNDLE"),
    ],
)
def test_the_help_says_what_the_argument_is(app: typer.Typer, command: str, argument: str) -> None:
    text = run(app, command, "--help").output.partition("Arguments")[0]
    assert text.count(argument) == 2, "in the usage, and in the words below it"


@pytest.mark.parametrize("command", ["parties", "rotate", "enroll a", "revoke a"])
def test_without_an_identity_each_says_how_to_make_one(tmp_path: Path, command: str) -> None:
    said = refused(SERVER, StateError, *command.split(), "--home", tmp_path)
    assert "pate-server init" in said
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_answer_is_not_admitted(home: Path, tmp_path: Path) -> None:
    assert "cannot read" in refused(SERVER, DataError, "admit", tmp_path / "no", "--home", home)
    (tmp_path / "no").write_bytes(b"no")
    refused(SERVER, ProtocolError, "admit", tmp_path / "no", "--home", home)
    server("enroll", "a", "--home", home, "--out", tmp_path / "bundle")
    bundle = Bundle.from_json((tmp_path / "bundle").read_bytes())
    server("revoke", "a", "--home", home)
    (tmp_path / "late").write_bytes(answer(bundle).to_json())
    refused(SERVER, RefusedError, "admit", tmp_path / "late", "--home", home)


def test_a_bundle_that_has_expired_is_not_used(tmp_path: Path) -> None:
    identities = Identities.create(tmp_path / "server", (), 9092, TODAY)
    (tmp_path / "bundle").write_bytes(identities.invite("a", now=TODAY).to_json())
    said = refused(party_app, StateError, "enroll", tmp_path / "bundle", "--home", tmp_path / "a")
    assert "expired on 2026-01-15" in said
    assert not (tmp_path / "a").exists()
