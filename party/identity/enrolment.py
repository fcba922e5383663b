"""Enrolment of a party: it makes its keys, answers the coordinator's bundle, and stores the result.

Keys and answer are on disk before the answer is sent, in their own directory that
``enrolment.pending.json`` names. When the server has accepted the answer, ``enrolment.json`` names
it, atomically. After any interruption, the same bundle sends the same answer again, which the
server recognises; an earlier enrolment is valid until then. The private keys never leave the home.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import secrets
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from party.flower.supernode import Server, UntrustedServerError
from party.identity.keys import SEALING_FILE, identity_key, sealing_key
from pate.errors import PateError, RefusedError, StateError, UnreachableError, UsageError
from pate.exact import parse, read, write
from pate.formats.enrolment import ROUTE, Answer, Bundle, SealingKey, check_name
from pate.masking.ahead.bundle import sign_sealing
from pate.masking.keys import KeyPair
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, sync, write_file

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "enrolment.json"
_PENDING: Final = "enrolment.pending.json"
_FORMAT: Final = "pate-party-enrolment/1"
_LARGEST: Final = 2**16
_FOLDER: Final = "enrolments"
#: In an enrolment's folder: its new identity key, until that is moved to its place.
_NEW_IDENTITY: Final = "identity.new"
#: The same of the sealing key that a new identity has.
_NEW_SEALING: Final = "sealing.new"
_TIMEOUT_S: Final = 30.0
WARN_BEFORE: Final = dt.timedelta(days=30)


@dataclass(frozen=True)
class Enrolment:
    """The enrolment of a party."""

    name: str  # of the party, chosen by the coordinator
    server: str  # ``host:port``
    ca: Path  # certificate (PEM) of the authority that must have signed the server's
    node_key: Path  # key of its SuperNode, OpenSSH format
    campaign_key: bytes  # Ed25519 public key (32 bytes) that signs the server's requests
    ends: dt.datetime
    pending: bool = False  # whether a newer one waits for confirmation by the server

    @staticmethod
    def stands_in(home: Path) -> bool:
        """Return whether a home has an enrolment, which is not read."""
        return (home / _FILE).exists()

    @classmethod
    def load(cls, home: Path) -> Self | None:
        """Return the enrolment in a party's home, or None if it never enrolled."""
        file = home / _FILE
        if not file.exists():
            if not (home / _PENDING).exists():
                return None
            raise StateError(
                f"an enrolment in {home} was not completed: the server may or may not have "
                "accepted it. `pate-party enroll` the same bundle again, or remove "
                f"{home / _PENDING}"
            )
        try:
            found = _Named.load(file)
            folder = home.resolve() / _FOLDER / found.folder
            _settle(home, folder)
            ca, node_key = folder / "ca.pem", folder / "node.key"
            for path, digest in ((ca, found.ca), (node_key, found.node_key)):
                if hashlib.sha256(path.read_bytes()).digest() != digest:
                    raise ValueError(f"{path} was changed")
            # Not created here: the server would not know a new key.
            if (
                not (home / "identity.key").exists()
                or _public(identity_key(home)) != found.identity.hex()
            ):
                raise ValueError(f"{home / 'identity.key'} is not the key that was enrolled")
            if len(found.campaign_key) != 32:
                raise ValueError("the campaign's key")
            ends = x509.load_pem_x509_certificate(ca.read_bytes()).not_valid_after_utc
            name, server = check_name(found.name), Server(found.server, ca).address
        except _DAMAGE as error:
            raise StateError(
                f"the enrolment in {home} is damaged ({error}); restore it from a backup, or enrol "
                "again with a new bundle"
            ) from error
        waiting = _named(home, _PENDING)
        return cls(
            name, server, ca, node_key, found.campaign_key, ends, waiting not in (None, folder.name)
        )

    def warnings(self, now: dt.datetime) -> list[str]:
        """Return lines about what expires within 30 days, and a newer pending enrolment."""
        lines = []
        if self.pending:
            lines.append(
                "a newer enrolment waits: when the coordinator has admitted it, `pate-party "
                "enroll` the same bundle again while the server runs; until then the old one is used"
            )
        if self.ends - now < WARN_BEFORE:
            lines.append(
                f"the authority of {self.server} expires on {self.ends:%Y-%m-%d}: {_REMEDY}"
            )
        return lines

    def require_valid(self, now: dt.datetime) -> None:
        """Check that the server can still be trusted."""
        if now >= self.ends:
            raise StateError(
                f"the authority of {self.server} expired on {self.ends:%Y-%m-%d}: {_REMEDY}"
            )


