"""The SuperNode: Flower's end at a party, as a child process that only calls out.

It speaks to the server on the party's behalf and offers what arrives to this process, on a port
of loopback and to nobody without its secret.
"""

from __future__ import annotations

import datetime as dt
import re
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

import httpx
from cryptography import x509

from party.flower.internals import NOBODY, SUPERNODE_MAIN
from pate.errors import ProtocolError, UnreachableError, UsageError
from pate.formats.enrolment import split_address
from pate.runtime.child import LOOPBACK, Child, free_port
from pate.runtime.home import new_secret

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"
HEALTH: Final = "/health"
_PROBE_TIMEOUT_S: Final = 5.0
#: How an operating system's error begins.
_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")
#: How a SuperNode says in its log why it could not connect.
_REFUSAL: Final = re.compile(rb"\[code: (\d{1,6})\]")
#: How much of its log is looked through for that, from its start on, in bytes.
_FIRST_WORDS: Final = 65_536
#: What a certificate that is not accepted may have against it, and what to do.
_FAULTS: Final = {
    "certificate has expired": "has expired: is the clock of this machine right? Then its coordinator "
    "renews it with `pate-server rotate`",
    "not yet valid": "is not valid yet: is the clock of this machine right?",
    "mismatch": "is for another host: connect to the address that the coordinator's bundle names",
}
#: Of these, what a clock that is set, and one that is set right again, brings and takes away.
_OF_CLOCKS: Final = ("certificate has expired", "not yet valid")


class UntrustedServerError(UnreachableError):
    """A server that cannot prove who it is: waiting will not help."""


class Server:
    """Where the server is and how it is trusted.

    Attributes:
        address: ``host:port``.
        url: the same with the protocol that is spoken.
        verify: whose certificates it may show; True: those of this system.
        pinned: certificate of the one authority that is trusted, None for this system's.
        is_here: whether it is on this machine: proxies are passed by.
        skew: by how many seconds its clock was ahead of ours when it last answered.
    """

    def __init__(self, address: str, root_certificates: Path | None = None) -> None:
        """Describe a server.

        Args:
            address: ``host:port``, ``[host]:port`` for IPv6.
            root_certificates: certificates (PEM) that the server's must be signed by. Without it,
                a server on loopback is spoken to in clear, any other over TLS with the
                certificates of this system.

        Raises:
            UsageError: if the address cannot be read or the certificates are not there.
        """
        try:
            self.host, self.port = split_address(address)
        except ProtocolError as error:
            raise UsageError(str(error)) from error
        self.address = address
        self.is_here = self.host in LOOPBACK
        self.in_clear = root_certificates is None and self.is_here
        self.root_certificates = None if root_certificates is None else root_certificates.resolve()
        self.verify, self.pinned = _trust(self.root_certificates)
        if self.in_clear:
            self.verify = NOBODY
        self.skew = 0.0
        self._has_answered = False
        self.url = f"{'http' if self.in_clear else 'https'}://{address}"

    def client(self, timeout: float, verify: ssl.SSLContext | None = None) -> httpx.Client:
        """Return a client that goes the way that Flower goes, through proxies too.

        Args:
            timeout: of each step, in seconds.
            verify: whose certificates are accepted; None: as at a start.

        Raises:
            UsageError: if the environment names a proxy of a kind that is not supported.
        """
        try:
            return httpx.Client(
                verify=verify or self.verify, timeout=timeout, trust_env=not self.is_here
            )
        except (ImportError, ValueError) as error:
            raise UsageError(f"the proxy variables cannot be used: {error}") from error

    def probe(self, *, within: float = _PROBE_TIMEOUT_S) -> None:
        """Ask the server's health, once.

        Args:
            within: seconds that each part of it may take, if fewer than usual.

        Raises:
            UntrustedServerError: if its certificate is not signed by one that is trusted, or is
                not valid now and never was before.
            UnreachableError: if it does not answer, or answers that it is not ready.
            UsageError: if the environment names a proxy of a kind that is not supported.
        """
        try:
            with self.client(min(within, _PROBE_TIMEOUT_S)) as client:
                reply = client.get(f"{self.url}{HEALTH}")
        except httpx.HTTPError as error:
            raise self.failure(error) from error
        self._has_answered = True
        said = date_of(reply)
        self.skew = 0.0 if said is None else said.timestamp() - time.time()
        if not reply.is_success:
            raise UnreachableError(f"{self.address} is not ready (HTTP {reply.status_code})")

    def failure(self, error: httpx.HTTPError) -> UnreachableError:
        """Return what a request to this server that failed means, in one line."""
        text = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in text:
            for fault, words in _FAULTS.items():
                if fault in text:
                    waits = self._has_answered and fault in _OF_CLOCKS
                    kind = UnreachableError if waits else UntrustedServerError
                    return kind(f"the certificate of {self.address} {words}")
            return UntrustedServerError(
                f"the certificate of {self.address} is not one that this party trusts: enrol with "
                "a bundle of its coordinator (`pate-party enroll`), or check the address"
            )
        if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
            return UntrustedServerError(
                f"{self.address} does not speak TLS, so it is not the server that this party "
                "enrolled with: check the address"
            )
        if self.in_clear and not isinstance(error, httpx.ConnectError) and self._speaks_tls():
            return UntrustedServerError(
                f"{self.address} speaks TLS, and this party is not enrolled there: ask its "
                "coordinator for a bundle, and `pate-party enroll` it"
            )
        # "[Errno 111]" says nothing that the words after it do not.
        return UnreachableError(f"{self.address} does not answer: {_ERRNO.sub('', text)}")

    def _speaks_tls(self) -> bool:
        """Say whether a handshake gets an answer; whose it is does not matter here."""
        try:
            with (
                socket.create_connection((self.host, self.port), _PROBE_TIMEOUT_S) as plain,
                of_anybody().wrap_socket(plain),
            ):
                return True
        except OSError:
            return False


