"""Simulated parties: voters with the parties' code, in this process or in one of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from party.identity.keys import identity_key, shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.teachers.training import train_ensemble
from party.voting.neighbour import NeighbourVotes
from party.voting.site import Site
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.noise.exact import SystemNoise
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from party.teachers.ensemble import Ensemble
    from party.voting.voters import Ensemble as AnyEnsemble
    from pate.data.values import Dataset, Inputs


def party_home(place: Path, number: int) -> Path:
    """Return the home directory of a simulated party; its last part is the party's name."""
    return place / f"party_{number:04d}"


def open_voter(
    home: Path,  # of the party, which is named after it; made if absent
    source: AnyEnsemble | NeighbourVotes,  # of its votes: its teachers, or its records
    *,
    public: Inputs | None = None,  # its own copy of the public set, or None to receive one
) -> Voter:
    """Return the voter of a party."""
    private_directory(home)
    return Voter(
        name=home.name,
        identity=identity_key(home),
        voters=(
            ReadyVoters(records=source)
            if isinstance(source, NeighbourVotes)
            else ReadyVoters(source)
        ),
        home=home,
        site=Site(Policy.default(loopback=True), PartyLedger(home / LEDGER_FILE)),
        noise=SystemNoise(),
        public=public,
    )


def open_party(
    home: Path,
    records: Dataset,
    *,
    teachers: int | None,  # k, which are trained, or loaded from its home; None: its records vote
    public: Inputs | None = None,
) -> Voter:
    """Return the voter of a party with these records."""
    private_directory(home)
    source = (
        NeighbourVotes(records, shard_key(home))
        if teachers is None
        else open_ensemble(home, records, teachers)
    )
    return open_voter(home, source, public=public)


def open_ensemble(
    home: Path,
    records: Dataset,
    teachers: int,
    *,
    model: str = "auto",
    device: str = "cpu",
    # called with the number of trained teachers, and k
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Ensemble:
    """Return a party's teachers, trained, or loaded from its home."""
    private_directory(home)
    return train_ensemble(
        records,
        teachers=teachers,
        model=model,
        device=device,
        home=home,
        key=shard_key(home),
        progress=progress,
    )


@dataclass(frozen=True, eq=False)
class Opener:
    """Opens parties in a process that has only this value; fields as of :func:`open_party`, by number."""

    place: Path
    records: Mapping[int, Dataset]
    teachers: int | None
    public: Inputs | None

    def __call__(self, number: int) -> Callable[[bytes], bytes]:
        """Return what answers a party's messages."""
        home, records = party_home(self.place, number), self.records[number]
        return open_party(home, records, teachers=self.teachers, public=self.public).handle
