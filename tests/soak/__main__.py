"""``python -m tests.soak --campaigns 200``: campaigns with random faults.

Each campaign is of a random kind; in most of them processes of the server or a party are killed or stopped,
and started again. After each the ledgers of server and parties are verified, and labels that were durable
before a kill must be unchanged.

``--link direct`` runs them one after the other without Flower, a few seconds each, with faults also at random
failpoints. Two processes persist throughout (:mod:`tests.soak.hosts`); their resources are recorded
after each campaign; growth significantly above the bound, or a ledger that does not verify, makes the exit
code 1.

``--link flower`` runs them with all the processes that an operator starts, over TLS, with enrolled
parties and a student, and most faults come after the first charge: :mod:`tests.soak.flower`.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.soak.flower import FlowerSoak
from tests.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--link", choices=("direct", "flower"), default="direct")
    parser.add_argument(
        "--campaigns", type=int, help="default: 200 over the direct link, 30 over Flower"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-output"))
    parser.add_argument("--at-once", type=int, default=3, help="over Flower: beside each other")
    asked = parser.parse_args()
    # As Ctrl-C: started processes are ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    soak: FlowerSoak | Soak
    if asked.link == "flower":
        soak = FlowerSoak(asked.out, asked.seed, asked.at_once)
        soak.run(asked.campaigns or 30)
    else:
        soak = Soak(asked.out, asked.seed)
        soak.run(asked.campaigns or 200)
    soak.report()
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
