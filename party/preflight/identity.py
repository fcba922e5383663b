"""Checks of a party's identity: its enrolment, its keys, and whether the server admits it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import httpx
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)

from party.preflight.handshake import enrolment_of
from pate.errors import RefusedError, StateError
from pate.foreign import json_value
from pate.preflight import Finding
from pate.preflight.finding import days_left
from pate.preflight.storage import open_to_others

if TYPE_CHECKING:
    from party.flower.supernode import Server
    from party.options import CheckOptions
    from party.preflight.handshake import Handshake

#: The header with a node's public key (PEM, in base64), and the route that admits a node.
KEY_HEADER: Final = "flwr-public-key"
_ROUTE: Final = "/v1/fleet/activate-node"
_LARGEST_REFUSAL: Final = 4096
#: Files that only this party may read; each may be absent before it is needed.
_SECRET: Final = (
    "identity.key", "shard.key", "noise.db", "ledger.db", "enrolments/*/node.key",
    "enrolments/*/identity.new", "enrolments/*/sealing.new", "sealing.key", "bundles.db",
)  # fmt: skip


def check_enrolment(options: CheckOptions, server: Server | None) -> Finding:
    """Report whether this party is enrolled, with which server, and until when."""
    found, now = enrolment_of(options), options.clock()
    if found is None:
        if options.bundle is not None:
            return Finding.ok(f"not yet; {options.bundle} can be used: `pate-party enroll` it")
        if server is not None and server.in_clear:
            return Finding.ok("none, and none is needed for a trial on this machine")
        return Finding.warning(
            f"there is none in {options.place}",
            "ask the coordinator for a bundle, and `pate-party enroll` it; on this machine alone a "
            "trial needs none",
        )
    found.require_valid(now)
    text = (
        f"as {found.name} with {found.server}; its authority ends {found.ends:%Y-%m-%d} "
        f"({days_left(found.ends, now)})"
    )
    if warnings := found.warnings(now):
        return Finding.warning(text, "; ".join(warnings))
    return Finding.ok(text)


def check_keys(options: CheckOptions) -> Finding:
    """Check that no other user may read this party's private files."""
    home = options.place
    files = [path for pattern in _SECRET for path in sorted(home.glob(pattern)) if path.is_file()]
    if not files:
        return Finding.ok("none yet: they are made by `pate-party enroll`, or at the first start")
    open_ = open_to_others(files)
    if not open_:
        return Finding.ok("for their owner alone")
    names = ", ".join(str(path.relative_to(home)) for path in open_)
    to_do = f"chmod 600 {' '.join(str(path) for path in open_)}"
    if not open_to_others([home]):
        return Finding.warning(f"others could read {names} if they could enter {home}", to_do)
    return Finding.failed(
        StateError,
        f"others on this machine may read {names}",
        f"{to_do}; if somebody may have read a key: `pate-server revoke`, then enrol anew",
    )


def check_admission(options: CheckOptions, server: Server, handshake: Handshake) -> Finding:
    """Check that the server still knows this party's node key.

    The request names the public key and is not signed: a server that knows it asks for a signature,
    and one that does not reports it. Neither changes anything there.
    """
    from party.flower.internals import KEY_NEEDED, KEY_REFUSED

    enrolment = enrolment_of(options)
    if enrolment is None:
        return Finding.skipped("not enrolled yet")
    if handshake.error is not None or handshake.status != httpx.codes.OK:
        return Finding.skipped("the server could not be asked")
    key = load_ssh_private_key(enrolment.node_key.read_bytes(), None).public_key()
    named = base64.b64encode(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    headers = {KEY_HEADER: named.decode(), "content-type": "application/protobuf"}
    try:
        with (
            server.client(options.timeout) as client,
            client.stream("POST", server.url + _ROUTE, content=b"", headers=headers) as reply,
        ):
            status, code = reply.status_code, _code(reply)
    except httpx.HTTPError as error:
        return Finding.skipped(f"the server did not answer: {error}")
    if status == httpx.codes.PRECONDITION_FAILED and code in (KEY_NEEDED, KEY_REFUSED):
        return Finding.failed(
            RefusedError,
            f"{server.address} does not know the key of this enrolment: revoked, or replaced by a "
            "newer one",
            "ask the coordinator (`pate-server parties`) for a new bundle, and `pate-party enroll` it",
        )
    if status == httpx.codes.UNAUTHORIZED:
        return Finding.ok(f"{server.address} knows the key of this enrolment")
    return Finding.skipped(f"the server did not say (HTTP {status})")


def _code(reply: httpx.Response) -> object:
    """Return the code in a refusal; only as many bytes are read as a valid one can have."""
    try:
        found = json_value(next(reply.iter_raw(_LARGEST_REFUSAL), b""))
    except ValueError:
        return None
    return found.get("code") if isinstance(found, dict) else None
