"""Transport interface: sends bytes to parties and receives bytes.

The campaign uses a :class:`Wire`: it never blocks, never raises for a party's behaviour, and every
sent message returns exactly once as an :class:`Arrival`, with a body or with the reason why there
is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from protos.pate.v1 import vote_pb2

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
    """The result of one message.

    Attributes:
        handle: returned by :meth:`Wire.send`.
        node: the recipient.
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
    """A transport to the parties, used by one thread at a time."""

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now."""

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""

    def receive(self) -> list[Arrival]:
        """Return some arrivals since the last call, without waiting; repeated calls return all.

        It is empty only if there are no more.
        """

    def close(self) -> None:
        """Release the link. Messages under way are forgotten."""


class Courier(Protocol):
    """What carries messages as files: slowly, and to parties that are known before they speak.

    Patience is then a matter of dates, and of people: nobody is late until a request is closed.
    """

    def party_at(self, node: int) -> str | None:
        """Return the name of the party at a node, None for a node that is online."""

    def nonce(self, request: bytes) -> bytes:
        """Return the nonce of a request (16 bytes), the same each time that it is made."""

    def early(self) -> vote_pb2.AskBundles | None:
        """Return a request for bundles that goes with that for a description, None if there is none."""

    def closed(self) -> frozenset[str]:
        """Return the handles of requests that are not waited for any more."""

    def begin_sum(self, place: int | None) -> None:
        """Delete the stored replies to all sums but one: the others are in the ledger.

        Args:
            place: of the first query of the batch that is to be summed; None: of none.
        """