#: Errors of reading a file of an enrolment.
_DAMAGE: Final = (OSError, ValueError, KeyError, TypeError, PateError)
_REMEDY: Final = "ask its coordinator for a new bundle, and `pate-party enroll` it"


@dataclass(frozen=True)
class Enrolled:
    """The result of answering a bundle."""

    identity: bytes  # the party's public identity key, 32 bytes
    answer: Path | None  # the file to give to the coordinator, or None: the server has the answer
    why: str  # why it must be given, or an empty text
    waits: bool = False  # whether an earlier enrolment is used until the server confirms the answer


def enrol(
    bundle: Bundle,
    home: Path,  # of the party, which no other process uses
    *,
    file: Path,  # for the answer if it is not sent, or the server cannot be reached
    send: bool = True,
    new_identity: bool = False,  # whether to make a new identity key, though there is one
) -> Enrolled:
    """Make keys, answer ``bundle``, and store the enrolment; a repetition sends the same answer.

    If the server refuses the answer, or the disk is full, the earlier enrolment stays.
    """
    draft, is_first = _draft(bundle, home, new_identity)
    why = "as you asked"
    if send:
        try:
            why = _send(Server(bundle.server, draft.folder / "ca.pem"), draft.answer)
        except (RefusedError, UntrustedServerError):
            if is_first:  # no one accepted it: there is nothing to send again
                _discard(home, draft)
            raise
    if why:
        write_file(file, draft.answer.to_json(), mode=0o644)
    reach("enrolment-answered")
    waits = bool(why) and _named(home, _FILE) != draft.folder.name and _is_usable(home)
    if not waits:
        _accept(home, draft)
    return Enrolled(draft.answer.identity, file if why else None, why, waits)


@dataclass(frozen=True)
class _Named:
    """The file that names an enrolment's folder; digests are SHA-256."""

    name: str
    server: str
    folder: str
    bundle: bytes  # digest of the bundle that it answers
    ca: bytes  # digest of the authority's certificate
    node_key: bytes
    identity: bytes
    new_identity: Literal["yes", "no"]  # whether the identity was made for it
    campaign_key: bytes

    def to_json(self) -> bytes:
        return json.dumps({"format": _FORMAT, **write(self)}, indent=1).encode() + b"\n"

    @classmethod
    def load(cls, file: Path) -> Self:
        """Read it; raises one of :data:`_DAMAGE`."""
        what = f"{file.name} names no enrolment"
        content = file.read_bytes()
        fields = parse(content, most=_LARGEST, error=StateError, what=what, form=_FORMAT)
        made = read(cls, fields, error=StateError, what=what)
        check_name(made.folder)
        return made


@dataclass(frozen=True)
class _Draft:
    """Keys and answer on disk."""

    folder: Path
    named: _Named  # content of the file that names the folder
    answer: Answer


def _draft(bundle: Bundle, home: Path, new_identity: bool) -> tuple[_Draft, bool]:
    """Return the stored answer to a bundle or a new one, and whether it is new."""
    mark = hashlib.sha256(b"bundle" + bundle.to_json()).digest()
    if (current := _named(home, _FILE)) is not None:
        _settle(home, home / _FOLDER / current)
    for name in (_PENDING, _FILE):
        try:
            named = _Named.load(home / name)
            if named.bundle != mark:
                continue
            folder = home / _FOLDER / named.folder
            answer = Answer.from_json((folder / "answer.json").read_bytes())
        except _DAMAGE:
            continue  # missing or unusable: a new answer replaces it
        if new_identity and named.new_identity != "yes":
            raise UsageError(
                "this bundle was answered before, with the present identity key, and the "
                "server may have accepted that: leave out --new-identity, or ask for a new "
                "bundle"
            )
        return _Draft(folder, named, answer), False
    return _make(bundle, home, mark, new_identity), True


