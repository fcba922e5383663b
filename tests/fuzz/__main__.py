"""``python -m tests.fuzz --messages 100000``: malformed messages for every parser of network input.

``--files 2000`` feeds that many broken files of each kind to their readers instead.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.campaign import Tally, run, run_apart
from tests.fuzz.files import KINDS
from tests.fuzz.guard import LIMIT_S, ROOM_BYTES
from tests.fuzz.targets import targets


def main() -> int:
    """Run the campaign and print a table; exit with 1 on any fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="in all (default: 100,000)")
    parser.add_argument("--seed", type=int, default=0, help="of all messages (default: 0)")
    parser.add_argument("--files", type=int, help="of each kind, in place of messages")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of files (default: %(default)s)")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)

    def show(name: str, tally: Tally) -> None:
        outcomes = ", ".join(f"{count} {what}" for what, count in tally.outcomes.most_common())
        print(f"{name}: slowest {1000 * tally.slowest:.0f} ms; {outcomes}", flush=True)  # noqa: T201
        for fault in tally.faults[:5]:
            print(f"    FAULT {fault}", flush=True)  # noqa: T201

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pate-fuzz-") as folder:
        if asked.files is None:
            found = run(targets(Path(folder)), asked.messages, asked.seed, show)
        else:
            found = {}
            for kind in asked.kinds.split(","):
                found |= run_apart(KINDS[kind], Path(folder), asked.files, asked.seed, show)
    faults = sum(len(tally.faults) for tally in found.values())
    fed = sum(sum(tally.outcomes.values()) for tally in found.values()) + faults
    print(  # noqa: T201
        f"{fed} messages to {len(found)} readers in {time.monotonic() - began:.0f} s, none over "
        f"{LIMIT_S:g} s of work or {ROOM_BYTES >> 20} MiB: {faults} faults"
        if not faults
        else f"{faults} faults in {fed} messages"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
