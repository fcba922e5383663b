"""The identity directory of a server: its authority, certificate, signing key and parties."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregator_server.identities.authority import (
    Authority,
    check_hosts,
    ends,
    issue,
    make_authority,
)
from aggregator_server.identities.registry import ENROLLED, Registry
from aggregator_server.options import CODE_LIFE, FOLDER
from pate.errors import DiskError, PateError, ProtocolError, StateError, UsageError
from pate.exact import parse, read, write
from pate.formats.enrolment import (
    CODE_BYTES,
    Answer,
    Bundle,
    SealingKey,
    fingerprint,
    split_address,
    verifier_of,
)
from pate.runtime.child import LOOPBACK, joined
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory, sweep_drafts, sync, write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_FORMAT: Final = "pate-server-identity/1"
_LARGEST: Final = 2**20
#: The port of a trial, which has no identity.
_TRIAL_PORT: Final = 9092
#: How long before an expiry the screen warns.
WARN_BEFORE: Final = dt.timedelta(days=30)


@dataclass(frozen=True)
class Member:
    """An enrolled party that is not revoked."""

    name: str
    identity: bytes  # its Ed25519 public key, 32 bytes
    node: bytes  # the P-384 public key of its SuperNode, DER
    sealing: SealingKey


@dataclass(frozen=True)
class _Settings:
    """The file ``settings.json``: the address for parties, and the names in the certificate."""

    address: str
    hosts: tuple[str, ...]


class Identities:
    """A server's identity on disk.

    ``ca``: the authority's certificate (PEM); ``certificate``: the server's certificate (PEM);
    ``certificate_key``: its key; the same file, so that both are replaced atomically;
    ``signing_key``: signs this server's requests to parties; ``address``: ``host:port`` for parties
    to connect to.
    """

    def __init__(self, directory: Path, *, certified: bool = True) -> None:
        """Read the identity in ``directory``.

        ``certified``: whether the server's certificate must exist; :meth:`rotate` makes a new one.
        """
        self.directory = directory
        self.ca = directory / "ca.pem"
        self.certificate = self.certificate_key = directory / "server.pem"
        self._ca_key = directory / "ca.key"
        self.registry = Registry(directory / "parties.json")
        try:
            self.fingerprint = fingerprint(self.ca.read_bytes())
            self.signing_key = Ed25519PrivateKey.from_private_bytes(
                (directory / "campaign.key").read_bytes()
            )
            content = (directory / "settings.json").read_bytes()
            what = "settings.json"
            fields = parse(content, most=_LARGEST, error=StateError, what=what, form=_FORMAT)
            settings = read(_Settings, fields, error=StateError, what=what)
            self.address, self.hosts = settings.address, check_hosts(settings.hosts)
            ends(self.ca.read_bytes())
        except (OSError, ValueError, KeyError, TypeError, PateError) as error:
            raise StateError(
                f"the identity in {directory} is damaged ({error}); restore it from a backup"
            ) from error
        try:
            if certified:
                ends(self.certificate.read_bytes())
        except (OSError, StateError) as error:
            raise StateError(
                f"the server's certificate in {directory} is damaged ({error}): `pate-server "
                "rotate` makes a new one; parties need not act"
            ) from error

    @classmethod
    def create(cls, home: Path, hosts: Sequence[str], port: int, now: dt.datetime) -> Self:
        """Create authority, server certificate and signing key atomically.

        ``home``: the server's directory; the identity becomes a directory in it; ``hosts``: names
        and addresses that parties connect to, the first by default. None: this machine only.
        """
        names = check_hosts(hosts)
        if not 0 < port < 2**16:
            raise UsageError(f"{port} is not a port; ports are from 1 to 65535")
        place = private_directory(home) / FOLDER
        if place.exists():
            raise StateError(
                f"{place} is already an identity, which parties may use; name another --home, "
                "or `pate-server rotate` for a new certificate"
            )
        sweep_drafts(home, FOLDER)
        authority = make_authority(names, now)
        settings = _Settings(joined(hosts[0] if hosts else "127.0.0.1", port), tuple(names))
        building = None
        try:
            building = Path(tempfile.mkdtemp(dir=home, prefix=f".{FOLDER}."))  # only for its owner
            for name, content in {
                "ca.pem": authority.certificate,
                "ca.key": authority.key,
                "server.pem": issue(authority, names, now),
                "campaign.key": Ed25519PrivateKey.generate().private_bytes_raw(),
                "settings.json": json.dumps(
                    {"format": _FORMAT, **write(settings)}, indent=1
                ).encode()
                + b"\n",
                "parties.json": Registry.empty(),
            }.items():
                write_file(building / name, content)
            reach("identity-drafted")
            building.rename(place)
            sync(home)
        except OSError as error:
            raise DiskError(f"cannot make {place}: {error.strerror}") from error
        finally:
            if building is not None:
                shutil.rmtree(building, ignore_errors=True)
        return cls(place)

    @classmethod
    def open(cls, home: Path, *, certified: bool = True) -> Self | None:
        """Return the identity in a server's home, or None."""
        place = home / FOLDER
        return cls(place.resolve(), certified=certified) if place.exists() else None

    def enrolled(self) -> Mapping[str, Member]:
        """Return the enrolled parties that are not revoked, by name."""
        return {
            entry.name: Member(entry.name, entry.identity, entry.node, entry.sealing)
            for entry in self.registry.parties().values()
            if entry.state == ENROLLED and entry.sealing is not None
        }

    def invite(
        self,
        name: str,
        *,
        now: dt.datetime,
        life: dt.timedelta = CODE_LIFE,
        again: bool = False,  # whether a party that is enrolled or revoked may enrol anew
        server: str | None = None,  # address for the party; default: :attr:`address`
        # stores the bundle; the code is opened afterwards, and not if it raises
        hand_over: Callable[[Bundle], None] = lambda _: None,
    ) -> Bundle:
        """Return the bundle of a party, with a new open one-time code."""
        if server is not None:
            self._check_is_ours(server)
        expires = int((now + life).timestamp())
        bundle = Bundle(
            name=name,
            server=server or self.address,
            ca=self.ca.read_bytes(),
            code=secrets.token_bytes(CODE_BYTES),
            campaign_key=self.signing_key.public_key().public_bytes_raw(),
            expires=expires,
        )
        self.registry.invite(
            name,
            verifier_of(bundle.code),
            now=int(now.timestamp()),
            expires=expires,
            again=again,
            hand_over=lambda: hand_over(bundle),
        )
        return bundle

    def _check_is_ours(self, server: str) -> None:
        try:
            host, _ = split_address(server)
        except ProtocolError as error:
            raise UsageError(str(error)) from error
        if _plain(host) not in map(_plain, self.hosts):
            raise UsageError(
                f"{host} is not among the hosts of this server's certificate "
                f"({', '.join(self.hosts)}): no party would trust it there"
            )

    def admit(self, answer: Answer, now: dt.datetime) -> bool:
        """Accept the answer of a party; see :meth:`Registry.take`."""
        return self.registry.take(answer, authority=self.fingerprint, now=int(now.timestamp()))

    def revoke(self, name: str, now: dt.datetime) -> str:
        """Revoke a party; see :meth:`Registry.revoke`."""
        return self.registry.revoke(name, now=int(now.timestamp()))

    def rotate(self, now: dt.datetime) -> dt.datetime:
        """Make a new server key and certificate of the same authority; return its expiry.

        A running server uses the old one until it is restarted.
        """
        try:
            key = self._ca_key.read_bytes()
        except OSError as error:
            raise StateError(
                f"the authority's key {self._ca_key} cannot be read; restore it to sign with it"
            ) from error
        made = issue(Authority(self.ca.read_bytes(), key), self.hosts, now)
        write_file(self.certificate, made)
        return ends(made)

    def warnings(self, now: dt.datetime) -> list[str]:
        """Return a line for each certificate that expires within 30 days, or has expired."""
        return [
            f"{what} {'expired' if now >= until else 'expires'} on {until:%Y-%m-%d}: {mend}"
            for what, until, mend in self._ends()
            if until - now < WARN_BEFORE
        ]

    def require_valid(self, now: dt.datetime) -> None:
        """Check that parties can trust this server now."""
        for what, until, mend in self._ends():
            if now >= until:
                raise StateError(f"{what} expired on {until:%Y-%m-%d %H:%M} UTC: {mend}")

    def _ends(self) -> list[tuple[str, dt.datetime, str]]:
        return [
            (
                "the authority that parties pin",
                ends(self.ca.read_bytes()),
                "`pate-server init` makes another in a new --home, where all parties enrol again",
            ),
            (
                "the server's certificate",
                ends(self.certificate.read_bytes()),
                "`pate-server rotate` makes a new one; parties need not act",
            ),
        ]


def _plain(host: str) -> str:
    """Return a host in canonical form."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def told_port(identities: Identities | None) -> int:
    """Return the default port for parties; in a trial, 9092."""
    return _TRIAL_PORT if identities is None else split_address(identities.address)[1]


def require_lasting_key(series: str | None, identities: Identities | None) -> None:
    """Check that the campaigns of a series are signed by one key.

    ``series``: name of the campaign's series, None for none; ``identities``: of the server; None: a
    trial.
    """
    if series is not None and identities is None:
        raise UsageError(
            f"--series {series} needs a server key that lasts: parties know a series by its name "
            "and that key, and a trial has a new one for each campaign; run `pate-server init`"
        )


def require_identities(host: str, identities: Identities | None) -> None:
    """Refuse to listen beyond loopback without certificate and enrolled parties."""
    if identities is None and host not in LOOPBACK:
        raise UsageError(
            f"{host} is reachable from outside this machine, where anyone could join and read "
            f"the votes: run `pate-server init --host NAME` and enrol the parties, or listen on "
            "127.0.0.1"
        )
