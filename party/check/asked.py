"""What ``pate-party check`` was asked about: the options of ``start``, none of them needed."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from party.enrolment import Enrolment, read_bundle
from party.supernode import Server
from pate.errors import StateError, UsageError
from pate.runtime.lifeline import LOOPBACK
from pate.runtime.preflight.meeting import Target, utc_now

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to check; each field is the option of that name.

    Attributes:
        clock: this machine's.
    """

    home: Path
    name: str | None = None
    data: Path | None = None
    server: str | None = None
    bundle: Path | None = None
    teachers: int = 10
    votes: str = "any"
    model: str = "auto"
    device: str = "auto"
    label: str | None = None
    group: str | None = None
    classes: tuple[str, ...] | None = None
    public: Path | None = None
    schema: str | None = None
    unit: str | None = None
    drop: tuple[str, ...] = ()
    strict: bool = False
    policy: Path | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    offline: bool = False
    counts: bool = False
    timeout: float = 5.0
    clock: Callable[[], dt.datetime] = utc_now


def half_done(home: Path) -> bool:
    """Say whether an enrolment's last step, a key that goes to its place, is still to be made.

    Reading such an enrolment makes that step; a check must not.
    """
    return any(home.glob("enrolments/*/identity.new"))


def enrolment_of(asked: Asked) -> Enrolment | None:
    """Return the enrolment in the home, None if there is none.

    Raises:
        StateError: if it is damaged or half done.
    """
    if half_done(asked.home):
        raise StateError(
            f"an enrolment in {asked.home} was not brought to its end: give the command that was "
            "stopped again (`pate-party enroll` or `pate-party start`)"
        )
    return Enrolment.load(asked.home) if asked.home.is_dir() else None


def target_of(asked: Asked) -> Target | None:
    """Return the server that the party would connect to, None if none is known.

    It is that of ``--server``, else of the bundle, else of the enrolment; whom it is trusted by is
    the bundle's authority, else the enrolment's.

    Raises:
        StateError: if bundle or enrolment cannot be used.
        ProtocolError: if the bundle is none.
        UsageError: if the address cannot be read.
    """
    if asked.bundle is not None:
        bundle = read_bundle(asked.bundle, asked.clock())
        return _target(asked.server or bundle.server, bundle.ca)
    enrolment = enrolment_of(asked)
    if enrolment is not None:
        return _target(asked.server or enrolment.server, enrolment.ca.read_bytes())
    return None if asked.server is None else _target(asked.server, None)


def _target(address: str, authority: bytes | None) -> Target:
    server = Server(address)
    local = server.host in LOOPBACK
    if authority is None:
        return Target(server.host, server.port, tls=not local, direct=local)
    try:
        trust = ssl.create_default_context(cadata=authority.decode("ascii"))
    except (ValueError, ssl.SSLError) as error:
        raise UsageError(f"the pinned authority cannot be used: {error}") from error
    return Target(server.host, server.port, trust=trust, authority=authority, direct=local)
