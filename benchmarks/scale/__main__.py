from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import cast

import benchmarks.scale
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
    parser.add_argument("--out", type=Path, help="folder for the figures and the pictures")
    options = parser.parse_args()
    axes = Axes(options.parties, options.queries, options.classes)
    found = run(axes, processes=options.processes, say=lambda line: print(line, file=sys.stderr))
    text = json.dumps(found, indent=2)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "scale.json").write_text(text + "\n", encoding="utf-8")
        draw(
            options.out,
            cast("list[dict[str, object]]", found["cases"]),
            cast("dict[str, list[int]]", found["axes"]),
        )
    checks = cast("dict[str, dict[str, object]]", found["checks"])
    if any(check["holds"] is False for check in checks.values()):
        sys.exit("a promise does not hold: see `checks`")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(part) for part in text.split(",")}))


if __name__ == "__main__":
    main()
