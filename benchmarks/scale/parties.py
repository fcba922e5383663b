"""``python -m benchmarks.scale.parties PLACE TEACHERS CLASSES FIRST STEP COUNT``: runs several parties."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.scale.inputs import PixelTeachers
from simulation.party import open_voter, party_home
from simulation.party_processes import arguments_of, serve

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """Run the parties given on the command line."""
    (place, teachers, classes), numbers = arguments_of(sys.argv[1:])

    def open_party(number: int) -> Callable[[bytes], bytes]:
        teacher = PixelTeachers(number, int(teachers), int(classes))
        return open_voter(party_home(Path(place), number), teacher).handle

    serve(open_party, numbers)


if __name__ == "__main__":
    main()
