"""The generators by their names on the command line and in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.synthesis.generators.cfs import Cfs
from party.synthesis.generators.l1 import L1
from party.synthesis.generators.marginals import Marginals
from party.synthesis.generators.uniform import Uniform
from pate.errors import UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from party.synthesis.generators.protocol import Generator

#: The default first.
METHODS: Final = ("l1", "cfs", "marginals", "uniform")


def generator_named(name: str, delta: Fraction) -> Generator:
    """Return a generator.

    Args:
        name: one of :data:`METHODS`.
        delta: what it may cost beside epsilon, if it has a delta at all.

    Raises:
        UsageError: if there is none of that name.
    """
    match name:
        case "l1":
            return L1()
        case "cfs":
            return Cfs(delta=delta)
        case "marginals":
            return Marginals()
        case "uniform":
            return Uniform()
    raise UsageError(f"--method is {name!r}, possible are {', '.join(METHODS)}")