def of_anybody() -> ssl.SSLContext:
    """Return what accepts every certificate: to look at one that is not trusted, never to send."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def date_of(reply: httpx.Response) -> dt.datetime | None:
    """Return the time by the clock of whoever replied, None if that is not said."""
    try:
        said = parsedate_to_datetime(reply.headers.get("date", "")[:64])
    except (ValueError, OverflowError):
        return None
    return said if said.tzinfo is not None else said.replace(tzinfo=dt.UTC)


class SuperNode:
    """A SuperNode that was started; whether it is connected is for it to find out.

    It is imported when it is made, which takes a while, and connects after :meth:`connect`.

    Attributes:
        address: where it offers what arrives once it connects, ``host:port``.
        secret: what allows this process, and no other, to take it.
        child: its process.
    """

    def __init__(self, home: Path, server: Server, node_key: Path | None = None) -> None:
        """Start one.

        Args:
            home: its directory, for its log and its secret.
            server: whom it connects to.
            node_key: file of the key by which an enrolled party is let in (OpenSSH format).

        Raises:
            DiskError: if ``home`` cannot be written.
        """
        self._secret_file = home.resolve() / "superexec.secret"
        self.secret = new_secret(self._secret_file)
        self.address = ""
        trust: list[str] = []
        if server.in_clear:
            trust = ["--insecure"]
        elif server.root_certificates is not None:
            trust = ["--root-certificates", str(server.root_certificates)]
        if node_key is not None:
            trust += ["--auth-supernode-private-key", str(node_key.resolve())]
        log = home / "supernode.log"
        self._log_began = log.stat().st_size if log.exists() else 0
        self.child = Child(
            "supernode",
            SUPERNODE_MAIN,
            [
                *trust,
                *("--superlink", server.address),
                *("--host", _HOST),
                *("--isolation", "process"),
                *("--superexec-auth-secret-file", str(self._secret_file)),
            ],
            home=home,
        )

    def connect(self) -> None:
        """Let it connect to the server. Only now, so that its port is free when it takes it."""
        port = free_port(_HOST)
        self.address = f"{_HOST}:{port}"
        self.child.go(str(port))

    def refusal(self) -> int | None:
        """Return the code with which the server refused the connection, if it did."""
        try:
            with self.child.log.open("rb") as log:
                log.seek(self._log_began)
                codes = _REFUSAL.findall(log.read(_FIRST_WORDS))
        except OSError:
            return None
        return int(codes[-1]) if codes else None

    def stop(self) -> None:
        """End it, so that the server knows that this party has left, and remove its secret."""
        self.child.stop()
        self._secret_file.unlink(missing_ok=True)


def _trust(
    root_certificates: Path | None,
) -> tuple[ssl.SSLContext | bool, x509.Certificate | None]:
    """Return whose certificates are accepted, and the one authority if there is one."""
    if root_certificates is None:
        return True, None
    try:
        verify = ssl.create_default_context(cafile=str(root_certificates))
        return verify, x509.load_pem_x509_certificate(root_certificates.read_bytes())
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UsageError(
            f"{root_certificates} cannot be used as root certificates: {error}"
        ) from error
