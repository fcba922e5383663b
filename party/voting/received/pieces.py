"""What a server sends in pieces, until it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protos.pate.v1 import vote_pb2


class Pieces:
    """Collects the pieces of one thing at a time, in memory: starting a second one abandons the first."""

    def __init__(self) -> None:
        self._of = (b"", 0)
        self._known: dict[int, bytes] = {}

    def take(self, of: bytes, piece: vote_pb2.PublicPiece) -> list[bytes] | None:
        """Process one piece, in any order; return all in theirs once they are there.

        Args:
            of: the hash of the whole.
            piece: well formed, so that its size and their number are bounded.
        """
        if (of, piece.pieces) != self._of:
            self._of, self._known = (of, piece.pieces), {}
        self._known[piece.index] = piece.content
        if len(self._known) < piece.pieces:
            return None
        whole = [self._known[at] for at in range(piece.pieces)]
        self._known = {}
        return whole
