"""What an account chooses among."""

from __future__ import annotations

from typing import Literal

#: How neighbours differ: votes are cast otherwise, or not at all.
Adjacency = Literal["change", "remove"]

BoundName = Literal[
    "paper-2017", "paper-2018", "theorem3", "theorem6", "sharp", "expected", "independent"
]
