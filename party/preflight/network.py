"""Checks of the network: the server's name, proxies, certificate, clock, and other open ports and routes.

Most are about one health request to the server, by the same route as the connection's. Flower's requests,
and ours, are HTTPS requests that obey the proxy variables of the environment; so is this one. A failed
request is explained by :meth:`party.flower.supernode.Server.failure`, as at a start. A rejected certificate
is then fetched once more without trusting it, to report its content; nothing is sent to that server.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from party.flower.supernode import (
    ACCEPTED,
    HEALTH,
    UNSURE_S,
    ClockDifference,
    Server,
    UntrustedServerError,
    date_of,
    of_anybody,
)
from party.identity.enrolment import Enrolment, read_bundle
from pate.errors import StateError, UnreachableError, UsageError
from pate.preflight import Finding, machine
from pate.preflight.checks import days_left
from pate.runtime.child import proxy_variable

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from party.options import CheckOptions

#: Remaining validity of a certificate below which a warning is given.
SOON: Final = dt.timedelta(days=30)
#: Ports of Flower's interfaces that are not for parties.
FLOWER_PORTS: Final = {
    8000: "a SuperLink itself",
    9091: "Flower's ServerAppIo",
    9093: "Flower's Control",
}
#: Routes that our gateway does not have: interfaces for operators and for runs, and their description.
_NOT_FOR_PARTIES: Final = ("/v1/control/list-runs", "/v1/runtime/acquire-task", "/docs")
#: Statuses of a route that exists.
_THERE: Final = frozenset({200, 400, 401, 405, 411, 412, 415, 422})
_PORT_S: Final = 1.5
_NAMES: Final = 4
_PROXIES: Final = ("https_proxy", "http_proxy", "all_proxy")
_NTP: Final = "set this machine's clock, or the server's, and keep both by NTP"


def enrolment_of(options: CheckOptions) -> Enrolment | None:
    """Return the enrolment in the home, None if there is none."""
    home = options.place
    if any(home.glob("enrolments/*/identity.new")):
        raise StateError(
            f"an enrolment in {home} was not brought to its end: give the command that was stopped "
            "again (`pate-party enroll` or `pate-party start`)"
        )
    return Enrolment.load(home) if home.is_dir() else None


def server_of(options: CheckOptions) -> Server | None:
    """Return the server of ``--server``, else of the bundle, else of the enrolment; None if none."""
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
    """The result of a request to a server."""

    # why it failed, else None; an ``UntrustedServerError`` if the server could not prove its
    # identity
    error: UnreachableError | None = None
    status: int | None = None  # HTTP status of the health check, None if there was no answer
    # the time by the server's clock, in whole seconds, None if there was no Date header
    said: dt.datetime | None = None
    # the time by this machine's clock, halfway between request and reply
    heard: dt.datetime | None = None
    certificate: x509.Certificate | None = None
    protocol: str | None = None  # such as ``TLSv1.3``, None in clear text

    @property
    def is_trusted(self) -> bool:
        """Whether the server's identity is not in doubt."""
        return not isinstance(self.error, UntrustedServerError)


