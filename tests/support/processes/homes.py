"""Homes of three parties with trained teachers, dealt once and copied for each campaign."""

from __future__ import annotations

import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchmarks.soak.play import NAMES, Play
from tests.support.processes.commands import Sites

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Homes:
    """What campaigns start from.

    Attributes:
        folder: the data of the parties, and their homes, which no campaign has seen.
        public: a public set.
    """

    folder: Path
    public: Path

    names = NAMES

    @classmethod
    def make(cls, folder: Path, queries: int) -> Self:
        """Deal the data and train the teachers."""
        folder.mkdir(exist_ok=True)
        sites = Sites.make(folder)
        public = sites.public(0, queries)
        (folder / "data").mkdir()
        for name in NAMES:
            (folder / name).rename(folder / "data" / name)
        with Play(folder / "training", folder, public) as play:
            # A server that is not there: they train, and are stopped when they look for it.
            for party in [play.party(name) for name in NAMES]:
                party.says("teachers are ready")
                party.send(signal.SIGTERM)
                party.ends(130)
        return cls(folder, public)

    def play(self, folder: Path, kind: str = "masked") -> Play:
        """Return a campaign that is still to be started, with homes of its own."""
        homes = folder.parent / f"{folder.name}-homes"
        homes.mkdir(parents=True)
        (homes / "data").symlink_to(self.folder / "data")
        for name in NAMES:
            shutil.copytree(self.folder / name, homes / name)
        return Play(folder, homes, self.public, kind)
