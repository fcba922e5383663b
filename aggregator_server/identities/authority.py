"""The server's own certificate authority, and the certificates that it signs.

Parties pin only this authority, so no public authority can certify a false server. It is
constrained to the server's own names (RFC 5280, section 4.2.1.10): even if a data holder trusts it
for other purposes, it can certify only these names and their subdomains. A DNS constraint is a
subtree: of ``example.org`` it permits ``mail.example.org``, too, and the standard has no form for
"this name and none below it" (a leading dot, which some libraries read as "below only", is defined
for URIs and not for DNS names, so an exclusion by it would be refused or ignored elsewhere).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pate.errors import StateError, UsageError
from pate.formats.enrolment import is_host

if TYPE_CHECKING:
    from collections.abc import Sequence

AUTHORITY_LIFE: Final = dt.timedelta(days=3653)
CERTIFICATE_LIFE: Final = dt.timedelta(days=365)
#: Parties' clocks may be this far behind.
_BACKDATED: Final = dt.timedelta(hours=24)
#: Always in a server's certificate: for trials on one machine, and for the SuperLink.
_OWN: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    certificate: bytes  # PEM
    key: bytes  # PEM, unencrypted


def check_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the names for a certificate, the machine's own included, each once."""
    for host in hosts:
        if not is_host(host):
            raise UsageError(
                f"{host!r} is neither a host name nor an address: give the name that parties connect to"
            )
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            continue
        if address.is_unspecified or address.is_multicast:
            raise UsageError(
                f"{host} is not the address of a machine: give the name that parties connect to"
            )
    return tuple(dict.fromkeys((*hosts, *_OWN)))


def make_authority(hosts: Sequence[str], now: dt.datetime) -> Authority:
    """Create an authority for ``hosts``, valid for ten years.

    It can certify only these addresses, these names and their subdomains.
    """
    names = [_general_name(host, network=True) for host in check_hosts(hosts)]
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pate-server authority")])
    certificate = (
        _builder(name, name, key.public_key(), now, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.NameConstraints(permitted_subtrees=names, excluded_subtrees=None), critical=True
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _pem_of_key(key))


def issue(authority: Authority, hosts: Sequence[str], now: dt.datetime) -> bytes:
    """Return a new key and the server certificate for it, one after the other in one PEM text.

    One text can be replaced atomically: a certificate without its key, or with the earlier one,
    would stop the server.

    ``hosts``: of the certificate, in addition to the machine's own names; ``now``: when it begins;
    it is valid for a year, or until the authority ends.
    """
    names = [_general_name(host, network=False) for host in check_hosts(hosts)]
    signer = serialization.load_pem_private_key(authority.key, None)
    parent = x509.load_pem_x509_certificate(authority.certificate)
    if not isinstance(signer, ec.EllipticCurvePrivateKey) or (
        signer.public_key() != parent.public_key()
    ):
        raise StateError("the authority's key does not match its certificate; restore a backup")
    if now >= parent.not_valid_after_utc:
        raise StateError(
            f"the authority expired on {parent.not_valid_after_utc:%Y-%m-%d}: make a new one with "
            "`pate-server init --home` in a new directory, and enrol the parties there"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pate-server")])
    until = min(now + CERTIFICATE_LIFE, parent.not_valid_after_utc)
    certificate = (
        _builder(subject, parent.subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    return _pem_of_key(key) + _pem(certificate)


def ends(certificate: bytes) -> dt.datetime:
    """Return the expiry of the first certificate in a PEM text."""
    try:
        return x509.load_pem_x509_certificates(certificate)[0].not_valid_after_utc
    except ValueError as error:
        raise StateError(f"no certificate can be read: {error}; restore a backup") from error


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str, *, network: bool) -> x509.GeneralName:
    """Return a host as a GeneralName: in constraints an address is a network of size one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return x509.DNSName(host)
    return x509.IPAddress(ipaddress.ip_network(address) if network else address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
