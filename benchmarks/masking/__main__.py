from __future__ import annotations

import argparse

import benchmarks.masking
from benchmarks.figures import add_out, publish
from benchmarks.masking.report import run


def main() -> None:
    parser = argparse.ArgumentParser(description=benchmarks.masking.__doc__)
    add_out(parser)
    parser.add_argument("--quick", action="store_true", help="up to 25 parties")
    options = parser.parse_args()
    publish(run(quick=options.quick), options.out, "masking")


if __name__ == "__main__":
    main()
