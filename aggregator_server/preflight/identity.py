"""Checks of the server's identity: address, authority, certificate, keys, and parties."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING, Final

from aggregator_server.flower.superlink import trust_in
from aggregator_server.identities import Identities, require_identities, told_port
from aggregator_server.identities.authority import ends
from aggregator_server.identities.registry import ENROLLED, INVITED, REVOKED
from pate.errors import StateError
from pate.formats.enrolment import split_address
from pate.preflight import Finding
from pate.preflight.checks import days_left
from pate.preflight.machine import check_name, open_to_others
from pate.printable import listed
from pate.runtime.child import LOOPBACK

if TYPE_CHECKING:
    from aggregator_server.options import CheckOptions

_SECRET: Final = ("ca.key", "server.pem", "campaign.key")
_INIT: Final = "`pate-server init --host NAME`, then `pate-server enroll` each party"


def identities_of(options: CheckOptions) -> Identities | None:
    """Return the server's identities, None if it was never initialised."""
    return Identities.open(options.place)


def check_address(options: CheckOptions) -> Finding:
    """Report whether the address that parties are given leads to this server."""
    found = identities_of(options)
    require_identities(options.host, found)
    listens = told_port(found) if options.port is None else options.port
    if found is None:
        return Finding.ok(f"{options.host}:{listens}, for a trial on this machine, without TLS")
    host, port = split_address(found.address)
    text = f"parties are told {found.address}, this server listens on {options.host}:{listens}"
    if listens not in (0, port):
        return Finding.warning(text, f"--port {port}, or forward it; or enrol with --server")
    if options.host in LOOPBACK and host not in LOOPBACK:
        return Finding.warning(
            f"{text}: no other machine reaches that", "--host 0.0.0.0, or that of one network card"
        )
    return Finding.ok(text)


def check_told_name(options: CheckOptions) -> Finding:
    """Resolve the host name that parties are given."""
    found = identities_of(options)
    if found is None:
        return Finding.skipped("no identity yet: parties of this machine need none")
    host, port = split_address(found.address)
    looked = check_name(host, port)
    if looked.kind is None:
        return looked
    return Finding.warning(f"{looked.text} (seen from here)", "look whether parties can look it up")


def check_identity(options: CheckOptions) -> Finding:
    """Report whether authority and certificate are usable, their expiry, and the owner of their files."""
    found, now = identities_of(options), options.clock()
    if found is None:
        return Finding.warning(
            f"none in {options.place}: a trial on this machine needs none", _INIT
        )
    found.require_valid(now)
    if open_ := open_to_others(found.directory / name for name in _SECRET):
        return Finding.failed(
            StateError,
            f"others on this machine may read {', '.join(each.name for each in open_)} in {found.directory}",
            f"chmod 600 them; if somebody may have read one: {_INIT} in another --home",
        )
    certificate, authority = ends(found.certificate.read_bytes()), ends(found.ca.read_bytes())
    text = (
        f"for {', '.join(found.hosts)}; certificate ends {certificate:%Y-%m-%d} "
        f"({days_left(certificate, now)}), authority {authority:%Y-%m-%d}"
    )
    if warnings := found.warnings(now):
        return Finding.warning(text, "; ".join(warnings))
    return Finding.ok(text)


def check_handshake(options: CheckOptions) -> Finding:
    """Do a TLS handshake with this server's certificate, as a party that pins the authority does."""
    found = identities_of(options)
    if found is None:
        return Finding.skipped("no identity yet")
    try:
        protocol = _shake(found)
    except (ssl.SSLError, OSError) as error:
        early = "not yet valid" in str(error)
        return Finding.failed(
            StateError,
            f"the server's certificate and the authority do not fit: {error}",
            "set this machine's clock, and keep it by NTP"
            if early
            else "`pate-server rotate` makes a new one; or restore both from one backup",
        )
    return Finding.ok(f"{protocol} with the pinned authority, in this process")


def _shake(identities: Identities) -> str:
    """Return the TLS version of a handshake in memory."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(identities.certificate, identities.certificate_key)
    host, _ = split_address(identities.address)
    forth, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust_in(identities).wrap_bio(back, forth, server_hostname=host)
    server = ours.wrap_bio(forth, back, server_side=True)
    waiting = {client, server}
    for _ in range(16):  # a handshake takes two or three turns
        for each in tuple(waiting):
            try:
                each.do_handshake()
                waiting.discard(each)
            except ssl.SSLWantReadError:
                continue
        if not waiting:
            return client.version() or "TLS"
    raise ssl.SSLError("the handshake does not come to an end")


def check_parties(options: CheckOptions) -> Finding:
    """Report the enrolled parties, and whether those that the campaign requires are among them."""
    found, now = identities_of(options), options.clock().timestamp()
    if found is None:
        return Finding.skipped("no identity yet: on this machine anybody may take part")
    entries = found.registry.parties()
    enrolled = [name for name, entry in entries.items() if entry.state == ENROLLED]
    codes = {
        name: entry.invitation.expires
        for name, entry in entries.items()
        if entry.invitation is not None
    }
    open_ = {name: ends for name, ends in codes.items() if ends > now}
    late = [n for n, ends in codes.items() if ends <= now and entries[n].state == INVITED]
    text = f"{len(enrolled)} enrolled" + (f": {listed(enrolled)}" if enrolled else "")
    if revoked := sum(entry.state == REVOKED for entry in entries.values()):
        text += f"; {revoked} revoked"
    if open_:
        until = [f"{name} until {_date(ends)}" for name, ends in open_.items()]
        text += f"; codes are open: {', '.join(until)}"
    if missing := _missing(options, enrolled):
        return Finding.warning(
            f"{text}; {missing}", "`pate-server enroll NAME`, or other --parties"
        )
    if late:
        again = f"`pate-server enroll` {'it' if len(late) == 1 else 'them'} again"
        return Finding.warning(f"{text}; the codes of {listed(late)} have expired", again)
    return Finding.ok(text)


def _missing(options: CheckOptions, enrolled: list[str]) -> str:
    """Report required parties of the checked campaign that are not enrolled."""
    if "parties" not in options.given:
        return ""
    wanted = options.parties.strip()
    if wanted.isdecimal():
        if int(wanted) > len(enrolled):
            return f"the campaign waits for {wanted} parties"
        return ""
    absent = sorted({name.strip() for name in wanted.split(",")} - set(enrolled))
    return f"the campaign waits for {listed(absent)}" if absent else ""


def _date(seconds: int) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d}"
