"""Authentication of requests: the node key in the headers, and the signature that proves it.

A SuperLink checks the same after it has read a body; with this check a body is read only from a
known sender. The rule is Flower's, and no stricter: the signed value is the time, which is valid
for 305 seconds. A signature could be replayed in that time; TLS protects it.
"""

from __future__ import annotations

import binascii
import datetime as dt
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_SIGNATURE_HEADER

from aggregator_server.flower.internals import KEY_HEADER
from protos.bounds import CLOCK_AHEAD_S, CLOCK_BEHIND_S

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIGNATURE: Final = FLEET_HTTP_SIGNATURE_HEADER.encode()
_TIMESTAMP: Final = TIMESTAMP_HEADER.encode()
#: Longest key, in bytes of PEM; those of our parties have 215.
_MAX_KEY: Final = 512
#: Longest time, in characters; Flower's have 32.
_MAX_TIME: Final = 64


def named_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the node key (PEM) that a request names, or None if it does not name exactly one."""
    named = [value for name, value in headers if name == KEY_HEADER]
    if len(named) != 1:
        return None
    try:
        key = b64decode(named[0], validate=True)
    except binascii.Error:
        return None
    return key if len(key) <= _MAX_KEY else None


def is_signed(headers: Iterable[tuple[bytes, bytes]], key: bytes, now: dt.datetime) -> bool:
    """Return whether ``key`` signed the time of a request, and that time is recent.

    ``headers``: of the request, names in lower case; ``key``: the node's public key (PEM).
    """
    found = [(name, value) for name, value in headers if name in (_SIGNATURE, _TIMESTAMP)]
    values = dict(found)
    if len(found) != 2 or len(values) != 2 or len(values[_TIMESTAMP]) > _MAX_TIME:
        return False
    try:
        signed_at = dt.datetime.fromisoformat(values[_TIMESTAMP].decode("ascii"))
        if not -CLOCK_AHEAD_S < (now - signed_at).total_seconds() < CLOCK_BEHIND_S:
            return False
        public = load_pem_public_key(key)
        if not isinstance(public, ec.EllipticCurvePublicKey):
            return False
        signature = b64decode(values[_SIGNATURE], validate=True)
        public.verify(signature, values[_TIMESTAMP], ec.ECDSA(SHA256()))
    # A time without a zone raises TypeError; one far from ours, OverflowError.
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True
