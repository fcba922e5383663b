from __future__ import annotations

import argparse

import benchmarks.masking
from benchmarks.figures import add_out, publish
from benchmarks.masking.pictures import draw
from benchmarks.masking.report import run


def main() -> None:
    parser = argparse.ArgumentParser(description=benchmarks.masking.__doc__)
    add_out(parser)
    parser.add_argument("--quick", action="store_true", help="up to 25 parties")
    options = parser.parse_args()
    found = run(quick=options.quick)
    publish(found, options.out, "masking", lambda folder: draw(folder, found))


if __name__ == "__main__":
    main()
