"""``python -m benchmarks.versus DATA``: this project and the other ways, on the same records.

All have the same records, parties, unit, epsilon and machine, and settings by the same chooser on validation
records. `page` generates docs/versus.md and its pictures from the newest results.

    pip install -r benchmarks/versus/requirements.txt
    PATE_TEST_DATA=DATA python -m benchmarks.versus adult --work WORK
    python -m benchmarks.versus page

A run may be divided: --methods and --epsilons name a part, and figures that today's file has already stay.
One that was interrupted goes on with --continue, also on another day.
AG News and CIFAR-10 need PATE_TEST_ENCODERS, too (`python -m benchmarks.encoders`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.versus import record
from benchmarks.versus.method import EPSILONS
from pate.errors import PateError
from pate.runtime.environment import QUIET_FLOWER
from pate.runtime.screen import Screen


def main(words: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    # Before the first import of flwr: no telemetry, no update check.
    os.environ.update(QUIET_FLOWER)
    asked, screen = _parser().parse_args(words), Screen("versus")
    try:
        if asked.what == "page":
            from benchmarks.versus import page

            screen.say(f"{page.write(asked.out, asked.docs)} written")
            return 0
        from benchmarks.versus.data import PROBLEMS
        from benchmarks.versus.run import run

        work = asked.work or Path(tempfile.mkdtemp(prefix="pate-versus-"))
        work.mkdir(parents=True, exist_ok=True)
        for name in PROBLEMS if asked.what == "all" else [asked.what]:
            made = run(
                name, methods=asked.methods, epsilons=asked.epsilons, dealings=asked.dealings,
                work=work, out=asked.out, screen=screen, dirty=asked.dirty, go_on=asked.go_on,
            )  # fmt: skip
            screen.say(f"{made} written")
    except PateError as error:
        screen.say(str(error))
        return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.versus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = (*record.TITLES, "all", "page")
    parser.add_argument("what", choices=names, help="a data set, `all`, or `page`")
    parser.add_argument("--methods", nargs="*", default=(), help="default: all")
    parser.add_argument("--epsilons", nargs="*", type=float, choices=EPSILONS, default=())
    parser.add_argument("--dealings", type=int, default=3, help="default: 3")
    parser.add_argument("--work", type=Path, metavar="DIR", help="kept; default: a new one")
    parser.add_argument("--out", type=Path, default=record.FOLDER, metavar="DIR")
    parser.add_argument(
        "--docs", type=Path, default=record.FOLDER.parents[2] / "docs", metavar="DIR"
    )
    parser.add_argument(
        "--continue", dest="go_on", action="store_true",
        help="with the newest file of OUT: run only what it lacks",
    )  # fmt: skip
    parser.add_argument("--dirty", action="store_true", help="run with uncommitted files, to try")
    return parser


if __name__ == "__main__":
    sys.exit(main())
