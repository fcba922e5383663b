"""Findings of a comparison between a statement and a ledger, and how values appear in them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal

from pate.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

#: ``unclear``: the ledger cannot decide it.
Finding = Literal["ok", "differs", "unclear"]

#: Longest valid text.
_LONGEST_SHOWN: Final = 600


@dataclass(frozen=True)
class Check:
    """One check of a statement: ``ok``, ``differs`` or ``unclear``, with both values or the reason."""

    name: str
    finding: Finding
    detail: str

    def __str__(self) -> str:
        return f"{self.finding:<8} {self.name}: {self.detail}"


def agrees(checks: tuple[Check, ...]) -> bool:
    """Return whether nothing differs."""
    return all(each.finding != "differs" for each in checks)


def unclear(checks: tuple[Check, ...]) -> list[str]:
    """Return the names of the checks that this party's ledger cannot decide."""
    return [each.name for each in checks if each.finding == "unclear"]


def same(name: str, said: Any, ours: Any, words: Callable[[Any], str] | None = None) -> Check:
    """Return whether a statement's value is that of our ledger; ``words`` formats one for people."""
    if words is None or (said != ours and words(said) == words(ours)):
        words = shown
    return Check(
        name,
        "ok" if said == ours else "differs",
        words(said)
        if said == ours
        else f"the statement has {words(said)}, our ledger {words(ours)}",
    )


def compared(name: str, holds: bool, said: object, ours: object, words: str = "") -> Check:
    """Return whether a statement's value may be so by our ledger; ``words`` say it if it holds."""
    if holds:
        return Check(name, "ok", words or shown(said))
    return Check(name, "differs", f"the statement has {shown(said)}, our ledger {shown(ours)}")


def shown(value: object) -> str:
    """Return a value as part of one line, without control characters and not too long."""
    if isinstance(value, Fraction):
        return f"{value} (about {float(value):.6g})"
    if isinstance(value, float):
        return f"{value:.10g}"
    text = str(value)
    return printable(text, _LONGEST_SHOWN)
