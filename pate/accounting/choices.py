"""Choices of an account: bounds, mechanisms, adjacency."""

from __future__ import annotations

from typing import Literal

#: How neighbours differ: votes are changed, or removed.
Adjacency = Literal["change", "remove"]

BoundName = Literal[
    "paper-2017", "paper-2018", "theorem3", "theorem6", "sharp", "every-neighbour", "expected",
    "independent",
]  # fmt: skip
