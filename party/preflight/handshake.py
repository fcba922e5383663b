"""Meeting the server once, as the connection would meet it.

Flower's requests, and ours, are HTTPS requests that obey the proxy variables of the environment; so is
this one. What a request that fails means is said by :meth:`party.flower.supernode.Server.failure`, here as at
a start. A certificate that is not accepted is then fetched once more without trusting it, to report
what it says; nothing is sent there.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
import tempfile
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from cryptography import x509

from party.flower.supernode import Server, UntrustedServerError
from party.identity.enrolment import Enrolment, read_bundle
from pate.errors import StateError, UnreachableError, UsageError
from pate.runtime.child import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from party.options import CheckOptions

HEALTH: Final = "/health"


@dataclass(frozen=True)
class Target:
    """The server that the party would connect to.

    Attributes:
        server: where it is, and whose certificates it may show.
        pinned: certificate of the one authority that is trusted, None for this system's.
    """

    server: Server
    pinned: x509.Certificate | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine: proxies are passed by."""
        return self.server.host in LOOPBACK

    def client(self, timeout: float, verify: ssl.SSLContext | bool | None = None) -> httpx.Client:
        """Return a client that goes the way that Flower goes.

        Args:
            timeout: of each step, in seconds.
            verify: whose certificates are accepted; None: as at a start.

        Raises:
            UsageError: if the environment names a proxy of a kind that is not supported.
        """
        verify = self.server.verify if verify is None else verify
        try:
            return httpx.Client(verify=verify, timeout=timeout, trust_env=not self.is_here)
        except (ImportError, ValueError) as error:
            raise UsageError(f"the proxy variables cannot be used: {error}") from error


def enrolment_of(options: CheckOptions) -> Enrolment | None:
    """Return the enrolment in the home, None if there is none.

    Raises:
        StateError: if it is damaged or half done. Reading one whose last step, a key that goes to its
            place, is still to be made would make that step; a check must not.
    """
    home = options.place
    if any(home.glob("enrolments/*/identity.new")):
        raise StateError(
            f"an enrolment in {home} was not brought to its end: give the command that was stopped "
            "again (`pate-party enroll` or `pate-party start`)"
        )
    return Enrolment.load(home) if home.is_dir() else None


def target_of(options: CheckOptions) -> Target | None:
    """Return the server that the party would connect to, None if none is known.

    It is that of ``--server``, else of the bundle, else of the enrolment; whom it is trusted by is
    the bundle's authority, else the enrolment's.

    Raises:
        StateError: if bundle or enrolment cannot be used.
        ProtocolError: if the bundle is none.
        UsageError: if the address cannot be read.
    """
    if options.bundle is not None:
        bundle = read_bundle(options.bundle, options.clock())
        with tempfile.TemporaryDirectory() as folder:
            authority = Path(folder) / "ca.pem"
            authority.write_bytes(bundle.ca)
            server = Server(options.server or bundle.server, authority)
        return Target(server, x509.load_pem_x509_certificate(bundle.ca))
    enrolment = enrolment_of(options)
    if enrolment is not None:
        pinned = x509.load_pem_x509_certificate(enrolment.ca.read_bytes())
        return Target(Server(options.server or enrolment.server, enrolment.ca), pinned)
    return None if options.server is None else Target(Server(options.server))


@dataclass(frozen=True)
class Meeting:
    """What came of meeting a server.

    Attributes:
        error: why it did not come about, None if it did; an ``UntrustedServerError`` if the server
            could not prove who it is.
        status: HTTP status of the health check, None if there was no answer.
        said: the time by the server's clock, in whole seconds, None if it did not say.
        heard: the time by this machine's clock, halfway between question and answer.
        certificate: what it showed, None in clear.
        protocol: such as ``TLSv1.3``, None in clear.
    """

    error: UnreachableError | None = None
    status: int | None = None
    said: dt.datetime | None = None
    heard: dt.datetime | None = None
    certificate: x509.Certificate | None = None
    protocol: str | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether nothing is held against who the server is."""
        return not isinstance(self.error, UntrustedServerError)


def meet(
    target: Target,
    *,
    timeout: float = 4.0,
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Meeting:
    """Ask a server's health, once.

    Args:
        target: the server.
        timeout: of each step, in seconds.
        clock: this machine's.
    """
    server = target.server
    try:
        return _ask(target, timeout, clock)
    except UsageError as error:
        return Meeting(UnreachableError(f"{server.address} does not answer: {error}"))
    except httpx.HTTPError as error:
        missed = Meeting(server.failure(error))
    if missed.is_trusted or server.in_clear:
        return missed
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(httpx.HTTPError):
        return replace(_ask(target, timeout, clock, anybody), error=missed.error, status=None)
    return missed


def _ask(
    target: Target,
    timeout: float,
    clock: Callable[[], dt.datetime],
    verify: ssl.SSLContext | None = None,
) -> Meeting:
    with target.client(timeout, verify) as client:
        before = clock()
        with client.stream("GET", target.server.url + HEALTH) as reply:
            after = clock()
            certificate, protocol = _shown(reply)
            return Meeting(
                status=reply.status_code,
                said=_date(reply.headers.get("date")),
                heard=before + (after - before) / 2,
                certificate=certificate,
                protocol=protocol,
            )


def _shown(reply: httpx.Response) -> tuple[x509.Certificate | None, str | None]:
    """Return the certificate that stands behind a reply, and the protocol; also through a proxy."""
    stream = reply.extensions.get("network_stream")
    link = None if stream is None else stream.get_extra_info("ssl_object")
    if link is None or not (body := link.getpeercert(True)):
        return None, None
    with contextlib.suppress(ValueError):
        return x509.load_der_x509_certificate(body), link.version()
    return None, link.version()


def _date(text: str | None) -> dt.datetime | None:
    with contextlib.suppress(TypeError, ValueError):
        said = parsedate_to_datetime((text or "")[:64])
        return said if said.tzinfo is not None else said.replace(tzinfo=dt.UTC)
    return None
