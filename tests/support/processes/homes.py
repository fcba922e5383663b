"""Homes of three parties with trained teachers, dealt once and copied for each campaign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchmarks.soak.play import NAMES, Play
from simulation.commands import Sites

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Homes:
    """What campaigns start from.

    Attributes:
        sites: the parties, which no campaign has seen.
        public: a public set.
    """

    sites: Sites
    public: Path

    names = NAMES

    @classmethod
    def make(cls, folder: Path, queries: int) -> Self:
        """Deal the data and train the teachers."""
        sites = Sites(folder, NAMES).deal()
        public = sites.public(0, queries)
        with Play(folder / "training", sites, public=public) as play:
            play.train()
        return cls(sites, public)

    def play(self, folder: Path, kind: str = "masked") -> Play:
        """Return a campaign that is still to be started, with homes of its own."""
        sites = self.sites.copy(folder.parent / f"{folder.name}-sites")
        return Play(folder, sites, public=self.public, kind=kind)
