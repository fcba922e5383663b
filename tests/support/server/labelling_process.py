"""A server reduced to its ledger: start or take up a campaign, label its round, finish it.

``python -m tests.support.server.labelling_process LEDGER``, or ``… FOLDER URL`` for a ledger in a
database; the environment may say where it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.store import stores
from aggregator_server.ledger.store.place import place_of
from tests.support.server.campaigns import label, make_spec, start

if TYPE_CHECKING:
    from aggregator_server.ledger.store.place import Place

SPEC = make_spec(queries=400, epsilon=10.0)


def main(place: Place) -> None:
    ledger = Ledger.open(place) if stores.exists(place) else start(place, SPEC)
    with ledger:
        if not ledger.state().rounds_over:
            label(ledger)
            ledger.end_round(wants_predictions=False)
        ledger.finish()


if __name__ == "__main__":
    path = Path(sys.argv[1])
    main(place_of(path, sys.argv[2]) if len(sys.argv) > 2 else path)
