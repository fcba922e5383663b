from __future__ import annotations

import argparse
import sys
from typing import Any

import benchmarks.scale
from benchmarks.figures import add_out, publish
from benchmarks.scale.pictures import draw
from benchmarks.scale.report import Axes, run


def main() -> None:
    parser = argparse.ArgumentParser(description=benchmarks.scale.__doc__)
    for axis, values in vars(Axes()).items():
        text = ",".join(map(str, values))
        parser.add_argument(f"--{axis}", type=_numbers, default=values, help=f"default: {text}")
    parser.add_argument(
        "--processes", type=int, default=0, help="of the parties; default: one a core"
    )
    add_out(parser)
    options = parser.parse_args()
    axes = Axes(options.parties, options.queries, options.classes)
    found: dict[str, Any] = run(
        axes, processes=options.processes, say=lambda line: print(line, file=sys.stderr)
    )
    publish(found, options.out, "scale", lambda folder: draw(folder, found["cases"], found["axes"]))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


if __name__ == "__main__":
    main()
