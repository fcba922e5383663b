"""A snapshot of the connected parties and the open request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Presence:
    """A snapshot of the parties.

    Attributes:
        here: names of the connected and known parties.
        step: the current request, in words; empty if none.
        awaited: names of the parties that may answer.
        answered: names of the parties that have.
        out: parties of this batch that failed or refused.
        refused: those of ``out`` that refused by decision.
    """

    here: frozenset[str] = frozenset()
    step: str = ""
    awaited: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    out: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def doing(self, name: str) -> str:
        """Return the state of a party, in words."""
        if name in self.refused:
            return "refused; see the log"
        if name in self.out:
            return "failed; see the log"
        if name in self.answered:
            return f"has sent {self.step}"
        away = name not in self.here
        if name in self.awaited:
            return f"away; {self.step} awaited" if away else f"asked for {self.step}"
        if away:
            return "not connected"
        return "not in this sum" if self.step else "ready"

    def troubled(self, name: str) -> bool:
        """Whether a party needs attention: it refused, failed, or is awaited and disconnected."""
        missed = name in self.awaited - self.answered - self.here
        return name in self.refused or name in self.out or missed
