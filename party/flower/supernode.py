"""The SuperNode: Flower's process at a party, a child that only makes outgoing connections.

It talks to the server for the party and offers messages to this process, on a loopback port that
requires its secret.
"""

from __future__ import annotations

import datetime as dt
import re
import socket
import ssl
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Self

import httpx
from cryptography import x509

from pate.errors import ProtocolError, UnreachableError, UsageError
from pate.formats.enrolment import split_address
from pate.runtime.child import LOOPBACK, Child, free_port
from pate.runtime.home import new_secret
from protos.bounds import CLOCK_AHEAD_S, CLOCK_BEHIND_S

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"
HEALTH: Final = "/health"
_PROBE_TIMEOUT_S: Final = 5.0
#: How an operating system's error begins.
_ERRNO: Final = re.compile(r"^\[Errno -?\d+\] ")
#: How a SuperNode says in its log why it could not connect.
_REFUSAL: Final = re.compile(rb"\[code: (\d{1,6})\]")
#: How many bytes of its log are searched for it, from the start.
_FIRST_WORDS: Final = 65_536
#: Reasons for rejecting a certificate, and what to do.
_FAULTS: Final = {
    "certificate has expired": "has expired: is the clock of this machine right? Then its coordinator "
    "renews it with `pate-server rotate`",
    "not yet valid": "is not valid yet: is the clock of this machine right?",
    "mismatch": "is for another host: connect to the address that the coordinator's bundle names",
}
#: Of these, reasons that a change of the clock may cause and remove.
_OF_CLOCKS: Final = ("certificate has expired", "not yet valid")


class UntrustedServerError(UnreachableError):
    """A server that cannot prove its identity: waiting does not help."""


class Server:
    """The address of a server and how it is trusted.

    ``pinned``: certificate of the only trusted authority, None for this system's.
    """

    def __init__(self, address: str, root_certificates: Path | None = None) -> None:
        """Describe a server.

        ``address``: ``host:port``, ``[host]:port`` for IPv6; ``root_certificates``: certificates
        (PEM) that the server's must be signed by. Without it, a server on loopback is spoken to in
        clear, any other over TLS with the certificates of this system.
        """
        try:
            self.host, self.port = split_address(address)
        except ProtocolError as error:
            raise UsageError(str(error)) from error
        self.address = address  # ``host:port``
        self.is_here = self.host in LOOPBACK  # whether it is on this machine: no proxy is used
        self.in_clear = root_certificates is None and self.is_here
        self.root_certificates = None if root_certificates is None else root_certificates.resolve()
        self.verify, self.pinned = _trust(self.root_certificates)
        if self.in_clear:
            from protos.flower.runtime import NOBODY

            self.verify = NOBODY  # accepted certificate authorities; True: those of this system
        # ours against its clock at its last answer; None: unknown
        self.clock: ClockDifference | None = None
        self._has_answered = False
        self.url = f"{'http' if self.in_clear else 'https'}://{address}"

    def client(self, timeout: float, verify: ssl.SSLContext | None = None) -> httpx.Client:
        """Return a client that uses the same route as Flower, proxies included.

        ``timeout``: of each step, in seconds; ``verify``: accepted certificate authorities; None:
        those of ``self.verify``.
        """
        try:
            return httpx.Client(
                verify=verify or self.verify, timeout=timeout, trust_env=not self.is_here
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise UsageError(f"the proxy variables cannot be used: {error}") from error

    def probe(self, *, within: float = _PROBE_TIMEOUT_S) -> None:
        """Check the server's health once.

        ``within``: timeout in seconds of each step.
        """
        try:
            with self.client(min(within, _PROBE_TIMEOUT_S)) as client:
                reply = client.get(f"{self.url}{HEALTH}")
        except httpx.HTTPError as error:
            raise self.failure(error) from error
        self._has_answered = True
        said = date_of(reply)
        heard = dt.datetime.now(dt.UTC)
        self.clock = None if said is None else ClockDifference.between(said, heard)
        if not reply.is_success:
            raise UnreachableError(f"{self.address} is not ready (HTTP {reply.status_code})")

    def absence(self, *, within: float = _PROBE_TIMEOUT_S) -> str | None:
        """Return why the server does not answer, None if it does; an untrusted one is an error."""
        try:
            self.probe(within=within)
        except UntrustedServerError:
            raise
        except UnreachableError as error:
            return str(error)
        return None

    def failure(self, error: httpx.HTTPError) -> UnreachableError:
        """Return the error for a failed request to this server."""
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
                "coordinator for a bundle, and `pate-party enroll` it; if it is enrolled by another "
                "name, give that with --name"
            )
        # "[Errno 111]" says nothing that the words after it do not.
        return UnreachableError(f"{self.address} does not answer: {_ERRNO.sub('', text)}")

    def _speaks_tls(self) -> bool:
        """Return whether a TLS handshake gets an answer, from anyone."""
        try:
            with (
                socket.create_connection((self.host, self.port), _PROBE_TIMEOUT_S) as plain,
                of_anybody().wrap_socket(plain),
            ):
                return True
        except OSError:
            return False


