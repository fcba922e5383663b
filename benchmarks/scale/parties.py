"""``python -m benchmarks.scale.parties PLACE TEACHERS CLASSES FIRST STEP COUNT``: some parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.scale.inputs import PixelTeachers
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.site import Site
from party.voting.voter import Voter
from pate.noise.exact import SystemNoise
from pate.runtime.home import private_directory
from simulation.party import party_home
from simulation.party_processes import arguments_of, serve

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Answer for the parties that the command line names."""
    (place, teachers, classes), numbers = arguments_of(sys.argv[1:])

    def open_party(number: int) -> Callable[[bytes], bytes]:
        home = private_directory(party_home(Path(place), number))
        voter = Voter(
            name=home.name,
            identity=identity_key(home),
            ensemble=PixelTeachers(number, int(teachers), int(classes)),
            home=home,
            site=Site(Policy.default(loopback=True), PartyLedger(home / LEDGER_FILE)),
            noise=SystemNoise(),
        )
        return voter.handle

    serve(open_party, numbers)


if __name__ == "__main__":
    main()
