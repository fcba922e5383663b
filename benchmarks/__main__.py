"""``python -m benchmarks``: published rows again, the page of results, and what parts cost.

    PATE_TEST_DATA=DATA python -m benchmarks run mnist-confident --work WORK
    PATE_TEST_DATA=DATA python -m benchmarks run compare-adult --methods records dp-sgd --epsilons 1
    python -m benchmarks page
    python -m benchmarks cost campaign --parties 100

A row divides real records among parties. This project's campaigns run by the real protocol in one process:
signed messages, masked sums, a ledger that is verified, noise from the operating system. Other methods have
the same records, unit and epsilon. Rows are in benchmarks/rows.toml, results in benchmarks/results.

DATA is the folder of the data sets; rows.toml has the files that each needs. Texts, CIFAR-10 and brain MRI
need PATE_TEST_ENCODERS, too (`python -m benchmarks.encoders`); comparisons need opacus 1.6. A seed varies
the student, the order of the queries, and which party has which records; noise is always fresh. Results for
docs/results.md come from a clean commit: with changed files give another --out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.cost import COSTS
from benchmarks.record import RESULTS
from benchmarks.rows import ROWS
from pate.errors import PateError
from pate.runtime.child import QUIET_FLOWER
from pate.runtime.screen import Screen


def main(words: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    # Before the first import of flwr: no telemetry, no update check.
    os.environ.update(QUIET_FLOWER)
    asked, screen = _parser().parse_args(words), Screen("benchmarks")
    if asked.what == "page":
        from benchmarks.page import write

        screen.say(f"{write()} written")
        return 0
    if asked.what == "cost":
        sizes = {name: getattr(asked, name) for name in ("parties", "queries")}
        given = {name: value for name, value in sizes.items() if value and asked.name == "campaign"}
        print(json.dumps(COSTS[asked.name](quick=asked.quick, **given), indent=2))
        return 0
    return _run(asked, screen)


def _run(asked: argparse.Namespace, screen: Screen) -> int:
    from benchmarks.run import run_row

    work = asked.work or Path(tempfile.mkdtemp(prefix="pate-benchmarks-"))
    work.mkdir(parents=True, exist_ok=True)
    code = 0
    for name in asked.rows:
        try:
            made = run_row(
                ROWS[name], work=work, screen=screen, methods=asked.methods, epsilons=asked.epsilons,
                dealings=asked.dealings, out=asked.out, go_on=asked.go_on,
            )  # fmt: skip
            screen.say(f"{made} written")
        except PateError as error:  # the other rows still run
            screen.say(f"{name}: {error}")
            code = error.exit_code
    return code


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, ROWS))
    rows = "\n".join(f"  {row.name:{width}}  {row.title}" for row in ROWS.values())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"rows:\n{rows}\n\nexit codes are those of the commands",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what", required=True)
    run = commands.add_parser("run", help="run rows again")
    run.add_argument("rows", nargs="+", choices=list(ROWS), metavar="ROW")
    run.add_argument("--methods", nargs="*", default=(), help="only these; others' figures stay")
    run.add_argument("--epsilons", nargs="*", type=float, default=(), help="only these")
    run.add_argument("--dealings", type=int, help="number of runs; default: the row's")
    run.add_argument(
        "--work", type=Path, metavar="DIR", help="folder for teachers and votes; default: a new one"
    )
    run.add_argument("--out", type=Path, default=RESULTS, metavar="DIR", help="of the results")
    run.add_argument(
        "--continue", dest="go_on", action="store_true", help="run only what the result lacks"
    )
    cost = commands.add_parser("cost", help="measure processor seconds, memory and bytes")
    cost.add_argument("name", choices=list(COSTS))
    cost.add_argument("--quick", action="store_true", help="a few small sizes, to try")
    cost.add_argument("--parties", type=int, help="of a campaign; default: 10")
    cost.add_argument("--queries", type=int, help="of a campaign; default: 10,000")
    commands.add_parser("page", help="make docs/results.md and what belongs to it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
