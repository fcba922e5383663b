"""Checks run concurrently, each for a bounded time, with output for people and programs."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from pate.errors import DataError, PateError, UndecidedError, UnreachableError
from pate.preflight import Check, Finding, Skipped, Status, begin, needed, present, run_checks
from pate.preflight.checks import Report
from pate.start import INTERRUPTED

GOOD = Finding.ok("as it should be")
BAD = Finding.failed(DataError, "it is not there", "put it there")
ODD = Finding.warning("it is small", "make it larger")


def check(
    name: str, found: Finding | Callable[..., Finding], seconds: float = 20.0, **more: object
) -> Check:
    look = found if callable(found) else lambda: found
    return Check(name, look, seconds, **more)  # type: ignore[arg-type]


def ran(*checks: Check) -> Report:
    return run_checks({"Group": checks})


def shown(checks: list[Check], *, width: int = 80, terminal: bool) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=width, color_system=None)
    present({"Group": checks}, as_json=False, console=console)
    # What stays on the screen: what the sign of progress wrote is overwritten.
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return [line.rpartition("\r")[2] for line in text.split("\n")[:-1]]


def test_the_exit_code_is_that_of_the_first_failure() -> None:
    late = Finding.failed(UnreachableError, "nobody answers", "wait")
    report = ran(check("a", ODD), check("b", BAD), check("c", late), check("d", GOOD))
    assert report.exit_code == DataError.exit_code
    assert [result.name for result in report.results] == ["a", "b", "c", "d"]
    assert ran(check("a", ODD), check("d", GOOD)).exit_code == 0
    assert Report(()).exit_code == 0


def test_an_error_of_ours_is_a_failure_and_any_other_hides_no_other_check() -> None:
    def breaks() -> Finding:
        raise ZeroDivisionError("oh")

    def refuses() -> Finding:
        raise DataError("no such file; check the path")

    broken, refused, good = ran(check("a", breaks), check("b", refuses), check("c", GOOD)).results
    assert broken.finding.kind is PateError
    assert "ZeroDivisionError" in broken.finding.text
    assert (refused.finding.kind, refused.finding.text) == (
        DataError,
        "no such file; check the path",
    )
    assert good.finding is GOOD


def test_what_takes_too_long_is_given_up_and_the_rest_is_told() -> None:
    for_ever = threading.Event()

    def hangs() -> Finding:
        for_ever.wait()
        return GOOD

    report = ran(
        check("a", hangs, seconds=0.05, late=UnreachableError),
        check("b", hangs, seconds=0.05),
        check("c", GOOD),
    )
    for_ever.set()
    assert [r.finding.status.value for r in report.results] == ["failed", "unknown", "ok"]
    assert report.exit_code == UnreachableError.exit_code
    report = Report(report.results[1:])
    assert (report.exit_code, report.to_dict()["ready"]) == (UndecidedError.exit_code, False)
    assert report.to_dict()["counts"] == {
        "ok": 1, "warning": 0, "failed": 0, "skipped": 0, "unknown": 1,
    }  # fmt: skip
    assert "--timeout" in report.results[0].finding.to_do


def test_checks_run_at_the_same_time() -> None:
    both = threading.Barrier(2)

    def meets() -> Finding:
        both.wait(timeout=20)
        return GOOD

    assert ran(check("a", meets), check("b", meets)).exit_code == 0


def test_what_several_checks_look_at_is_made_once_and_a_fault_of_it_is_reported_once() -> None:
    made = []

    def make() -> int:
        made.append(1)
        raise DataError("it cannot be read")

    def nothing() -> int:
        raise Skipped("none is named")

    held, absent, there = begin(make), begin(nothing), begin(lambda: 7)
    found = [
        result.finding
        for result in ran(
            check("a", lambda: Finding.ok(str(held.result()))),
            check("b", lambda: Finding.ok(str(needed(held, "no data")))),
            check("c", lambda: Finding.ok(str(absent.result()))),
            check("d", lambda: Finding.ok(str(needed(absent, "no data")))),
            check("e", lambda: Finding.ok(str(needed(there, "no data")))),
        ).results
    ]
    assert made == [1]
    assert found == [
        Finding.failed(DataError, "it cannot be read"), Finding.skipped("no data"),
        Finding.skipped("none is named"), Finding.skipped("none is named"), Finding.ok("7"),
    ]  # fmt: skip


def test_a_process_does_not_wait_for_a_check_that_hangs() -> None:
    """Its end would otherwise have to wait for the thread; the time here is only a way out."""
    hangs = (
        "import sys, threading\n"
        "from pate.preflight import Check, present\n"
        "checks = {'Group': (Check('a', threading.Event().wait, 0.05),)}\n"
        "sys.exit(present(checks, as_json=False))"
    )
    done = subprocess.run(
        [sys.executable, "-c", hangs], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.startswith("unknown  a: nothing found out within 0.05 s")
    assert done.stdout.endswith("1 unknown: whether it is ready is not known (exit code 44)\n")
    assert done.returncode == UndecidedError.exit_code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("thread", ["main", "other"])
def test_whoever_waits_for_checks_can_stop_them(number: int, thread: str) -> None:
    """A signal that another thread takes does not wake the main one.

    Nor does one that the main thread takes just before it begins to wait, which no test can time.
    """
    waits = (
        "import signal, sys, threading, typer\n"
        "from pate.runtime.command import run\n"
        "from pate.preflight import Check, present\n"
        "app = typer.Typer()\n"
        "numbers = {signal.SIGINT, signal.SIGTERM} if sys.argv.pop() == 'other' else set()\n"
        "def look():\n"
        "    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)\n"
        "    print('begun', flush=True)\n"
        "    threading.Event().wait()\n"
        "@app.command()\n"
        "def command():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)\n"
        "    present({'Group': (Check('a', look, 600.0),)}, as_json=False)\n"
        "run(app, 'pate-test')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", waits, thread],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (INTERRUPTED, "pate-test: stopped\n")


def test_a_failure_has_a_kind_and_nothing_else_has() -> None:
    with pytest.raises(ValueError, match="kind"):
        Finding(Status.FAILED, "no")
    with pytest.raises(ValueError, match="kind"):
        Finding(Status.OK, "yes", kind=DataError)


def test_in_a_pipe_each_check_is_one_plain_line_however_long() -> None:
    long = Finding.warning("word " * 60, "mend it")
    lines = shown([check("a", GOOD), check("long", long), check("b", BAD)], terminal=False)
    assert lines[0] == "ok       a: as it should be"
    assert lines[1].startswith("warning  long: word word")
    assert lines[1].endswith("word (to do: mend it)")
    assert lines[2] == "failed   b: it is not there (to do: put it there)"
    assert lines[3] == "1 ok, 1 warning, 1 failed: not ready: b (exit code 10)"
    assert len(lines) == 4


def test_on_a_terminal_lines_are_folded_under_their_own_column() -> None:
    long = Finding.warning("word " * 30, "mend it")
    lines = shown([check("a", GOOD), check("long", long)], terminal=True)
    assert all(len(line) <= 80 for line in lines)
    assert lines[1] == "Group", lines
    first = lines.index(next(line for line in lines if "warning" in line))
    column = lines[first].index("word")
    assert lines[first + 1][:column].isspace()
    assert lines[first + 1][column:].startswith("word")
    assert any(line[column:].startswith("to do: mend it") for line in lines)
    assert lines[-1] == "1 ok, 1 warning, 0 failed: ready"


def test_nothing_that_a_terminal_obeys_gets_through() -> None:
    evil = Finding.ok("[red]name\x1b]0;title\x07\nsecond [/red]")
    for terminal in (False, True):
        text = "\n".join(shown([check("a", evil)], terminal=terminal))
        assert r"[red]name\x1b]0;title\x07 second [/red]" in text
        assert "\x1b]" not in text


def test_the_report_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [check("a", GOOD), check("b", BAD), check("c", Finding.skipped("none"))]
    assert present({"Group": checks}, as_json=True) == DataError.exit_code
    found = json.loads(capsys.readouterr().out)
    assert (found["ready"], found["exit_code"]) == (False, 10)
    assert found["counts"] == {"ok": 1, "warning": 0, "failed": 1, "skipped": 1, "unknown": 0}
    assert found["checks"][1] == {
        "group": "Group", "name": "b", "status": "failed", "text": "it is not there",
        "to_do": "put it there", "error": "DataError", "exit_code": 10,
    }  # fmt: skip
