"""Sending bytes to parties and getting bytes back, whatever carries them.

The campaign speaks to a :class:`Wire`: it never waits, never raises for what a party does, and
every message that was sent comes back exactly once as an :class:`Arrival`, with a body or with
the reason why there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

#: The party is not connected any more.
GONE: Final = "gone"
#: The link was started again; what was under way is forgotten. Ask again.
LOST: Final = "lost"
#: No answer within the time to live of the message.
EXPIRED: Final = "expired"
#: The party answered with something that is no message of ours.
UNREADABLE: Final = "unreadable"
#: The party's code raised; followed by a space and the name of the class, and nothing else.
RAISED: Final = "raised"


@dataclass(frozen=True)
class Arrival:
    """What became of one message.

    Attributes:
        handle: what :meth:`Wire.send` returned for it.
        node: the party that it was sent to.
        body: the answer, or None.
        failure: why there is no answer, or None: :data:`GONE`, :data:`LOST`, :data:`EXPIRED`,
            :data:`UNREADABLE`, or :data:`RAISED` followed by a space and a class name.
    """

    handle: str
    node: int
    body: bytes | None
    failure: str | None

    def __post_init__(self) -> None:
        if (self.body is None) == (self.failure is None):
            raise ValueError("an arrival has either a body or a failure")


class Wire(Protocol):
    """A way to the parties. One thread at a time uses it."""

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now."""

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""

    def receive(self) -> list[Arrival]:
        """Return some of what has arrived since the last call, without waiting; all if asked again.

        It is empty only if nothing more is here.
        """

    def close(self) -> None:
        """Let go of the link. What was under way is forgotten."""
