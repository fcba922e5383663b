from __future__ import annotations

import benchmarks.masking
from benchmarks.figures import options, publish
from benchmarks.masking.report import run


def main() -> None:
    asked = options(benchmarks.masking.__doc__, "up to 25 parties")
    publish(run(quick=asked.quick), asked.out, "masking")


if __name__ == "__main__":
    main()