def _make(bundle: Bundle, home: Path, mark: bytes, new_identity: bool) -> _Draft:
    """Make keys and an answer, and store them durably as pending."""
    label = secrets.token_hex(8)
    folder = private_directory(home / _FOLDER / label)
    try:
        write_file(folder / "ca.pem", bundle.ca)
        Server(bundle.server, folder / "ca.pem")  # before anything is stored
        identity = Ed25519PrivateKey.generate() if new_identity else identity_key(home)
        sealing = secrets.token_bytes(32) if new_identity else sealing_key(home)
        if new_identity:
            write_file(folder / _NEW_IDENTITY, identity.private_bytes_raw())
            write_file(folder / _NEW_SEALING, sealing)
        node = ec.generate_private_key(ec.SECP384R1())
        node_file = node.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        write_file(folder / "node.key", node_file)
        answer = Answer.make(bundle, identity, node, _sealed(bundle.name, identity, sealing))
        write_file(folder / "answer.json", answer.to_json())
        named = _Named(
            name=bundle.name,
            server=bundle.server,
            folder=label,
            bundle=mark,
            ca=hashlib.sha256(bundle.ca).digest(),
            node_key=hashlib.sha256(node_file).digest(),
            identity=answer.identity,
            new_identity="yes" if new_identity else "no",
            campaign_key=bundle.campaign_key,
        )
        for above in (folder.parent, home):
            sync(above)
        write_file(home / _PENDING, named.to_json())
        reach("enrolment-pending")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _sweep(home)
    return _Draft(folder, named, answer)


def _accept(home: Path, draft: _Draft) -> None:
    """Replace the earlier enrolment by a pending one; the first write decides."""
    if _named(home, _FILE) != draft.folder.name:
        write_file(home / _FILE, draft.named.to_json())
        reach("enrolment-accepted")
    _settle(home, draft.folder)
    if _named(home, _PENDING) == draft.folder.name:
        (home / _PENDING).unlink()
    _sweep(home)


def _settle(home: Path, folder: Path) -> None:
    """Move the new keys of an accepted enrolment to their places, if not yet done."""
    for made, place in (
        (folder / _NEW_SEALING, home / SEALING_FILE),
        (folder / _NEW_IDENTITY, home / "identity.key"),
    ):
        with contextlib.suppress(FileNotFoundError):
            write_file(place, made.read_bytes())
            reach("identity-settled")
            made.unlink()


def _discard(home: Path, draft: _Draft) -> None:
    (home / _PENDING).unlink(missing_ok=True)
    shutil.rmtree(draft.folder, ignore_errors=True)


def _sweep(home: Path) -> None:
    """Remove keys that no enrolment names."""
    named = {_named(home, _FILE), _named(home, _PENDING)}
    for other in (home / _FOLDER).iterdir():
        if other.name not in named:
            shutil.rmtree(other, ignore_errors=True)


def _is_usable(home: Path) -> bool:
    """Return whether there is an enrolment with which this party can connect."""
    try:
        return Enrolment.load(home) is not None
    except StateError:
        return False


def _named(home: Path, file: str) -> str | None:
    """Return the folder that a file names; None if it names none."""
    try:
        return _Named.load(home / file).folder
    except _DAMAGE:
        return None


def _send(server: Server, answer: Answer) -> str:
    """Send an answer. Returns an empty text, or why its delivery is not confirmed."""
    try:
        with (
            server.client(_TIMEOUT_S) as client,
            client.stream("POST", server.url + ROUTE, content=answer.to_json()) as reply,
        ):
            status = reply.status_code  # the rest of the reply is not read
    except httpx.HTTPError as error:
        failure = server.failure(error)
        if isinstance(failure, UntrustedServerError):
            raise failure from error
        return str(failure)
    if status == httpx.codes.OK:
        return ""
    if status in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
        raise RefusedError(
            f"{server.address} did not accept this enrolment and gives no reason: the code was "
            "used, replaced or has expired, or the party was revoked (then --new-identity). "
            "Its coordinator sees the reason, and makes a new bundle with `pate-server enroll "
            f"{answer.name}`"
        )
    return str(UnreachableError(f"{server.address} is not ready (HTTP {status})"))


def _sealed(name: str, identity: Ed25519PrivateKey, sealing: bytes) -> SealingKey:
    public = KeyPair(sealing).public
    return SealingKey(public, sign_sealing(name, identity, public))


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def read_bundle(path: Path, now: dt.datetime) -> Bundle:
    """Read the coordinator's bundle."""
    try:
        bundle = Bundle.from_json(path.read_bytes())
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    if now.timestamp() >= bundle.expires:
        raise StateError(
            f"the code in {path} expired on "
            f"{dt.datetime.fromtimestamp(bundle.expires, dt.UTC):%Y-%m-%d}: {_REMEDY}"
        )
    return bundle