def of_anybody() -> ssl.SSLContext:
    """Return a context that accepts every certificate: for inspecting it, never for sending data."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def date_of(reply: httpx.Response) -> dt.datetime | None:
    """Return the Date header of a reply, None if there is none."""
    try:
        said = parsedate_to_datetime(reply.headers.get("date", "")[:64])
    except (ValueError, OverflowError):
        return None
    return said if said.tzinfo is not None else said.replace(tzinfo=dt.UTC)


class SuperNode:
    """A SuperNode process; it may not be connected yet.

    It starts importing at once, which takes a while, and connects after :meth:`connect`.
    """

    def __init__(self, home: Path, server: Server, node_key: Path | None = None) -> None:
        """Start the process.

        ``home``: its directory, for its log and its secret; ``node_key``: file of the key that
        admits an enrolled party (OpenSSH format).
        """
        from party.flower.internals import SUPERNODE_MAIN

        self._secret_file = home.resolve() / "superexec.secret"
        self.secret = new_secret(self._secret_file)  # authorises only this process to take them
        self.address = ""  # where it offers messages once it connects, ``host:port``
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
        """Let it connect to the server; only now, so that its port is free when it binds it."""
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
        """Stop it, so that the server knows that this party has left, and remove its secret."""
        self.child.stop()
        self._secret_file.unlink(missing_ok=True)


def _trust(
    root_certificates: Path | None,
) -> tuple[ssl.SSLContext | bool, x509.Certificate | None]:
    """Return the accepted certificate authorities, and the only one if it is pinned."""
    if root_certificates is None:
        return True, None
    try:
        verify = ssl.create_default_context(cafile=str(root_certificates))
        return verify, x509.load_pem_x509_certificate(root_certificates.read_bytes())
    except (OSError, ssl.SSLError, ValueError) as error:
        raise UsageError(
            f"{root_certificates} cannot be used as root certificates: {error}"
        ) from error


# --- this machine's clock against the server's, which refuses requests signed at another time -----

#: Measurement error: the server's Date has whole seconds, and the reply takes time.
UNSURE_S: Final = 1.0
#: What the server accepts, for a line of the screen.
ACCEPTED: Final = f"{CLOCK_AHEAD_S:.0f} s ahead and {CLOCK_BEHIND_S:.0f} s behind"


@dataclass(frozen=True)
class ClockDifference:
    """How far this machine's clock is from the server's."""

    ahead: float  # seconds by which it is ahead, negative: behind; known to about :data:`UNSURE_S`

    @classmethod
    def between(cls, said: dt.datetime, heard: dt.datetime) -> Self:
        """Return the difference of the time in the server's Date header, and ours when it came."""
        # Truncated to whole seconds, so half a second more is the best estimate.
        return cls((heard - said).total_seconds() - 0.5)

    def is_refused(self, unsure: float = 0.0) -> bool:
        """Return whether requests are refused, even if the difference is ``unsure`` seconds less."""
        return self.ahead - unsure > CLOCK_AHEAD_S or -self.ahead - unsure > CLOCK_BEHIND_S

    @property
    def is_near(self) -> bool:
        """Whether it is large enough for a warning."""
        return self.ahead > CLOCK_AHEAD_S / 2 or -self.ahead > CLOCK_BEHIND_S / 5

    @property
    def in_words(self) -> str:
        """As ``40 minutes behind``, before the other clock's name."""
        if abs(self.ahead) <= UNSURE_S:
            return "about the same as"
        return f"{_span(abs(self.ahead))} {'ahead of' if self.ahead > 0 else 'behind'}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
