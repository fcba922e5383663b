"""Who is here and what parties are being asked for, as the exchange sees it at one moment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Presence:
    """A view of the parties.

    Attributes:
        here: names of those that are connected and known.
        step: what is being asked for, in words; empty if nothing.
        awaited: names of those that may answer.
        answered: names of those that have.
        out: those of this batch that failed, or said no.
        refused: those of ``out`` that said no on purpose.
    """

    here: frozenset[str] = frozenset()
    step: str = ""
    awaited: frozenset[str] = frozenset()
    answered: frozenset[str] = frozenset()
    out: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    def doing(self, name: str) -> str:
        """Return what a party does, in words."""
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
        """Whether somebody should look at a party: it said no, failed, or is awaited and away."""
        missed = name in self.awaited - self.answered - self.here
        return name in self.refused or name in self.out or missed
