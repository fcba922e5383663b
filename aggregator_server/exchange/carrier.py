"""Carriers: they take signed requests to parties and bring replies, over Flower or as files in two folders.

A carrier never blocks, and raises for no behaviour of a party. A request is known by its recipient and the
SHA-256 of its bytes. Each that was sent comes back at most once, as an :class:`Arrival`. A public set, or
an encoder, takes many requests: it is sent piece by piece.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from aggregator_server.exchange.store import Store

#: The party is disconnected.
GONE: Final = "gone"
#: The link was restarted; messages under way are lost. Ask again.
LOST: Final = "lost"
#: No answer within the time to live of the message.
EXPIRED: Final = "expired"
#: The party's answer is not a message of this protocol.
UNREADABLE: Final = "unreadable"
#: The party's code raised; followed by a space and the name of the class, and nothing else.
RAISED: Final = "raised"
#: Most pieces in transfer to one party.
_PIECES_EACH: Final = 32


@dataclass(frozen=True)
class Arrival:
    """What became of one request."""

    node: int
    digest: bytes
    body: bytes | None
    failure: str | None  # why there is no reply, or None: one of the constants above

    def __post_init__(self) -> None:
        if (self.body is None) == (self.failure is None):
            raise ValueError("an arrival has either a body or a failure")


class Carrier(Protocol):
    """The way to the parties, used by one thread at a time."""

    @property
    def store(self) -> Store | None:
        """The durable requests to parties by envelope; None: all are connected."""
        return None

    def nodes(self) -> frozenset[int]:
        """Return the parties that can be asked now."""

    def returning(self) -> Collection[str]:
        """Return the names of parties that are reconnecting."""
        return ()

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a connected party; what becomes of it will arrive under its digest."""

    def receive(self) -> list[Arrival]:
        """Return some arrivals since the last call, without waiting; empty only if there are no more."""

    def pause(self, seconds: float) -> None:
        """Wait that long, or less if something may have arrived."""
        time.sleep(seconds)

    def close(self) -> None:
        """Release the link. Messages under way are forgotten."""


class Distribution:
    """Sends what ``pieces`` makes, once a party lacks it, to each such party, a few pieces at a time."""

    def __init__(self, pieces: Callable[[], Sequence[bytes]], *, encoder: bool = False) -> None:
        self._make = pieces
        self._encoder = encoder
        self._pieces: Sequence[bytes] | None = None
        self._next: dict[Hashable, int] = {}  # by the party's name, or its node before it has one

    def began(self, party: Hashable) -> None:
        """Forget what was sent to a party, since its process is new."""
        self._next.pop(party, None)

    def due(self, party: Hashable) -> Iterator[vote_pb2.PartyRequest]:
        """Return requests with the next pieces for a party that lacks the whole, in a circle."""
        count, first = len(self._all()), self._next.get(party, 0)
        last = min(first + _PIECES_EACH, count)
        self._next[party] = 0 if last == count else last
        return map(self._request, range(first, last))

    def all(self) -> Iterator[vote_pb2.PartyRequest]:
        """Return the requests of all pieces, for a party that gets them in one file."""
        return map(self._request, range(len(self._all())))

    def _request(self, at: int) -> vote_pb2.PartyRequest:
        pieces = self._all()
        piece = vote_pb2.PublicPiece(
            index=at, pieces=len(pieces), content=pieces[at], encoder=self._encoder
        )
        return vote_pb2.PartyRequest(public_piece=piece)

    def _all(self) -> Sequence[bytes]:
        if self._pieces is None:
            self._pieces = self._make()
        return self._pieces
