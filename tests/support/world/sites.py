"""The parties of a campaign on this machine: their data, and their homes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from pate.data.values import Dataset
from simulation.datasets import digits, write_inputs, write_labelled

NAMES: Final = ("north", "south", "west")
#: Of each party.
RECORDS: Final = 120
TEACHERS: Final = 3


@dataclass(frozen=True)
class Sites:
    """Parties with disjoint parts of scikit-learn's digits."""

    folder: Path  # with ``data/NAME`` and ``homes/NAME`` of each party
    names: tuple[str, ...] = NAMES  # of the parties
    seed: int = 0  # of the order of the records

    def data(self, name: str) -> Path:
        """Return the folder with a party's records."""
        return self.folder / "data" / name

    def home(self, name: str) -> Path:
        """Return the home of a party."""
        return self.folder / "homes" / name

    def deal(self) -> Self:
        """Write each party's records."""
        records = self._records()
        for at, name in enumerate(self.names):
            self.data(name).mkdir(parents=True)
            rows = range(at * RECORDS, (at + 1) * RECORDS)
            write_labelled(self.data(name) / "records.npz", records.take(rows))
        return self

    def left(self) -> Dataset:
        """Return the records that no party has, for public sets."""
        records = self._records()
        return records.take(range(len(self.names) * RECORDS, len(records)))

    def public(self, first: int, count: int) -> Path:
        """Write a public set; each number gives a set that no party has votes for yet."""
        inputs = self.left().take(range(first, first + count)).inputs
        return write_inputs(self.folder / f"public-{first}-{count}.npz", inputs)

    def copy(self, folder: Path, names: tuple[str, ...] | None = None) -> Sites:
        """Return these sites, or some of them, with separate homes and the same data."""
        made = Sites(folder, names or self.names, self.seed)
        (folder / "homes").mkdir(parents=True)
        (folder / "data").symlink_to((self.folder / "data").resolve())
        for name in made.names:
            shutil.copytree(self.home(name), made.home(name))
        return made

    def _records(self) -> Dataset:
        records = digits()
        return records.take(np.random.default_rng(self.seed).permutation(len(records)))


def lenient(roster: int, survivors: int) -> str:
    """Return the policy of an enrolled party that accepts a large epsilon.

    ``roster``: least number of parties; ``survivors``: least number of those whose votes are
    summed.
    """
    return (
        'campaigns = "enrolled"\nlargest_epsilon = "none"\naggregation = ["masked"]\n'
        f"least_roster = {roster}\nleast_survivors = {survivors}\nleast_colluders = 0\n"
    )
