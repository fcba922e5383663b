"""Checks run concurrently, each for a bounded time, on Python, packages, memory and disk."""

from __future__ import annotations

import io
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from pate.errors import (
    DataError,
    DiskError,
    PateError,
    StateError,
    UndecidedError,
    UnreachableError,
)
from pate.preflight import Check, Finding, Skipped, Status, begin, needed, present, run_checks
from pate.preflight.checks import Report
from pate.preflight.machine import (
    check_home,
    check_memory,
    check_packages,
    check_python,
    check_sqlite,
    file_system,
)
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


GIB = 2**30
LOCAL = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def status_of(found: Finding) -> Status:
    return found.status


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which packages are imported; what lies in it counts as installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def distribution(folder: Path, name: str, version: str, *lines: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    head = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}")
    (info / "METADATA").write_text("\n".join((*head, *lines)) + "\n")


def test_this_installation_is_as_it_should_be() -> None:
    assert status_of(check_python()) is Status.OK
    found = check_packages()
    assert status_of(found) is Status.OK, found.text


def test_a_python_below_the_floor_fails(install: Path) -> None:
    distribution(install, "far-ahead", "1.0", "Requires-Python: >=9.1")
    found = check_python("far-ahead")
    assert found.kind is PateError
    assert ">=9.1" in found.text


def test_packages_below_their_floors_and_missing_ones_are_named(install: Path) -> None:
    distribution(install, "old-one", "1.5")
    distribution(
        install, "whole", "1.0",
        "Requires-Dist: old-one>=2.0",
        "Requires-Dist: not-there-at-all>=1",
        "Requires-Dist: numpy>=1",
        'Requires-Dist: of-no-interest>=7; extra == "more"',
        'Requires-Dist: of-no-interest>=7; python_version < "3"',
    )  # fmt: skip
    found = check_packages("whole")
    assert found.kind is PateError
    assert found.text == "old-one is 1.5, wanted is >=2.0; not-there-at-all is missing"
    distribution(install, "not-there-at-all", "1.0")
    distribution(install, "older-floor", "1.0", "Requires-Dist: old-one>=1.2,<2")
    assert status_of(check_packages("older-floor")) is Status.OK


def test_a_checkout_that_nobody_installed_is_a_warning() -> None:
    assert status_of(check_packages("never-installed-here")) is Status.WARNING
    assert status_of(check_python("never-installed-here")) is Status.WARNING


def test_memory_of_the_machine_and_of_a_container(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n")
    found = check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)
    assert (found.status, found.text) == (Status.OK, "16.0 GiB, 8.0 GiB free")
    assert status_of(check_memory(9 * GIB, meminfo=meminfo, cgroup=tmp_path)) is Status.WARNING
    (tmp_path / "memory.max").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{2 * GIB}\n")
    found = check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)
    assert found.status is Status.WARNING
    assert "3.0 GiB (this container's limit), 1.0 GiB free" in found.text
    (tmp_path / "memory.max").write_text("max\n")
    assert status_of(check_memory(2 * GIB, meminfo=meminfo, cgroup=tmp_path)) is Status.OK
    assert status_of(check_memory(1, meminfo=tmp_path / "none")) is Status.SKIPPED


def test_a_home_is_probed_and_left_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "kept").write_text("kept")
    for found in (check_home(home, "all"), check_sqlite(home)):
        assert status_of(found) in (Status.OK, Status.WARNING)
    assert [path.name for path in home.iterdir()] == ["kept"]
    new = tmp_path / "not" / "yet"
    found = check_home(new, "all")
    assert "which a start will make" in found.text
    assert status_of(check_sqlite(new)) in (Status.OK, Status.WARNING)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_home_that_cannot_be_written_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert check_home(file, "all").kind is DiskError
    from pathlib import Path as Place

    proc = Place("/proc")  # it exists, and not even root can write to it
    assert check_home(proc, "all").kind is DiskError
    assert check_sqlite(proc).kind is DiskError


def test_a_home_that_others_may_write_to_fails_and_one_they_may_read_warns(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for mode, status in ((0o770, Status.FAILED), (0o750, Status.WARNING), (0o700, Status.OK)):
        home.chmod(mode)
        found = check_home(home, "all")
        assert found.status is status, (oct(mode), found.text)
        assert found.status is Status.OK or "chmod 700" in found.to_do
    home.chmod(0o770)
    assert check_home(home, "all").kind is StateError


def test_sqlite_is_written_as_ledgers_are(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(LOCAL)
    found = check_sqlite(tmp_path, mounts)
    assert found.status is Status.OK
    assert found.text == (
        f"SQLite {sqlite3.sqlite_version}: write-ahead log, synchronous=FULL, on ext4"
    )


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "tmpfs", "overlay"])
def test_disks_of_others_and_disks_that_pass_are_a_warning(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"{LOCAL}25 24 0:30 / {tmp_path.resolve()} rw - {kind} there rw\n")
    found = check_sqlite(tmp_path / "home", mounts)
    assert found.status is Status.WARNING
    assert kind in found.text


def test_the_nearest_mount_counts(tmp_path: Path) -> None:
    place = tmp_path.resolve() / "with space" / "below"
    place.mkdir(parents=True)
    written = str(place.parent).replace(" ", "\\040")
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"25 24 0:30 / {written} rw - xfs a rw\n26 24 0:31 / {written}/belo rw - nfs b rw\nx\n{LOCAL}"
    )
    assert file_system(place, mounts) == "xfs"
    assert file_system(tmp_path, mounts) == "ext4"
    assert file_system(tmp_path, tmp_path / "none") == ""
