"""The generators by their names on the command line and in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.synthesis.generators.cfs import Cfs
from party.synthesis.generators.l1 import L1

if TYPE_CHECKING:
    from fractions import Fraction

    from party.synthesis.choices import Method
    from party.synthesis.generators.protocol import Generator


def generator_named(name: Method, delta: Fraction) -> Generator:
    """Return a generator.

    Args:
        name: of it.
        delta: in addition to epsilon, for generators with a delta.
    """
    match name:
        case "l1":
            return L1()
        case "cfs":
            return Cfs(delta=delta)