def meet(
    server: Server,
    *,
    timeout: float = 4.0,  # of each step, in seconds
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Handshake:
    """Check a server's health once."""
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


def check_name(server: Server) -> Finding:
    """Look up the server's name."""
    found = machine.check_name(server.host, server.port)
    if found.kind is None or proxy_for(server) is None:
        return found
    return Finding.warning(f"{found.text}; the proxy looks it up", "nothing, if the proxy knows it")


def proxy_for(server: Server) -> str | None:
    """Return the proxy that a connection to ``server`` goes through, ``host:port``; None for none."""
    if server.is_here:
        return None
    with server.client(1.0) as client:
        # httpx interprets NO_PROXY in its own way, and Flower uses httpx.
        way = client._transport_for_url(httpx.URL(server.url))  # noqa: SLF001
        if way is client._transport:  # noqa: SLF001
            return None
    named = proxy_variable("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    return "a proxy of this system" if named is None else named[1]


def _variable(name: str) -> str:
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def check_proxy(server: Server) -> Finding:
    """Report the effect of the proxy variables on the route to the server."""
    host, proxies = server.host, [name for name in _PROXIES if _variable(name)]
    if server.is_here:
        return Finding.ok("not used: the server is on this machine")
    try:
        through = proxy_for(server)
    except UsageError as error:
        return Finding.failed(UsageError, str(error), f"use an HTTP proxy, or NO_PROXY={host}")
    if through is None and proxies:
        return Finding.ok(f"{', '.join(proxies)} set, and NO_PROXY takes {host} out: straight")
    if through is None:
        return Finding.ok("none is set: connections go straight to the server")
    text = (
        f"connections go through {through}, as {proxies[0] if proxies else 'this system'} says; it must "
        f"let CONNECT {server.address} pass and leave TLS as it is"
    )
    ranges = [
        part for part in _variable("no_proxy").split(",") if "/" in part and "://" not in part
    ]
    if ranges:
        return Finding.warning(
            f"{text}; ranges in NO_PROXY ({ranges[0].strip()}) are not looked at",
            f"name the host itself to go straight: NO_PROXY={host}",
        )
    return Finding.ok(text)


def check_certificate(server: Server, handshake: Handshake, now: dt.datetime) -> Finding:
    """Report whether the server proves its identity, and how long its certificate is valid."""
    shown = handshake.certificate
    if server.in_clear:
        return Finding.ok("none: in clear, as a trial on this machine")
    if not handshake.is_trusted:
        return _refused(server, handshake, now)
    if handshake.error is not None:
        return Finding.skipped("no server answered")
    if shown is None:
        return Finding.skipped("no certificate was shown")
    ends = shown.not_valid_after_utc
    whose = "this system's authorities" if server.pinned is None else "the pinned authority"
    text = (
        f"of {whose}, for {server.host}, {handshake.protocol}; ends {ends:%Y-%m-%d} "
        f"({days_left(ends, now)})"
    )
    if ends - now < SOON:
        return Finding.warning(
            text, "the coordinator renews it: `pate-server rotate`, then a start"
        )
    return Finding.ok(text)


def _refused(server: Server, handshake: Handshake, now: dt.datetime) -> Finding:
    """Report the error of a start, and the certificate's content as a hint to its cause."""
    shown, pinned, text, to_do = handshake.certificate, server.pinned, str(handshake.error), ""
    if shown is not None:
        text += (
            f" (it is for {names_of(shown)}, from {shown.not_valid_before_utc:%Y-%m-%d %H:%M} to "
            f"{shown.not_valid_after_utc:%Y-%m-%d %H:%M}; this clock says {now:%Y-%m-%d %H:%M} UTC)"
        )
    if pinned is not None and now >= pinned.not_valid_after_utc:
        text += f"; the pinned authority expired on {pinned.not_valid_after_utc:%Y-%m-%d}"
        to_do = "ask the coordinator for a new bundle"
    elif pinned is not None and shown is not None:
        try:
            shown.verify_directly_issued_by(pinned)
        except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
            text += "; it is not of the pinned authority"
            to_do = (
                "ask the coordinator whether the server was set up anew; or something on the way "
                "opens TLS (a proxy)"
            )
    return Finding.failed(UnreachableError, text, to_do)


def names_of(certificate: x509.Certificate) -> str:
    """Return the hosts that a certificate is for, the first few."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return "no host"
    texts = [str(each.value) for each in names][: _NAMES + 1]
    return ", ".join(texts[:_NAMES]) + (" and others" if len(texts) > _NAMES else "")


def check_clock(server: Server | None, handshake: Handshake | None, now: dt.datetime) -> Finding:
    """Compare this clock with the server's Date header, or else with the pinned authority's validity."""
    if handshake is not None and handshake.said is not None and handshake.heard is not None:
        return _against_date(handshake, handshake.said, handshake.heard)
    if server is None or server.pinned is None:
        return Finding.skipped("nothing to compare it with: no server answered, none is pinned")
    begins, ends = server.pinned.not_valid_before_utc, server.pinned.not_valid_after_utc
    if not begins <= now <= ends:
        return Finding.failed(
            StateError,
            f"it says {now:%Y-%m-%d %H:%M} UTC, and the pinned authority is valid from "
            f"{begins:%Y-%m-%d} to {ends:%Y-%m-%d}",
            "set this machine's clock, and keep it by NTP",
        )
    return Finding.ok(
        f"{now:%Y-%m-%d %H:%M} UTC, within the years of the pinned authority; no server answered, so "
        "no more is known"
    )


def _against_date(handshake: Handshake, said: dt.datetime, heard: dt.datetime) -> Finding:
    clock = ClockDifference.between(said, heard)
    proved = "" if handshake.error is None else ", which did not prove who it is"
    text = f"{clock.in_words} the server's Date header{proved}"
    if clock.is_refused(UNSURE_S):
        return Finding.failed(
            StateError, f"{text}: the server refuses requests signed with such a time", _NTP
        )
    if clock.is_near:
        return Finding.warning(f"{text}; the server allows {ACCEPTED}", _NTP)
    return Finding.ok(text)


def check_server(server: Server, handshake: Handshake) -> Finding:
    """Report whether the server's port for parties answers that it is ready."""
    address = server.address
    if not handshake.is_trusted and not server.in_clear:
        return Finding.skipped("its certificate is not accepted: nothing was asked")
    if not handshake.is_trusted:
        return Finding.failed(UnreachableError, str(handshake.error))
    if handshake.error is not None:
        through = None
        with contextlib.suppress(UsageError):
            through = proxy_for(server)
        way = "" if through is None else f", and whether {through} lets CONNECT to it pass"
        return Finding.failed(
            UnreachableError,
            str(handshake.error),
            f"is the server running? is the address right? check firewalls on the way{way}",
        )
    if handshake.status == httpx.codes.OK:
        return Finding.ok(f"{address} answers on {HEALTH}, and is ready")
    return Finding.warning(
        f"{address} answers, and is not ready (HTTP {handshake.status})",
        "wait: `pate-server` is starting, or no campaign runs",
    )


def check_exposed(
    server: Server,
    handshake: Handshake,
    *,
    # of Flower that should be closed from here; the server's own is skipped
    ports: Sequence[int] = tuple(FLOWER_PORTS),
) -> Finding:
    """Check that the server exposes to parties only the interface for parties."""
    if server.is_here:
        return Finding.skipped("the server is on this machine, where every user reaches its ports")
    if handshake.error is not None:
        return Finding.skipped("the server could not be met")
    found = [f"{server.address} answers on {route}" for route in _routes(server)]
    found += [
        f"port {port} is open" + (f" (of {FLOWER_PORTS[port]}?)" if port in FLOWER_PORTS else "")
        for port in ports
        if port != server.port and _is_open(server.host, port)
    ]
    if not found:
        return Finding.ok(f"none seen: of {server.host} only the interface for parties is open")
    return Finding.warning(
        f"{'; '.join(found)}: whoever reaches Flower's other interfaces can read every answer",
        "tell the coordinator: only `pate-server`'s own port may be reached from outside",
    )


def _routes(server: Server) -> list[str]:
    """Return the existing routes that are not for parties; the requests change nothing."""
    found = []
    with contextlib.suppress(httpx.HTTPError), server.client(_PORT_S) as client:
        for route in _NOT_FOR_PARTIES:
            with client.stream("GET", server.url + route) as reply:
                if reply.status_code in _THERE:
                    found.append(route)
    return found


def _is_open(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), _PORT_S):
        return True
    return False
