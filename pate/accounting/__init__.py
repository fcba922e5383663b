"""Privacy accounting: events, their costs, and the remaining budget."""

from typing import Literal

#: How neighbours differ: votes are changed, or removed.
Adjacency = Literal["change", "remove"]

#: Unit of privacy, the weakest guarantee first.
Unit = Literal["record", "patient", "party"]

BoundName = Literal[
    "paper-2017", "paper-2018", "theorem3", "theorem6", "sharp", "every-neighbour", "expected",
    "independent",
]  # fmt: skip
