"""Carriers: they take signed requests to parties and bring replies, over Flower or as files in two folders.

A carrier never blocks, and raises for no behaviour of a party. A request is known by its recipient and the
SHA-256 of its bytes. Each that was sent comes back at most once, as an :class:`Arrival`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

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

    def nodes(self) -> frozenset[int]:
        """Return the parties that can be asked now."""

    def returning(self) -> Collection[str]:
        """Return the names of parties that are reconnecting."""

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a connected party; what becomes of it will arrive under its digest."""

    def receive(self) -> list[Arrival]:
        """Return some arrivals since the last call, without waiting; empty only if there are no more."""

    def pause(self, seconds: float) -> None:
        """Wait that long, or less if something may have arrived."""

    def close(self) -> None:
        """Release the link. Messages under way are forgotten."""
