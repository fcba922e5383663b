"""One sum of votes, plain and masked, with every party simulated and measured in this process.

Every party masks and every mask is reconstructed. The result is checked against the sum of the votes.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.masking.meter import Meter
from pate.masking.context import VERSION, Context, Member, threshold_for
from pate.masking.party import PartyMasking
from pate.masking.server import ServerMasking
from protos.pate.v1 import vote_pb2
from protos.terms import exact_bits
from protos.wire import pack_votes, read_votes

if TYPE_CHECKING:
    from pate.votes import Counts

CLASSES = 10
#: Of each party. 25 parties have the 250 teachers of the published MNIST runs.
TEACHERS = 10
BATCH = hashlib.sha256(b"benchmark").digest()


@dataclass(frozen=True)
class Size:
    """The size of a sum.

    Attributes:
        parties: n; each has ``teachers``.
        queries: rows of the vote matrix.
        teachers: k, of each party.
        classes: columns of the vote matrix.
    """

    parties: int
    queries: int
    teachers: int = TEACHERS
    classes: int = CLASSES

    @property
    def bits(self) -> int:
        """Width of the ring that holds every sum of these votes."""
        return exact_bits(self.parties * self.teachers)

    def names(self) -> list[str]:
        return [f"party_{number:03d}" for number in range(self.parties)]

    def votes(self, number: int) -> Counts:
        """(queries, classes) int64, generated on each call: 250 of them would fill the memory."""
        rng = np.random.default_rng([self.parties, self.queries, number])
        return rng.multinomial(self.teachers, [1 / self.classes] * self.classes, self.queries)


def size_of(message: object) -> int:
    """Bytes of all fields of a message, including names, without framing."""
    if isinstance(message, bytes):
        return len(message)
    if isinstance(message, str):
        return len(message.encode())
    if isinstance(message, dict):
        return sum(size_of(key) + size_of(value) for key, value in message.items())
    if isinstance(message, (tuple, list)):
        return sum(map(size_of, message))
    if is_dataclass(message):
        return sum(size_of(getattr(message, each.name)) for each in fields(message))
    raise TypeError(f"a message has a field of type {type(message).__name__}")


def plain_sum(size: Size) -> Meter:
    """Pack, send, read and add every party's vote matrix.

    Raises:
        AssertionError: if the sum is not exact.
    """
    meter = Meter()
    total = np.zeros((size.queries, size.classes), dtype=np.int64)
    expected = total.copy()
    for number, name in enumerate(size.names()):
        votes = size.votes(number)
        expected += votes
        with meter.party("votes", name):
            body = pack_votes(votes, teachers=size.teachers, batch=BATCH).SerializeToString()
        meter.sent("votes", name, len(body))
        with meter.at_server("votes"):
            matrix = vote_pb2.VoteMatrix.FromString(body)
            total += read_votes(
                matrix,
                teachers=size.teachers,
                classes=size.classes,
                queries=size.queries,
                batch=BATCH,
            )
    np.testing.assert_array_equal(total, expected)
    return meter


def masked_sum(size: Size, *, lost_after_shares: int = 0) -> Meter:
    """Run the whole masked sum; some parties may drop out between their shares and their votes.

    Raises:
        AssertionError: if the sum over the survivors is not exact.
    """
    meter = Meter()
    names = size.names()
    identities = {name: Ed25519PrivateKey.generate() for name in names}
    threshold, colluders = threshold_for(size.parties)
    context = Context(
        version=VERSION, campaign=os.urandom(16), attempt=os.urandom(16), batch=BATCH,
        members=tuple(
            Member(name, key.public_key().public_bytes_raw()) for name, key in identities.items()
        ),
        rows=size.queries, classes=size.classes, bits=size.bits, threshold=threshold,
        colluders=colluders, terms=hashlib.sha256(b"terms").digest(),
    )  # fmt: skip
    server = ServerMasking(context)
    parties = {
        name: PartyMasking(context, name=name, identity=key, random=os.urandom)
        for name, key in identities.items()
    }

    for name, party in parties.items():
        with meter.party("keys", name):
            keys = party.keys()
        meter.sent("keys", name, size_of(keys))
        with meter.at_server("keys"):
            server.take_keys(name, keys)
    with meter.at_server("keys"):
        server.advance()

    for name, party in parties.items():
        with meter.at_server("shares"):
            peers, outline = server.keys_for(name), server.outline_for(name)
        # Who announced keys is a bit set on the wire.
        bits = -(-size.parties // 8)
        meter.received("shares", name, size_of(peers) + bits + size_of(outline.hashes))
        with meter.party("shares", name):
            boxes = party.shares(peers, outline)
        meter.sent("shares", name, size_of(dict(boxes)))
        with meter.at_server("shares"):
            server.take_boxes(name, boxes)
    with meter.at_server("shares"):
        server.advance()

    expected = np.zeros((size.queries, size.classes), dtype=np.int64)
    for number, name in enumerate(names[: size.parties - lost_after_shares]):
        votes = size.votes(number)
        expected += votes
        with meter.at_server("votes"):
            boxes = server.boxes_for(name)
        meter.received("votes", name, size_of(dict(boxes)))
        with meter.party("votes", name):
            masked = parties[name].mask(boxes, votes)
        meter.sent("votes", name, size_of(masked))
        with meter.at_server("votes"):
            server.take_masked(name, masked)
    with meter.at_server("votes"):
        server.advance()

    survivors = server.survivors
    for name in survivors:
        meter.received("consistency", name, -(-size.parties // 8))
        with meter.party("consistency", name):
            signature = parties[name].sign_survivors(survivors)
        meter.sent("consistency", name, size_of(signature))
        with meter.at_server("consistency"):
            server.take_signature(name, signature)
    with meter.at_server("consistency"):
        server.advance()

    for name in survivors:
        signatures = server.signatures
        meter.received("unmask", name, size_of(dict(signatures)))
        with meter.party("unmask", name):
            opening = parties[name].unmask(signatures)
        meter.sent("unmask", name, size_of(opening))
        with meter.at_server("unmask"):
            server.take_unmasking(name, opening)
    with meter.at_server("unmask"):
        server.advance()
        found = server.result()
    # Residues: votes may have signs.
    np.testing.assert_array_equal(found, expected % (1 << size.bits))
    return meter
