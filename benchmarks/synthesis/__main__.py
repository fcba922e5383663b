"""``python -m benchmarks.synthesis``: the speed of the privacy test as one JSON object."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.synthesis.speed import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40_000, help="rows of D_S")
    parser.add_argument("--attempts", type=int, default=1_000_000, help="candidates to time")
    options = parser.parse_args()
    found = measure(seeds=options.seeds, attempts=options.attempts)
    print(json.dumps(found, indent=2))
    if found["agree"] != found["sample"]:
        sys.exit("the fast test and the definition disagree")


if __name__ == "__main__":
    main()
