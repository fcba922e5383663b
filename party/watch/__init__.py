"""How a party that runs is watched: its state, as metrics and as health."""

from party.watch.board import Board
from party.watch.door import watched

__all__ = ["Board", "watched"]
