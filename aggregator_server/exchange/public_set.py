"""Which piece of the public set goes to which party next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Pieces of the public set that are on their way to one party.
_PIECES_EACH: Final = 32


class Handout:
    """The public set on its way to parties without a copy: a few pieces at a time to each.

    Args:
        pieces: makes the serialised public set, in slices; called once, if a party lacks it.
    """

    def __init__(self, pieces: Callable[[], Sequence[bytes]]) -> None:
        self._make = pieces
        self._pieces: Sequence[bytes] | None = None
        self._next: dict[str, int] = {}

    def began(self, party: str) -> None:
        """Forget what was sent to a party: it is a new process of it."""
        self._next.pop(party, None)

    def due(self, party: str) -> list[tuple[int, int, bytes]]:
        """Return what a party is sent next, as (index, number of pieces, content).

        After the last piece it begins anew: this is asked only if the party still lacks the set.
        """
        if self._pieces is None:
            self._pieces = self._make()
        pieces, first = self._pieces, self._next.get(party, 0)
        last = min(first + _PIECES_EACH, len(pieces))
        self._next[party] = 0 if last == len(pieces) else last
        return [(at, len(pieces), pieces[at]) for at in range(first, last)]
