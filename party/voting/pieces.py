"""What a server sends in pieces, until it is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protos.bounds import check

if TYPE_CHECKING:
    from protos.pate.v1 import vote_pb2


class Pieces:
    """Collects the pieces of one thing at a time, in memory: starting a second one abandons the first."""

    def __init__(self) -> None:
        self._of = b""
        self._known: dict[int, bytes] = {}
        self._count = 0

    def take(self, of: bytes, piece: vote_pb2.PublicPiece) -> list[bytes] | None:
        """Process one piece, in any order; return all in theirs once they are there.

        Args:
            of: the hash of the whole.
            piece: well formed, so that their number is bounded.

        Raises:
            ProtocolError: if the pieces differ in how many there are.
        """
        if of != self._of or not self._known:
            self._of, self._known, self._count = of, {}, piece.pieces
        check(piece.pieces == self._count, f"a piece of {piece.pieces} after one of {self._count}")
        self._known[piece.index] = piece.content
        if len(self._known) < self._count:
            return None
        whole = [self._known[at] for at in range(self._count)]
        self._known = {}
        return whole
