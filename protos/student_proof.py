"""Authentication of the student: a MAC by the token that it shares with the server.

The connection is clear text, and a process that takes the port while the server is down can pose as it. So
the token itself is never sent, only a MAC over the request (HMAC-SHA256, RFC 2104), which is valid for
nothing else. A replay repeats the same predictions, of which the first ones count.
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
    """Return the proof of a student that reads a campaign's labels and statement."""
    return _mac(token, b"read", campaign)


def predictions_proof(token: str, message: wire.Predictions) -> str:
    """Return the proof for predictions, over all of them and their purpose."""
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
