"""``python -m benchmarks.papers ROW``: reproduces a row of the papers' tables.

Each row divides real records among five parties, which vote by the real protocol in one process: signed
messages, masked sums, a ledger that is verified, noise from the operating system. A student is trained on the
labels and measured on held-out records. The result is a dated JSON file; `table` generates docs/results.md
from the newest result of each row.

    PATE_TEST_DATA=DATA python -m benchmarks.papers mnist-confident
    PATE_TEST_DATA=DATA python -m benchmarks.papers all --work WORK
    python -m benchmarks.papers table

DATA is the folder of the data sets; docs/results.md lists the files that each row needs. Rows of a public
encoder need PATE_TEST_ENCODERS, too: the folder with its folder (`python -m benchmarks.encoders`). Settings
are in benchmarks/papers/rows.py. A seed varies the student, the order of the queries, and which party has
which records; noise is always fresh. Teachers and votes are stored in --work and reused by later rows over
the same records. Results for docs/results.md come from a clean commit: with changed files give another --out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks import dated
from benchmarks.papers import record, table
from benchmarks.papers.rows import ROWS
from pate.errors import DataError, PateError, UsageError
from pate.runtime.environment import QUIET_FLOWER
from pate.runtime.screen import Screen


def main(words: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    asked = _parser().parse_args(words)
    screen = Screen("papers")
    try:
        if asked.what == "table":
            screen.say(f"{table.write(asked.out, asked.doc)} written")
            return 0
        names = list(ROWS) if asked.what == "all" else [asked.what]
        if asked.out.resolve() == record.FOLDER and not record.is_clean():
            raise UsageError(
                "files differ from the commit, and so would the row from what its result names: commit "
                "first, or try the row with another --out"
            )
        if asked.work is not None:
            asked.work.mkdir(parents=True, exist_ok=True)
            return _run(names, asked, asked.work, screen)
        with tempfile.TemporaryDirectory(prefix="pate-papers-") as work:
            return _run(names, asked, Path(work), screen)
    except PateError as error:
        screen.say(str(error))
        return error.exit_code


def _run(names: list[str], asked: argparse.Namespace, work: Path, screen: Screen) -> int:
    """Run rows one after the other; after a failure the others still run."""
    # Before the first import of flwr anywhere: no telemetry, no update check.
    os.environ.update(QUIET_FLOWER)
    from benchmarks.papers.runner import run_row

    code = 0
    for name in names:
        try:
            row = ROWS[name] if asked.steps is None else replace(ROWS[name], steps=asked.steps)
            result = run_row(row, seeds=asked.seeds, work=work, screen=screen)
        except PateError as error:
            if len(names) == 1:
                raise
            screen.say(f"{name}: {error}")
            code = error.exit_code
            continue
        screen.say(f"{name}: {dated.write(result, asked.out)} written")
        if result.note:
            screen.say(f"{name}: {result.note}")
            code = code or DataError.exit_code
    return code


def _parser() -> argparse.ArgumentParser:
    width = max(len(name) for name in ROWS)
    rows = "\n".join(f"  {row.name:{width}}  {row.title}" for row in ROWS.values())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers",
        description=__doc__,
        epilog=(
            f"rows:\n{rows}\n\nexit codes are those of the commands (docs/errors.md); 10 also stands "
            "for a row of which a part could not be run, which is then said"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", choices=[*ROWS, "all", "table"], metavar="ROW", help="a row, `all`, or `table`"
    )
    parser.add_argument("--seeds", type=_count, default=5, help="runs per row (default: 5)")
    parser.add_argument(
        "--out", type=Path, default=record.FOLDER, metavar="DIR",
        help="folder of the results (default: benchmarks/papers/results)",
    )  # fmt: skip
    parser.add_argument(
        "--work", type=Path, metavar="DIR",
        help="folder for teachers and votes, kept; default: a temporary one, which is not",
    )  # fmt: skip
    parser.add_argument(
        "--steps", type=_count,
        help="steps of each of the student's trainings, to try a row; it is in the result",
    )  # fmt: skip
    parser.add_argument(
        "--doc", type=Path, default=table.DOCUMENT, metavar="FILE",
        help="table: the file to write (default: docs/results.md)",
    )  # fmt: skip
    return parser


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return count


if __name__ == "__main__":
    sys.exit(main())
