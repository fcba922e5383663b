"""A server's identity and answers of parties, for tests."""

from __future__ import annotations

import datetime as dt

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from pate.formats.enrolment import Answer, Bundle, SealingKey
from pate.masking.ahead.bundle import sign_sealing

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> dt.datetime:
        return self.now


def answer(
    bundle: Bundle,
    identity: Ed25519PrivateKey | None = None,
    node: ec.EllipticCurvePrivateKey | None = None,
) -> Answer:
    """Answer a bundle as a party does, with new keys unless they are given."""
    identity = identity or Ed25519PrivateKey.generate()
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    return Answer.make(
        bundle,
        identity,
        node or ec.generate_private_key(ec.SECP384R1()),
        SealingKey(public, sign_sealing(bundle.name, identity, public)),
    )
