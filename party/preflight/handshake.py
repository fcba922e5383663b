"""One health request to the server, by the same route as the connection's.

Flower's requests, and ours, are HTTPS requests that obey the proxy variables of the environment; so is
this one. A failed request is explained by :meth:`party.flower.supernode.Server.failure`, as at a start.
A rejected certificate is then fetched once more without trusting it, to report its content; nothing is
sent to that server.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from cryptography import x509

from party.flower.supernode import HEALTH, Server, UntrustedServerError, date_of, of_anybody
from party.identity.enrolment import Enrolment, read_bundle
from pate.errors import StateError, UnreachableError, UsageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from party.options import CheckOptions


def enrolment_of(options: CheckOptions) -> Enrolment | None:
    """Return the enrolment in the home, None if there is none.

    Raises:
        StateError: if it is damaged or incomplete. Reading one whose new key is not moved to its place
            yet would move it, which a check must not do.
    """
    home = options.place
    if any(home.glob("enrolments/*/identity.new")):
        raise StateError(
            f"an enrolment in {home} was not brought to its end: give the command that was stopped "
            "again (`pate-party enroll` or `pate-party start`)"
        )
    return Enrolment.load(home) if home.is_dir() else None


def server_of(options: CheckOptions) -> Server | None:
    """Return the server that the party would connect to, None if none is known.

    It is that of ``--server``, else of the bundle, else of the enrolment; its trusted authority is the
    bundle's, else the enrolment's.

    Raises:
        StateError: if bundle or enrolment cannot be used.
        ProtocolError: if it is not a bundle.
        UsageError: if the address is invalid.
    """
    if options.bundle is not None:
        bundle = read_bundle(options.bundle, options.clock())
        with tempfile.TemporaryDirectory() as folder:
            authority = Path(folder) / "ca.pem"
            authority.write_bytes(bundle.ca)
            return Server(options.server or bundle.server, authority)
    enrolment = enrolment_of(options)
    if enrolment is not None:
        return Server(options.server or enrolment.server, enrolment.ca)
    return None if options.server is None else Server(options.server)


@dataclass(frozen=True)
class Handshake:
    """The result of a request to a server.

    Attributes:
        error: why it failed, else None; an ``UntrustedServerError`` if the server could not prove its
            identity.
        status: HTTP status of the health check, None if there was no answer.
        said: the time by the server's clock, in whole seconds, None if there was no Date header.
        heard: the time by this machine's clock, halfway between request and reply.
        certificate: the server's, None in clear text.
        protocol: such as ``TLSv1.3``, None in clear text.
    """

    error: UnreachableError | None = None
    status: int | None = None
    said: dt.datetime | None = None
    heard: dt.datetime | None = None
    certificate: x509.Certificate | None = None
    protocol: str | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether the server's identity is not in doubt."""
        return not isinstance(self.error, UntrustedServerError)


def meet(
    server: Server,
    *,
    timeout: float = 4.0,
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Handshake:
    """Check a server's health once.

    Args:
        server: to contact.
        timeout: of each step, in seconds.
        clock: this machine's.
    """
    try:
        return _ask(server, timeout, clock)
    except UsageError as error:
        return Handshake(UnreachableError(f"{server.address} does not answer: {error}"))
    except httpx.HTTPError as error:
        missed = Handshake(server.failure(error))
    if missed.is_trusted or server.in_clear:
        return missed
    with contextlib.suppress(httpx.HTTPError):
        return replace(_ask(server, timeout, clock, of_anybody()), error=missed.error, status=None)
    return missed


def _ask(
    server: Server,
    timeout: float,
    clock: Callable[[], dt.datetime],
    verify: ssl.SSLContext | None = None,
) -> Handshake:
    with server.client(timeout, verify) as client:
        before = clock()
        with client.stream("GET", server.url + HEALTH) as reply:
            after = clock()
            certificate, protocol = _shown(reply)
            return Handshake(
                status=reply.status_code,
                said=date_of(reply),
                heard=before + (after - before) / 2,
                certificate=certificate,
                protocol=protocol,
            )


def _shown(reply: httpx.Response) -> tuple[x509.Certificate | None, str | None]:
    """Return the certificate of a reply's connection, and its protocol; also through a proxy."""
    stream = reply.extensions.get("network_stream")
    link = None if stream is None else stream.get_extra_info("ssl_object")
    if link is None or not (body := link.getpeercert(True)):
        return None, None
    with contextlib.suppress(ValueError):
        return x509.load_der_x509_certificate(body), link.version()
    return None, link.version()
