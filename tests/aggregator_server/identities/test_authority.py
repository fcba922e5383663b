"""The authority certifies only the server's own names, to a client that checks everything."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from aggregator_server.identities.authority import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    Authority,
    ends,
    issue,
    make_authority,
)
from pate.errors import StateError, UsageError

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
