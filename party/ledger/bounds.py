"""What a home's own accountant keeps: a bound, with delta and its parts, fixed in the ledger.

A filter is a theorem about a bound that was fixed *before* what it bounds. So the site's policy is
written into its ledger before anything leaves under it, and each change of it as well. A part of
:mod:`party.ledger.rules`. What several bounds, one after the other, promise together:
docs/proofs/adaptive-filter.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from pate.accounting.filters import RULES, Delta
from pate.errors import AccountingError, LedgerError, ProtocolError
from pate.formats.privacy_statement import rounded_up
from pate.text_form import fraction_from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pate.storage.hash_chain import Json

#: The kind of an entry.
BOUND: Final = "bound"


@dataclass(frozen=True)
class Bound:
    """A site's bound on all that leaves its home.

    Attributes:
        epsilon: most that the own figure may come to; None: no bound.
        delta: at which it is counted, with its parts.
        rules: number of the list of filters by which it is counted.

    Raises:
        ProtocolError: for values that bound nothing.
    """

    epsilon: float | None
    delta: Delta
    rules: int = RULES

    def __post_init__(self) -> None:
        if self.epsilon is not None and not (
            type(self.epsilon) is float and 0 < self.epsilon < math.inf
        ):
            raise ProtocolError(f"a bound is a number above 0, got {self.epsilon!r:.40}")
        if type(self.rules) is not int or self.rules < 1:
            raise ProtocolError(f"no list of filters is called {self.rules!r:.40}")

    def to_dict(self) -> dict[str, Json]:
        """Return it as the ledger has it; numbers as text, exact."""
        return {
            "epsilon": None if self.epsilon is None else repr(self.epsilon),
            "delta": repr(self.delta.whole),
            "failing": str(self.delta.failing),
            "rules": self.rules,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Bound:
        """Return what :meth:`to_dict` made.

        Raises:
            LedgerError: for anything else.
        """
        try:
            made = cls(
                epsilon=None if fields["epsilon"] is None else float(fields["epsilon"]),
                delta=Delta(float(fields["delta"]), fraction_from_text(fields["failing"])),
                rules=fields["rules"],
            )
        except (KeyError, TypeError, ValueError, AccountingError, ProtocolError) as error:
            raise LedgerError(f"not a bound of the own accountant: {error}") from error
        if made.to_dict() != dict(fields):
            raise LedgerError("not a bound of the own accountant: it has another text")
        return made

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
        """Return whether ``bound`` is another than the one in force."""
        return bound != self.all[-1] if self.all else bound.epsilon is not None

    def follow(self, fields: Mapping[str, Any]) -> None:
        """Take one entry in; all is as before if it raises.

        Raises:
            LedgerError: for an entry of another form, or one that changes nothing.
        """
        bound = Bound.from_dict(fields)
        if not self.differs(bound):
            raise LedgerError("a bound of the own accountant that was in force already")
        self.all = (*self.all, bound)


def together(bounds: Iterable[Bound]) -> str:
    """Return what bounds that were in force one after the other promise together, in words.

    The largest epsilon, at the sum of the deltas of those that were counted differently: a bound
    that was only raised or lowered costs no more delta.
    """
    given = tuple(bounds)
    largest = [each.epsilon for each in given]
    finite = [each for each in largest if each is not None]
    if not finite or len(finite) < len(largest):
        return "nothing, as there was no bound at one time"
    deltas = sum(Fraction(one.whole) for one, _ in {(each.delta, each.rules) for each in given})
    return f"epsilon {rounded_up(max(finite))} at delta {float(deltas):g}"
