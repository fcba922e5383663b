"""The SuperNode: Flower's end at a party, as a child process that only calls out.

It speaks to the server on the party's behalf and offers what arrives to this process, on a port
of loopback and to nobody without its secret.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

import httpx

from party.flower_internals import SUPERNODE_MAIN
from pate.errors import UnreachableError, UsageError
from pate.runtime.home import new_secret
from pate.runtime.lifeline import LOOPBACK, Child, free_port

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_PROBE_TIMEOUT_S: Final = 5.0


class UntrustedServerError(UnreachableError):
    """A server that answers with a certificate that is not trusted: waiting will not help."""


class Server:
    """Where the server is and how it is trusted.

    Attributes:
        address: ``host:port``.
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
        host, colon, port = address.rpartition(":")
        self.host = host.removeprefix("[").removesuffix("]")
        if not (colon and self.host and port.isascii() and port.isdigit() and int(port) < 2**16):
            raise UsageError(f"{address!r} is no server address; write host:port")
        self.address = address
        self.in_clear = root_certificates is None and self.host in LOOPBACK
        self.root_certificates = None if root_certificates is None else root_certificates.resolve()
        self._verify = _trust(self.root_certificates)

    def probe(self) -> None:
        """Ask the server's health, once.

        Raises:
            UntrustedServerError: if its certificate is not signed by one that is trusted.
            UnreachableError: if it does not answer, or answers that it is not ready.
        """
        scheme = "http" if self.in_clear else "https"
        try:
            reply = httpx.get(
                f"{scheme}://{self.address}/health",
                timeout=_PROBE_TIMEOUT_S,
                verify=self._verify,
                trust_env=self.host not in LOOPBACK,
            )
        except httpx.HTTPError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise UntrustedServerError(
                    f"the certificate of {self.address} is not one that this party trusts: {error}"
                ) from error
            raise UnreachableError(f"{self.address} does not answer: {error}") from error
        if not reply.is_success:
            raise UnreachableError(f"{self.address} is not ready (HTTP {reply.status_code})")


def probe(server: str, root_certificates: Path | None = None) -> None:
    """Ask the health of the server at ``server`` (``host:port``), once; see :meth:`Server.probe`.

    Raises:
        UsageError: if the address cannot be read or the certificates are not there.
        UnreachableError: if the server does not answer, is not ready, or is not trusted.
    """
    Server(server, root_certificates).probe()


class SuperNode:
    """A SuperNode that was started; whether it is connected is for it to find out.

    Attributes:
        address: where it offers what arrives, ``host:port``.
        secret: what allows this process, and no other, to take it.
        child: its process.
    """

    def __init__(self, home: Path, server: Server) -> None:
        """Start one.

        Args:
            home: its directory, for its log and its secret.
            server: whom it connects to.

        Raises:
            DiskError: if ``home`` cannot be written.
        """
        self._secret_file = home.resolve() / "superexec.secret"
        self.secret = new_secret(self._secret_file)
        port = free_port(_HOST)
        self.address = f"{_HOST}:{port}"
        trust: list[str] = []
        if server.in_clear:
            trust = ["--insecure"]
        elif server.root_certificates is not None:
            trust = ["--root-certificates", str(server.root_certificates)]
        self.child = Child(
            "supernode",
            SUPERNODE_MAIN,
            [
                *trust,
                *("--superlink", server.address),
                *("--host", _HOST, "--port", str(port)),
                *("--isolation", "process"),
                *("--superexec-auth-secret-file", str(self._secret_file)),
            ],
            home=home,
        )

    def stop(self) -> None:
        """End it, so that the server knows that this party has left, and remove its secret."""
        self.child.stop()
        self._secret_file.unlink(missing_ok=True)


def _trust(root_certificates: Path | None) -> ssl.SSLContext | bool:
    if root_certificates is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(root_certificates))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{root_certificates} cannot be used as root certificates: {error}"
        ) from error
