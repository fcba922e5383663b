"""``python -m benchmarks.scale.parties PLACE TEACHERS CLASSES FIRST STEP COUNT``: some parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.scale.inputs import PixelTeachers
from party.keys import identity_key
from party.ledger import LEDGER_FILE, PartyLedger
from party.policy import Policy
from party.site import Site
from party.voter import Voter
from pate.commands.party_processes import arguments_of, serve
from pate.commands.simulated_party import party_home
from pate.noise import SystemNoise
from pate.runtime.home import private_directory

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
