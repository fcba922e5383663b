"""Fixtures that many tests share."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import os
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pate.runtime import child
from pate.runtime.child import QUIET_FLOWER
from tests.support.postgres import running_cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.postgres import Cluster
    from tests.support.world.commands import Homes

# Before the first import of flwr anywhere: no telemetry, no update check, no runtime installs.
os.environ.update(QUIET_FLOWER)

#: The files that take half a minute and more, the longest first. Each is the work of one process: begun
#: last, one process would work on it while the others have nothing left to do.
LONGEST = (
    "test_failpoints.py", "test_every_campaign.py", "test_commands.py", "test_flower_campaign.py",
    "test_mechanisms.py", "test_simulate.py", "test_audit_bugs.py", "test_image_students.py",
    "test_soak.py", "test_network.py", "test_killed.py", "test_kinds.py", "test_restarts.py",
    "test_hostile_carrier.py", "test_unavailable.py", "test_voter_ahead.py",
    "test_misbehaving_party.py", "test_classifier.py", "test_released_sums.py", "test_several.py",
    "test_record_bugs.py", "test_audit.py", "test_lying_server.py", "test_one_record_replies.py",
    "test_auditing_canary.py", "test_auditing_mechanism.py", "test_sums.py", "test_walls.py",
    "test_odd_paths.py", "test_student_cli.py", "test_own_network.py", "test_pages.py",
)  # fmt: skip

_BEGAN = pytest.StashKey[float]()
_USED = "processor seconds"
_TESTS = Path(__file__).resolve().parent
_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"
#: A file system in memory, where a sync costs nothing: processes are killed here, and no machine.
_MEMORY = Path("/dev/shm")  # noqa: S108 - private folders are made in it
_ROOM = 6 * 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-xdist keep our order, and files of tests in memory if there is room.

    Its own order begins with the files that have most tests.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
    if _MEMORY.is_dir():
        found = os.statvfs(_MEMORY)
        if found.f_bavail * found.f_frsize > _ROOM and not found.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("TMPDIR", str(_MEMORY))
            tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exempt modules and tests from garbage collection: they stay, and are a third of its work."""
    gc.disable()
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(config: pytest.Config) -> None:
    """Import this process's share of the files first, so that each file is compiled once and not by all."""
    of = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if of == 1 or config.args != config.getini("testpaths"):
        return
    ignored = {Path(path).resolve() for path in config.getoption("ignore") or ()}
    files = [
        path
        for path in sorted(_TESTS.rglob("test_*.py"))
        if ignored.isdisjoint((path, *path.parents))
    ]
    for path in files[int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw")) :: of]:
        _let_examples_take_their_time(path)
        # What cannot be imported is found, and said, as it is collected.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            name = path.relative_to(_TESTS.parent).with_suffix("")
            importlib.import_module(".".join(name.parts))


def pytest_pycollect_makemodule(module_path: Path) -> None:
    """Go on to import a file as usual, with no deadline for its examples."""
    _let_examples_take_their_time(module_path)


def _let_examples_take_their_time(path: Path) -> None:
    """Set no deadline for examples: the first one may import what is slow, on a busy machine.

    Before the import of their file, for a test keeps the settings that there were then.
    """
    if b"hypothesis" in path.read_bytes():  # else no test has examples, and it is slow to import
        from hypothesis import settings

        settings.register_profile("patient", deadline=None)
        settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, then those of campaigns of real processes, then the others."""
    # All commands of an app would be made anew for each that is run.
    for module, name in (("typer.testing", "_get_command"), ("pate.runtime.command", "program_of")):
        if module in sys.modules:
            called = vars(sys.modules[module])
            called[name] = functools.cache(called[name])
    rank = {name: at for at, name in enumerate(LONGEST)}
    if gone := set(rank) - {path.name for path in _TESTS.rglob("test_*.py")}:
        raise pytest.UsageError(f"the longest files name {', '.join(sorted(gone))}")
    items.sort(
        key=lambda item: (rank.get(item.path.name, len(rank)), "end_to_end" not in item.path.parts)
    )


# What a tier may take is stated in processor seconds, which a busy machine changes little.


def _used_s() -> float:
    """Processor seconds of this process and of all its children that have ended, however they were made."""
    used = sum(os.times()[:4])
    if (pid := _fork_server()) is not None:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


def _fork_server() -> int | None:
    """The process that commands are forked from, which nobody waits for; None: there is none."""
    module = sys.modules.get("multiprocessing.forkserver")
    pid: int | None = None if module is None else module._forkserver._forkserver_pid
    return pid if pid is not None and Path(f"/proc/{pid}/stat").exists() else None


def pytest_unconfigure() -> None:
    """End the process that commands are forked from, so that its seconds are among those of this one."""
    if (pid := _fork_server()) is not None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGAN] = _used_s()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "teardown":
        item.user_properties.append((_USED, _used_s() - item.stash[_BEGAN]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    used = {
        report.nodeid: float(seconds)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name == _USED
    }
    if len(used) > 100:  # else nobody asks
        terminalreporter.section("processor seconds")
        terminalreporter.line(f"{sum(used.values()):7.1f} of {len(used)} tests")
        for nodeid in sorted(used, key=used.__getitem__, reverse=True)[:15]:
            terminalreporter.line(f"{used[nodeid]:7.1f} {nodeid}")


@pytest.fixture(scope="session", autouse=True)
def _own_ports() -> None:
    """Let no two processes of tests choose one port: that of a server that was killed must be free again.

    Programs of the product choose above these.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports = list(range(10_000 + 500 * (worker % 20), 10_500 + 500 * (worker % 20)))
    began = secrets.randbelow(len(ports))
    child._ports = itertools.cycle(ports[began:] + ports[:began])


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real data sets; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("PATE_TEST_DATA", _BESIDE_THE_CHECKOUT))
    if not (folder / "mnist").is_dir():
        pytest.skip("PATE_TEST_DATA is not set: the real data sets are not here")
    return folder


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    """Three parties with trained teachers; each campaign has homes of its own."""
    from tests.support.world.commands import Homes

    return Homes.make(tmp_path_factory.mktemp("dealt"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of our own; tests that need it are skipped where it is not installed."""
    yield from running_cluster()
