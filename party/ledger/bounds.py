"""The bound of a home's own accountant, with delta and its parts, fixed in the ledger.

A privacy filter needs a bound that is fixed *in advance*. So the site's bound is written into its
ledger before anything leaves under it, and so is each change.
The joint guarantee of successive bounds: docs/proofs/composition.md, section 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from pate.accounting.filters import RULES, Delta
from pate.errors import AccountingError, LedgerError, ProtocolError
from pate.exact import fraction_from_text
from pate.formats.privacy_statement import rounded_up
from pate.storage.ledger import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pate.storage.hash_chain import Entry, Json


@dataclass(frozen=True)
class Bound(Step["HasBounds"]):
    """A site's bound on everything that leaves its home, and the entry that records it.

    ``epsilon`` None is no bound; ``rules`` is the version of the list of filters.
    """

    kind = "bound"
    epsilon: float | None
    delta: Delta
    rules: int = RULES

    def __post_init__(self) -> None:
        if self.epsilon is not None and not (
            type(self.epsilon) is float and 0 < self.epsilon < math.inf
        ):
            raise ProtocolError(f"a bound must be a number above 0, got {self.epsilon!r:.40}")
        if type(self.rules) is not int or self.rules < 1:
            raise ProtocolError(f"unknown version {self.rules!r:.40} of the list of filters")

    def body(self) -> dict[str, Json]:
        """Return its form in the ledger; numbers are exact, as text."""
        return {
            "epsilon": None if self.epsilon is None else repr(self.epsilon),
            "delta": repr(self.delta.whole),
            "failing": str(self.delta.failing),
            "rules": self.rules,
        }

    @classmethod
    def of_body(cls, fields: Mapping[str, Any]) -> Bound:
        """Return what :meth:`body` made."""
        try:
            made = cls(
                epsilon=None if fields["epsilon"] is None else float(fields["epsilon"]),
                delta=Delta(float(fields["delta"]), fraction_from_text(fields["failing"])),
                rules=fields["rules"],
            )
        except (KeyError, TypeError, ValueError, AccountingError, ProtocolError) as error:
            raise LedgerError(f"not a bound of the party's accountant: {error}") from error
        if made.body() != dict(fields):
            raise LedgerError("not a bound of the party's accountant: it has another text")
        return made

    def follow(self, state: HasBounds, at: Entry) -> HasBounds:
        """Set a bound that was not in force."""
        del at
        if not state.bounds.differs(self):
            raise LedgerError("a bound of the party's accountant that was already in force")
        state.bounds.all = (*state.bounds.all, self)
        return state

    @property
    def in_words(self) -> str:
        """One line for people."""
        if self.epsilon is None:
            return "no bound"
        failing = float(self.delta.for_failing)
        return (
            f"epsilon {self.epsilon:g} at delta {self.delta.whole:g}, of which {failing:g} is for "
            "campaigns and releases that may fail outright"
        )


class Bounds:
    """The bounds so far."""

    def __init__(self) -> None:
        self.all: tuple[Bound, ...] = ()

    def differs(self, bound: Bound) -> bool:
        """Return whether ``bound`` differs from the one in force."""
        return bound != self.all[-1] if self.all else bound.epsilon is not None


class HasBounds(Protocol):
    """The part of a ledger's state that is about bounds."""

    bounds: Bounds


def together(bounds: Iterable[Bound]) -> str:
    """Return the joint guarantee of successive bounds, in words.

    The largest epsilon, at the sum of the deltas of those with different filters: only raising or
    lowering a bound costs no further delta.
    """
    given = tuple(bounds)
    largest = [each.epsilon for each in given]
    finite = [each for each in largest if each is not None]
    if not finite or len(finite) < len(largest):
        return "nothing, as there was no bound at one time"
    deltas = sum(Fraction(one.whole) for one, _ in {(each.delta, each.rules) for each in given})
    return f"epsilon {rounded_up(max(finite))} at delta {float(deltas):g}"
