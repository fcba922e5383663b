"""A child that was forked ahead is what a new process would be, and no more is forked than code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from pate.runtime import forked
from pate.runtime.child import ORPHANED, fork_ahead
from simulation.programs import is_alive
from tests.support.processes.programs import until

_DEADLINE_S = 30.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there children are forked")

#: What runs in the child; its import says in which process it was.
_PLAYED = """
import json, os, random, resource, secrets, signal, sys, threading, time
from pate.runtime.child import told
imported_in = os.getpid()
def reports():
    print(json.dumps({
        "imported here": imported_in == os.getpid(),
        "argv": sys.argv, "cwd": os.getcwd(), "environment": dict(os.environ),
        "session": os.getsid(0) == os.getpid(), "umask": os.umask(0o077),
        "files": [int(fd) for fd in os.listdir("/proc/self/fd")],
        "path": sys.path, "comm": open("/proc/self/comm").read().strip(),
        "threads": sorted(t.name for t in threading.enumerate()),
        "random": random.random(), "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    }))
def waits():
    open("told", "w").write(told())
    signal.pause()
def fails():
    print("a last word", file=sys.stderr)
    raise ValueError("as it happens")
def says_no():
    sys.exit(7)
"""


def command(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run ``script`` as a command would run, which may fork."""
    (tmp_path / "played.py").write_text(_PLAYED)
    (tmp_path / "started_from").mkdir(exist_ok=True)
    head = f"""
        import json, os, random, signal, sys, threading, time
        from pathlib import Path
        from pate.runtime import forked
        from pate.runtime.child import Child, fork_ahead
        forked._allowed.set()
        home = Path({str(tmp_path / "home")!r})
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(script)],
        cwd=tmp_path / "started_from",
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}",
            "FLWR_INTERNAL_GRPC_FLEET_API": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_S,
    )


def test_it_has_what_a_new_process_would_have(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        # A bare number: of an object Python 3.13 says at the child's end that its file is closed already.
        os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        fork_ahead("played:reports")
        here = random.random()
        child = Child("somebody", "played:reports", ["--port", "7"], home=home)
        assert child.ended(20)
        print(json.dumps({"code": child.exit_code, "random": here}))
        child.stop()
        """,
    )
    assert done.returncode == 0, done.stderr
    here = json.loads(done.stdout)
    assert here["code"] == 0
    home = tmp_path / "home"
    log = home / "somebody.log"
    found = json.loads(log.read_text())
    assert not found["imported here"]  # that is what it is for
    assert found["argv"] == ["played:reports", "--port", "7"]
    assert found["cwd"] == found["environment"]["FLWR_HOME"] == str(home)
    assert "FLWR_INTERNAL_GRPC_FLEET_API" not in found["environment"]
    assert found["session"]
    assert found["umask"] == 0o077
    assert found["sigterm"]
    assert found["comm"] == "somebody"
    assert found["threads"] == ["MainThread", "lifeline"]
    assert found["random"] != here["random"]
    assert "" not in found["path"]
    assert str(tmp_path / "started_from") not in found["path"]
    assert len(found["files"]) == 4  # three, and the folder that was listed
    assert log.stat().st_mode & 0o777 == 0o600


def test_what_is_told_later_reaches_it_and_it_is_stopped_as_any_other(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        fork_ahead("played:waits")
        child = Child("waiter", "played:waits", [], home=home)
        assert not child.ended(0.1) and child.running
        child.go("51442")
        while not (home / "told").exists() or not (home / "told").read_text():
            time.sleep(0.01)
        print((home / "told").read_text())
        child.stop()
        child.stop()
        print(child.exit_code, Path(f"/proc/{child.pid}").exists())
        """,
    )
    assert done.stdout.splitlines() == ["51442", "-15 False"], done.stderr


@pytest.mark.parametrize(("target", "code"), [("played:fails", "1"), ("played:says_no", "7")])
def test_its_end_is_that_of_a_program(tmp_path: Path, target: str, code: str) -> None:
    done = command(
        tmp_path,
        f"""
        try:
            fork_ahead({target!r})
            child = Child("child", {target!r}, [], home=home)
            assert child.ended(20)
            print(child.exit_code)
            print(child.last_words())
        finally:
            print("only the parent goes on" if home.exists() else "nothing")
        """,
    )
    assert done.stdout.splitlines()[0] == code, done.stderr
    if target == "played:fails":
        assert "ValueError: as it happens" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("when", ["waits for its order", "has begun"])
def test_it_ends_when_its_parent_is_killed(tmp_path: Path, when: str) -> None:
    begins = 'Child("waiter", "played:waits", [], home=home)' if when == "has begun" else ""
    done = command(
        tmp_path,
        f"""
        fork_ahead("played:waits")
        pid = forked._ahead["played:waits"].pid
        {begins}
        print(pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    until(lambda: not is_alive(int(done.stdout)), "it has ended")


def test_it_is_used_once_and_one_that_has_ended_is_not_used(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        fork_ahead("played:reports")
        ahead = forked._ahead["played:reports"].pid
        first = Child("first", "played:reports", [], home=home)
        second = Child("second", "played:reports", [], home=home)
        assert first.ended(20) and second.ended(20)
        print(first.pid == ahead, second.pid == ahead, second.exit_code)
        fork_ahead("played:reports")
        os.kill(forked._ahead["played:reports"].pid, signal.SIGKILL)
        forked._ahead["played:reports"].wait(20)
        third = Child("third", "played:reports", [], home=home)
        assert third.ended(20)
        print(third.exit_code, json.loads(third.log.read_text())["imported here"])
        """,
    )
    assert done.stdout.splitlines() == ["True False 0", "0 True"], done.stderr


def test_a_process_that_has_threads_does_not_fork(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        fork_ahead("played:reports")
        print(forked._ahead)
        child = Child("child", "played:reports", [], home=home)
        assert child.ended(20)
        print(json.loads(child.log.read_text())["imported here"])
        """,
    )
    assert done.stdout.splitlines() == ["{}", "True"], done.stderr


def test_only_a_command_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked"))
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # whatever ran here before
    assert not forked._allowed.is_set()
    fork_ahead("signal:pause")
    with pytest.raises(pytest.fail.Exception), forked.allowed():
        fork_ahead("signal:pause")
    fork_ahead("signal:pause")


def test_one_that_was_not_needed_ends_with_the_command(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        with forked.allowed():
            fork_ahead("played:waits")
            pid = forked._ahead["played:waits"].pid
        print(forked._ahead, Path(f"/proc/{pid}").exists())
        """,
    )
    assert done.stdout.splitlines() == ["{} False"], done.stderr


def test_a_parent_that_closes_the_pipe_ends_it(tmp_path: Path) -> None:
    done = command(
        tmp_path,
        """
        fork_ahead("played:waits")
        child = Child("waiter", "played:waits", [], home=home)
        child._process.stdin.close()
        assert child.ended(20)
        print(child.exit_code)
        """,
    )
    assert done.stdout.split() == [str(ORPHANED)], done.stderr
