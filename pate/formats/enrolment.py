"""Files of an enrolment: the coordinator's bundle and the party's answer.

A *bundle* goes from the server to one party, over a confidential channel: it pins the server's
certificate authority and contains a one-time code. An *answer* goes back: the public keys that the
party made, signed by each of them and by the code. An answer contains no secret.

The code is the seed of a one-time Ed25519 key, and the server stores only its public half. So leaked
records of a server do not suffice to answer in a party's place, and a code of 256 bits cannot be
guessed.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pate.errors import ProtocolError
from pate.exact import parse, read, write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography import x509

BUNDLE_FORMAT: Final = "pate-enrolment-bundle/1"
ANSWER_FORMAT: Final = "pate-enrolment-answer/1"
#: The server's route for answers, by POST.
ROUTE: Final = "/pate/v1/enroll"
#: Largest file of either kind, in bytes; real ones stay below 2 KiB.
MAX_FILE: Final = 8192
CODE_BYTES: Final = 32
_KEY_BYTES: Final = 32
_ED25519_SIGNATURE: Final = 64
#: ASN.1 of two numbers of 384 bits, at most.
_ECDSA_SIGNATURE: Final = 104
_NODE_BYTES: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: With underscores, as names of containers and of Windows machines have them.
_LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME: Final = re.compile(rf"(?=.{{1,253}}$)(?:{_LABEL}\.)*{_LABEL}")
_PORT: Final = re.compile("[0-9]{1,5}")
_DOMAIN: Final = b"pate/v1/enrolment/"
_NODE_SIGNATURE: Final = ec.ECDSA(hashes.SHA256())


def check_name(name: str) -> str:
    """Return the name of a party if it is valid in a file name and on a screen."""
    if not _NAME.fullmatch(name):
        raise ProtocolError(
            f"{name!r:.80} cannot be a party's name: up to 64 letters, digits, '-', '_' and '.', "
            "the first a letter or digit"
        )
    return name


def is_host(host: str) -> bool:
    """Return whether this is an address, or a name that is valid in a certificate.

    A name that ends in a number is invalid: it is a mistyped address, and programs resolve it
    differently. Nor is an address with the name of a network interface.

    >>> [is_host(host) for host in ("pate.example.org", "2001:db8::7", "192.0.2.300", "fe80::1%a")]
    [True, True, False, False]
    >>> is_host("hospital_server")
    True
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(host)) and not host.rpartition(".")[2].isdigit()
    return "%" not in host


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``[host]:port`` for an address of IPv6."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    # Brackets are required for an IPv6 address, and allowed only for it.
    known = is_host(bare) and (":" in bare) == (bare != host)
    if not (known and _PORT.fullmatch(port) and 0 < int(port) < 2**16):
        scheme = address.partition("://")[0] if "://" in address else None
        how = "write host:port" if scheme is None else f"write host:port, without {scheme[:20]}://"
        raise ProtocolError(f"{address!r:.320} is no server address; {how}")
    return bare, int(port)


def line_of_party(name: str, identity: bytes) -> str:
    """Return a party's line in the table ``[parties]`` of a ``policy.toml``.

    >>> line_of_party("b.1", bytes(32))[:16]
    '"b.1" = "0000000'
    """
    key = f'"{name}"' if "." in name else name
    return f'{key} = "{identity.hex()}"'


def fingerprint(ca: bytes) -> bytes:
    """Return the SHA-256 hash (32 bytes) by which the authority of a certificate, PEM, is known."""
    return _authority(ca).fingerprint(hashes.SHA256())


def readable(digest: bytes) -> str:
    """Return the first 128 bits of a hash as people compare it.

    >>> readable(bytes(range(32)))
    '0001 0203 0405 0607 0809 0a0b 0c0d 0e0f'
    """
    text = digest[:16].hex()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def verifier_of(code: bytes) -> bytes:
    """Return the verifier of a one-time code: 32 bytes that check answers but cannot sign them."""
    return _code_key(code).public_key().public_bytes_raw()


