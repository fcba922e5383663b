"""Distribution of the public set, and of its encoder, to parties, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

#: Most pieces in transfer to one party.
_PIECES_EACH: Final = 32


class Distribution:
    """Sends the public set, or an encoder, to parties without a copy, a few pieces at a time.

    ``pieces``: makes what is sent, in slices; called once, if a party lacks it.
    """

    def __init__(self, pieces: Callable[[], Sequence[bytes]], *, encoder: bool = False) -> None:
        self._make = pieces
        self._encoder = encoder
        self._pieces: Sequence[bytes] | None = None
        self._next: dict[Hashable, int] = {}  # by the party's name, or its node before it has one

    def began(self, party: Hashable) -> None:
        """Forget what was sent to a party, since its process is new."""
        self._next.pop(party, None)

    def due(self, party: Hashable) -> Iterator[vote_pb2.PartyRequest]:
        """Return the requests that bring the next pieces to a party, one in memory at a time.

        After the last piece it starts again: it is called only if the party still lacks the whole.
        """
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
