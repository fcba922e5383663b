"""``python -m benchmarks.soak --campaigns 200``: campaigns with random faults, one after the other.

Each campaign is of a random kind; in most a process is killed at a random failpoint, killed at a
random time, or stopped for a while, at the server or at a party, and started again. After each the
server's ledger and those of the parties are verified, and labels that were durable before a kill
must be there after it, unchanged. Two processes live all the time (:mod:`benchmarks.soak.hosts`);
what they hold is written down after each campaign, and a growth that is surely above the bound ends
the soak with 1, as a ledger that does not verify does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.soak.run import Soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-output"))
    asked = parser.parse_args()
    soak = Soak(asked.out, asked.seed)
    soak.run(asked.campaigns)
    soak.report()
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
