"""``python -m tests.soak``: campaigns over Flower with random faults, see :mod:`tests.soak.flower`.

Each campaign is of a random kind, with all the processes that an operator starts, over TLS, with enrolled
parties and a student. Processes of the server or of parties are killed or stopped, and started again, most
of them after the first charge. What does not pass every check makes the exit code 1.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tests.soak.flower import FlowerSoak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--campaigns", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-output"))
    parser.add_argument("--at-once", type=int, default=3, help="campaigns beside each other")
    asked = parser.parse_args()
    # As Ctrl-C: started processes are ended first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    soak = FlowerSoak(asked.out, asked.seed, asked.at_once)
    soak.run(asked.campaigns)
    soak.report()
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