@dataclass(frozen=True)
class Bundle:
    """The bundle of one party's enrolment. Its code is secret until it has been used."""

    name: str  # of the party, as the coordinator calls it
    server: str  # ``host:port``
    ca: bytes  # certificate (PEM) of the authority that signed the server's
    code: bytes  # one-time code, 32 bytes
    campaign_key: bytes  # Ed25519 public key (32 bytes) that signs the server's requests
    expires: int  # when the code ends, in seconds since 1970

    def __post_init__(self) -> None:
        check_name(self.name)
        split_address(self.server)
        _length(self.code, CODE_BYTES, "the code")
        _length(self.campaign_key, _KEY_BYTES, "the campaign's key")
        _check(0 < self.expires < 2**40, "a bundle whose code ends at no time")
        fingerprint(self.ca)

    def to_json(self) -> bytes:
        """Return the file."""
        return _write(BUNDLE_FORMAT, {**write(self), "ca": self.ca.decode()})

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read the file."""
        fields = _fields(body, BUNDLE_FORMAT)
        if isinstance(ca := fields.get("ca"), str):
            _check(ca.isascii(), "a bundle: ca is not of ASCII only")
            fields["ca"] = ca.encode().hex()  # PEM is text as it is
        return read(cls, fields, error=ProtocolError, what="a bundle")


@dataclass(frozen=True)
class SealingKey:
    """The key that other parties seal shares for, in masked sums whose keys come ahead."""

    key: bytes  # X25519 public key, 32 bytes
    # of the identity key; :class:`pate.masking.ahead.bundle.Sealed` checks it. 64 bytes
    signature: bytes

    def __post_init__(self) -> None:
        _length(self.key, _KEY_BYTES, "a sealing key")
        _length(self.signature, _ED25519_SIGNATURE, "the signature of a sealing key")


@dataclass(frozen=True)
class Answer:
    """The public keys of a party, and proof that it has their private halves and the code.

    All three sign the authority's hash as well, so that an answer counts for one server and these keys only.
    """

    name: str
    identity: bytes  # its Ed25519 public key, 32 bytes
    node: bytes  # the P-384 public key of its SuperNode, DER
    by_identity: bytes  # signature of the identity key, 64 bytes
    by_node: bytes  # signature of the node key, ECDSA with SHA-256, DER
    by_code: bytes  # signature of the one-time code's key, 64 bytes
    sealing: SealingKey  # its sealing key, so that a masked campaign by envelope takes a trip less

    def __post_init__(self) -> None:
        check_name(self.name)
        _length(self.identity, _KEY_BYTES, "an identity key")
        _length(self.by_identity, _ED25519_SIGNATURE, "the identity key's signature")
        _length(self.by_code, _ED25519_SIGNATURE, "the code's signature")
        _check(
            0 < len(self.by_node) <= _ECDSA_SIGNATURE, "a signature of the node key that is none"
        )
        node_key(self.node)

    @classmethod
    def make(
        cls,
        bundle: Bundle,
        identity: Ed25519PrivateKey,
        node: ec.EllipticCurvePrivateKey,
        sealing: SealingKey,
    ) -> Self:
        """Answer ``bundle`` with the public halves of these keys."""
        public = identity.public_key().public_bytes_raw()
        spki = node.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        signed = _transcript(fingerprint(bundle.ca), bundle.name, public, spki, sealing)
        return cls(
            name=bundle.name,
            identity=public,
            node=spki,
            by_identity=identity.sign(_DOMAIN + b"identity\0" + signed),
            by_node=node.sign(_DOMAIN + b"node\0" + signed, _NODE_SIGNATURE),
            by_code=_code_key(bundle.code).sign(_DOMAIN + b"code\0" + signed),
            sealing=sealing,
        )

    def check_keys(self, authority: bytes) -> None:
        """Check that the sender has both private keys, and signed for the server with this authority."""
        signed = self._transcript(authority)
        identity = Ed25519PublicKey.from_public_bytes(self.identity)
        try:
            identity.verify(self.by_identity, _DOMAIN + b"identity\0" + signed)
            node_key(self.node).verify(self.by_node, _DOMAIN + b"node\0" + signed, _NODE_SIGNATURE)
        except InvalidSignature as error:
            raise ProtocolError(
                f"the answer of {self.name} is not signed by its keys for this server: it was "
                "altered, or made from another server's bundle"
            ) from error

    def made_with(self, verifier: bytes, authority: bytes) -> bool:
        """Return whether this was signed with the code of :func:`verifier_of`: no secret is compared."""
        signed = self._transcript(authority)
        key = Ed25519PublicKey.from_public_bytes(verifier)
        try:
            key.verify(self.by_code, _DOMAIN + b"code\0" + signed)
        except InvalidSignature:
            return False
        return True

    def _transcript(self, authority: bytes) -> bytes:
        return _transcript(authority, self.name, self.identity, self.node, self.sealing)

    def to_json(self) -> bytes:
        """Return the file, which is also the body of the request."""
        return _write(ANSWER_FORMAT, write(self))

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Read the file, or the body of the request."""
        fields = _fields(body, ANSWER_FORMAT)
        return read(cls, fields, error=ProtocolError, what="an answer")


def node_key(spki: bytes) -> ec.EllipticCurvePublicKey:
    """Return the node key in ``spki`` (DER)."""
    _check(0 < len(spki) <= _NODE_BYTES, "a node key that is empty or too long")
    try:
        key = serialization.load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ProtocolError(f"a node key that cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise ProtocolError("a node key that is not of the curve P-384")
    again = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _check(again == spki, "a node key in an encoding that is not its own")
    return key


def _code_key(code: bytes) -> Ed25519PrivateKey:
    _length(code, CODE_BYTES, "the code")
    seed = HKDF(hashes.SHA256(), length=32, salt=None, info=_DOMAIN + b"code").derive(code)
    return Ed25519PrivateKey.from_private_bytes(seed)


def _transcript(
    authority: bytes, name: str, identity: bytes, node: bytes, sealing: SealingKey
) -> bytes:
    """Hash all that is signed; each part with its length, so that no two answers share one."""
    digest = hashlib.sha256()
    for part in (authority, name.encode(), identity, node, sealing.key, sealing.signature):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


def _authority(ca: bytes) -> x509.Certificate:
    from cryptography import x509  # slow to import; only certificates need it

    try:
        found = x509.load_pem_x509_certificates(ca)
        constraints = found[0].extensions.get_extension_for_class(x509.BasicConstraints)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise ProtocolError(f"no certificate of an authority: {error}") from error
    _check(len(found) == 1 and constraints.value.ca, "not the certificate of one authority")
    return found[0]


def _write(format_: str, fields: Mapping[str, object]) -> bytes:
    return json.dumps({"format": format_, **fields}, indent=1).encode() + b"\n"


def _fields(body: bytes, format_: str) -> dict[str, Any]:
    what = f"no file of enrolment of the kind {format_}"
    return parse(body, most=MAX_FILE, error=ProtocolError, what=what, form=format_)


def _length(value: bytes, wanted: int, what: str) -> None:
    _check(len(value) == wanted, f"{what} has {len(value)} bytes, not {wanted}")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ProtocolError(otherwise)
