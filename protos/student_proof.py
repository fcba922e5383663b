"""How a student shows that it is the one of the server's home: a proof by their common token.

The connection is in clear, and whoever has the port while the server is away is taken for it. So
the token itself never travels: what does is a MAC over what is asked (HMAC-SHA256, RFC 2104), which
is good for nothing else. A replay hands in the same predictions once more, and the first ones count.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protos.pate.v1 import student_pb2 as wire

#: The metadata of a call that carries the proof.
PROOF_KEY: Final = "pate-proof"


def reading_proof(token: str, campaign: bytes) -> str:
    """Return the proof of a student that reads a campaign's labels and statement.

    Args:
        token: of the server's home.
        campaign: id.
    """
    return _mac(token, b"read", campaign)


def predictions_proof(token: str, message: wire.Predictions) -> str:
    """Return the proof for predictions: over all of them and their purpose."""
    said = message.HasField("accuracy")
    numbers = (message.round, message.rows, message.classes, said, message.accuracy)
    return _mac(
        token,
        b"predictions",
        message.campaign,
        struct.pack(">QQQ?d", *numbers),
        hashlib.sha256(message.probabilities).digest(),
    )


def _mac(token: str, purpose: bytes, *parts: bytes) -> str:
    made = hmac.new(token.encode("ascii"), b"pate/v1/student/" + purpose, hashlib.sha256)
    for part in parts:
        made.update(struct.pack(">Q", len(part)) + part)
    return made.hexdigest()
