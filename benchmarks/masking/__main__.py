from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import benchmarks.masking
from benchmarks.masking.pictures import draw
from benchmarks.masking.report import run


def main() -> None:
    parser = argparse.ArgumentParser(description=benchmarks.masking.__doc__)
    parser.add_argument("--out", type=Path, help="folder for the figures and the pictures")
    parser.add_argument("--quick", action="store_true", help="up to 25 parties")
    options = parser.parse_args()
    found = run(quick=options.quick)
    text = json.dumps(found, indent=2)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "masking.json").write_text(text + "\n")
        draw(options.out, found)
    if not all(check["holds"] for check in found["checks"].values()):
        sys.exit("a promise does not hold: see `checks`")


if __name__ == "__main__":
    main()
