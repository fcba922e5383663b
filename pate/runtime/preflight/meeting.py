"""Meeting a server once, as the transport would: what it showed, said, and what was wrong with it.

Flower's connections, and ours, are HTTPS requests that obey the proxy variables of the environment;
so is this one. A certificate that is not accepted is then fetched once more without trusting it, to
say what is wrong with it; nothing is sent there.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING, Final

import httpx
from cryptography import x509

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

HEALTH: Final = "/health"
#: What OpenSSL calls each fault (its X509_V_ERR_ numbers).
_EXPIRED: Final = 10
_EARLY: Final = 9
_NAMES: Final = frozenset({47, 48, 62, 64})
_STRANGE: Final = frozenset({2, 7, 18, 19, 20, 21, 24, 27, 30})
#: What it says where the other side does not speak TLS at all.
_PLAIN: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


class Fault(Enum):
    """Why a server could not be met."""

    SILENT = "does not answer"
    AUTHORITY = "its certificate is of another authority"
    EXPIRED = "its certificate has expired"
    EARLY = "its certificate is not valid yet"
    NAME = "its certificate is for another host"
    CERTIFICATE = "its certificate is not accepted"
    NO_TLS = "it does not speak TLS"
    ONLY_TLS = "it speaks nothing but TLS"
    PROXY = "the proxy does not let it be reached"


@dataclass(frozen=True)
class Target:
    """A server, and how it is spoken to.

    Attributes:
        host: name or address.
        port: of it.
        tls: whether it is spoken to over TLS.
        trust: whose certificates it may show; None: those of this system.
        authority: certificate (PEM) of the one authority that is trusted, None for this system's.
        direct: whether proxies are passed by, as on this machine.
    """

    host: str
    port: int
    tls: bool = True
    trust: ssl.SSLContext | None = None
    authority: bytes | None = None
    direct: bool = False

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address with the protocol that is spoken."""
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def client(self, timeout: float, *, trusting: bool = False) -> httpx.Client:
        """Return a client that goes the way that Flower goes.

        Args:
            timeout: of each step, in seconds.
            trusting: whether any certificate will do; for looking at it, and for nothing else.

        Raises:
            UsageError: if the environment names a proxy of a kind that is not supported.
        """
        verify: ssl.SSLContext | bool = True if self.trust is None else self.trust
        if trusting:
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            verify.check_hostname = False
            verify.verify_mode = ssl.CERT_NONE
        try:
            return httpx.Client(verify=verify, timeout=timeout, trust_env=not self.direct)
        except (ImportError, ValueError) as error:
            raise UsageError(f"the proxy variables cannot be used: {error}") from error


@dataclass(frozen=True)
class Meeting:
    """What came of it.

    Attributes:
        fault: why it did not come about, None if it did.
        detail: what the system said of the fault.
        status: HTTP status of the health check, None if there was no answer.
        said: the time by the server's clock, in whole seconds, None if it did not say.
        heard: the time by this machine's clock, halfway between question and answer.
        certificate: what it showed, None in clear.
        protocol: such as ``TLSv1.3``, None in clear.
    """

    fault: Fault | None = None
    detail: str = ""
    status: int | None = None
    said: dt.datetime | None = None
    heard: dt.datetime | None = None
    certificate: x509.Certificate | None = None
    protocol: str | None = None


def utc_now() -> dt.datetime:
    """Return the time by this machine's clock."""
    return dt.datetime.now(dt.UTC)


def meet(
    target: Target, *, timeout: float = 4.0, clock: Callable[[], dt.datetime] = utc_now
) -> Meeting:
    """Ask a server's health, once.

    Args:
        target: the server.
        timeout: of each step, in seconds.
        clock: this machine's.
    """
    try:
        return _ask(target, timeout, clock, trusting=False)
    except (UsageError, httpx.ProxyError) as error:
        return Meeting(Fault.PROXY, str(error))
    except httpx.HTTPError as error:
        fault = _fault_of(error)
        detail = str(error) or type(error).__name__
        connected = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    if not target.tls:
        speaks = connected and _speaks_tls(target, timeout)
        return Meeting(Fault.ONLY_TLS if speaks else Fault.SILENT, detail)
    if fault is None:
        return Meeting(Fault.SILENT, detail)
    if fault is Fault.NO_TLS:
        return Meeting(fault, detail)
    with contextlib.suppress(httpx.HTTPError):
        return replace(
            _ask(target, timeout, clock, trusting=True), fault=fault, detail=detail, status=None
        )
    return Meeting(fault, detail)


def _ask(
    target: Target, timeout: float, clock: Callable[[], dt.datetime], *, trusting: bool
) -> Meeting:
    with target.client(timeout, trusting=trusting) as client:
        before = clock()
        with client.stream("GET", target.url + HEALTH) as reply:
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


def _fault_of(error: BaseException) -> Fault | None:
    """Return what TLS has against a server, None if it is not TLS that failed."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _of_number(cause.verify_code)
        if isinstance(cause, ssl.SSLError):
            return Fault.NO_TLS if any(word in str(cause) for word in _PLAIN) else Fault.CERTIFICATE
        cause = cause.__cause__ or cause.__context__
    return None


def _of_number(code: int) -> Fault:
    if code in _STRANGE:
        return Fault.AUTHORITY
    if code in _NAMES:
        return Fault.NAME
    return {_EXPIRED: Fault.EXPIRED, _EARLY: Fault.EARLY}.get(code, Fault.CERTIFICATE)


def _speaks_tls(target: Target, timeout: float) -> bool:
    """Say whether a handshake gets an answer where we would speak in clear."""
    over = replace(target, tls=True)
    with (
        contextlib.suppress(httpx.HTTPError),
        over.client(timeout, trusting=True) as client,
        client.stream("GET", over.url + HEALTH),
    ):
        return True
    return False
