"""How a party enrols: it makes its keys, answers the coordinator's bundle, and keeps what it needs.

What is kept becomes valid in one step, with the file ``enrolment.json``: the key of the SuperNode
and the authority's certificate lie in a directory of their own, whose name is in it. The private
keys never leave the home.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from party.keys import identity_key
from party.supernode import Server, UntrustedServerError
from pate.enrolment import ROUTE, Answer, Bundle, check_name
from pate.errors import PateError, RefusedError, StateError, UnreachableError
from pate.runtime.home import private_directory, write_file
from pate.runtime.lifeline import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "enrolment.json"
_FORMAT: Final = "pate-party-enrolment/1"
_FOLDER: Final = "enrolments"
_TIMEOUT_S: Final = 30.0
WARN_BEFORE: Final = dt.timedelta(days=30)


@dataclass(frozen=True)
class Enrolment:
    """What a party that has enrolled knows.

    Attributes:
        name: of the party, as the coordinator calls it.
        server: ``host:port``.
        ca: certificate (PEM) of the authority that the server's must be signed by.
        node_key: key of its SuperNode, OpenSSH format.
        campaign_key: Ed25519 public key (32 bytes) that signs what the server asks.
        ends: when the authority expires.
    """

    name: str
    server: str
    ca: Path
    node_key: Path
    campaign_key: bytes
    ends: dt.datetime

    @classmethod
    def load(cls, home: Path) -> Self | None:
        """Return the enrolment in a party's home, or None if it never enrolled.

        Raises:
            StateError: if it is damaged.
        """
        file = home / _FILE
        if not file.exists():
            return None
        try:
            found = json.loads(file.read_bytes())
            if found["format"] != _FORMAT:
                raise ValueError(f"its format is not {_FORMAT}")
            folder = home.resolve() / _FOLDER / check_name(found["folder"])
            ca, node_key = folder / "ca.pem", folder / "node.key"
            for path, digest in ((ca, found["ca"]), (node_key, found["node_key"])):
                if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                    raise ValueError(f"{path} is not what it was")
            # Not made here: a key that the server does not know would be of no use.
            if (
                not (home / "identity.key").exists()
                or _public(identity_key(home)) != found["identity"]
            ):
                raise ValueError(f"{home / 'identity.key'} is not the key that was enrolled")
            campaign_key = bytes.fromhex(found["campaign_key"])
            if len(campaign_key) != 32:
                raise ValueError("the campaign's key")
            ends = x509.load_pem_x509_certificate(ca.read_bytes()).not_valid_after_utc
            name, server = check_name(found["name"]), Server(found["server"], ca).address
        except (OSError, ValueError, KeyError, TypeError, PateError) as error:
            raise StateError(
                f"the enrolment in {home} is damaged ({error}); restore it from a backup, or enrol "
                "again with a new bundle"
            ) from error
        return cls(name, server, ca, node_key, campaign_key, ends)

    def warnings(self, now: dt.datetime) -> list[str]:
        """Return lines about what expires within 30 days."""
        if self.ends - now >= WARN_BEFORE:
            return []
        return [f"the authority of {self.server} expires on {self.ends:%Y-%m-%d}: {_MEND}"]

    def require_valid(self, now: dt.datetime) -> None:
        """Check that the server can still be trusted.

        Raises:
            StateError: if the authority has expired.
        """
        if now >= self.ends:
            raise StateError(
                f"the authority of {self.server} expired on {self.ends:%Y-%m-%d}: {_MEND}"
            )


_MEND: Final = "ask its coordinator for a new bundle, and `pate-party enroll` it"


@dataclass(frozen=True)
class Enrolled:
    """What became of an answer.

    Attributes:
        identity: the party's public identity key, 32 bytes.
        answer: the file that the coordinator must be given, or None: the server has the answer.
        why: why it must be given, or an empty text.
    """

    identity: bytes
    answer: Path | None
    why: str


def enrol(
    bundle: Bundle,
    home: Path,
    *,
    file: Path,
    send: bool = True,
    new_identity: bool = False,
) -> Enrolled:
    """Make keys, answer ``bundle``, and keep what was agreed.

    Args:
        bundle: of the coordinator.
        home: of the party, which no other process uses.
        file: where to write the answer if it is not sent, or the server cannot be reached.
        send: whether to send it.
        new_identity: whether to make a new identity key, though there is one.

    Raises:
        RefusedError: if the server does not take the answer; nothing has changed then.
        UntrustedServerError: if what answers is not the server of the bundle.
        UsageError: if the bundle's address cannot be read.
        StateError: if the identity key is damaged.
        DiskError: if it cannot be written; what was there before is still there.
    """
    label = secrets.token_hex(8)
    folder = private_directory(home / _FOLDER / label)
    try:
        write_file(folder / "ca.pem", bundle.ca)
        server = Server(bundle.server, folder / "ca.pem")
        identity = Ed25519PrivateKey.generate() if new_identity else identity_key(home)
        node = ec.generate_private_key(ec.SECP384R1())
        node_file = node.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        write_file(folder / "node.key", node_file)
        answer = Answer.make(bundle, identity, node)
        why = "as you asked"
        if send:
            why = _send(server, answer)
        if why:
            write_file(file, answer.to_json(), mode=0o644)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if new_identity:
        write_file(home / "identity.key", identity.private_bytes_raw())
    fields = {
        "format": _FORMAT,
        "name": bundle.name,
        "server": bundle.server,
        "folder": label,
        "ca": hashlib.sha256(bundle.ca).hexdigest(),
        "node_key": hashlib.sha256(node_file).hexdigest(),
        "identity": answer.identity.hex(),
        "campaign_key": bundle.campaign_key.hex(),
    }
    write_file(home / _FILE, json.dumps(fields, indent=1).encode() + b"\n")
    for other in (home / _FOLDER).iterdir():
        if other.name != label:
            shutil.rmtree(other, ignore_errors=True)
    return Enrolled(answer.identity, file if why else None, why)


def _send(server: Server, answer: Answer) -> str:
    """Send an answer. Returns an empty text, or why nobody is known to have it.

    Raises:
        RefusedError: if the server did not take it.
        UntrustedServerError: if it is another server.
    """
    try:
        with (
            httpx.Client(
                timeout=_TIMEOUT_S, verify=server.verify, trust_env=server.host not in LOOPBACK
            ) as client,
            client.stream("POST", server.url + ROUTE, content=answer.to_json()) as reply,
        ):
            status = reply.status_code  # what else it says is not read
    except httpx.HTTPError as error:
        failure = server.failure(error)
        if isinstance(failure, UntrustedServerError):
            raise failure from error
        return str(failure)
    if status == httpx.codes.OK:
        return ""
    if status in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
        raise RefusedError(
            f"{server.address} did not take this enrolment, and does not say why: the code was "
            "used, replaced or has expired, or the party was revoked (then --new-identity). Its "
            "coordinator sees the reason, and makes a new bundle with `pate-server enroll "
            f"{answer.name}`"
        )
    return str(UnreachableError(f"{server.address} is not ready (HTTP {status})"))


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def read_bundle(path: Path, now: dt.datetime) -> Bundle:
    """Read the coordinator's bundle.

    Raises:
        StateError: if it cannot be read, or its code has expired.
        ProtocolError: if it is no bundle.
    """
    try:
        bundle = Bundle.from_json(path.read_bytes())
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    if now.timestamp() >= bundle.expires:
        raise StateError(
            f"the code in {path} expired on "
            f"{dt.datetime.fromtimestamp(bundle.expires, dt.UTC):%Y-%m-%d}: {_MEND}"
        )
    return bundle
