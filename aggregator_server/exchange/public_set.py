"""Distribution of the public set, and of its encoder, to parties, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

#: Most pieces in transfer to one party.
_PIECES_EACH: Final = 32


class Handout:
    """Sends the public set, or an encoder, to parties without a copy, a few pieces at a time.

    A party is known by its name, or before it has one by its node.

    Args:
        pieces: makes what is sent, in slices; called once, if a party lacks it.
    """

    def __init__(self, pieces: Callable[[], Sequence[bytes]]) -> None:
        self._make = pieces
        self._pieces: Sequence[bytes] | None = None
        self._next: dict[Hashable, int] = {}

    def began(self, party: Hashable) -> None:
        """Forget what was sent to a party, since its process is new."""
        self._next.pop(party, None)

    def due(self, party: Hashable) -> list[tuple[int, int, bytes]]:
        """Return the next pieces for a party, each as (index, number of pieces, content).

        After the last piece it starts again: it is called only if the party still lacks the whole.
        """
        pieces, first = self._all(), self._next.get(party, 0)
        last = min(first + _PIECES_EACH, len(pieces))
        self._next[party] = 0 if last == len(pieces) else last
        return [(at, len(pieces), pieces[at]) for at in range(first, last)]

    def all(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield all pieces in the same form, for a party that gets them in one file."""
        pieces = self._all()
        return ((at, len(pieces), pieces[at]) for at in range(len(pieces)))

    def _all(self) -> Sequence[bytes]:
        if self._pieces is None:
            self._pieces = self._make()
        return self._pieces


def piece_request(at: int, pieces: int, content: bytes) -> vote_pb2.PartyRequest:
    """Return the request that brings a piece of :meth:`Handout.due`."""
    return vote_pb2.PartyRequest(
        public_piece=vote_pb2.PublicPiece(index=at, pieces=pieces, content=content)
    )
