"""A server reduced to its ledger: start or take up a campaign, label its round, finish it.

``python -m tests.aggregator_server.labelling_process LEDGER``; the environment may say where it is
killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aggregator_server.ledger import Ledger
from tests.aggregator_server.campaigns import label, make_spec, start

SPEC = make_spec(queries=400, epsilon=10.0)


def main(path: Path) -> None:
    ledger = Ledger.open(path) if path.exists() else start(path, SPEC)
    with ledger:
        if not ledger.state().rounds_over:
            label(ledger)
            ledger.end_round(wants_predictions=False)
        ledger.finish()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
