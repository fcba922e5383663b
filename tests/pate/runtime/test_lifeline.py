"""Children end with their parent, however it ends, and get an environment that is theirs."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pate.errors import DiskError, PortInUseError, ProcessError, UsageError
from pate.runtime.child import (
    ORPHANED,
    Child,
    child_environment,
    free_port,
    listen,
    require_free_port,
    run_limited,
)
from simulation.programs import is_alive
from tests.support.processes.programs import until

_DEADLINE_S = 20.0


def sleeper(home: Path) -> Child:
    """A child that would run for an hour; ``time.sleep`` wants a number, so it calls this."""
    return Child("sleeper", "signal:pause", [], home=home)


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from pate.runtime.child import Child
        child = Child("sleeper", "signal:pause", [], home=Path({str(tmp_path)!r}))
        print(child.pid, flush=True)
        time.sleep(3600)
    """)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until(lambda: not is_alive(pid), "the child has ended")


def test_a_child_ends_when_the_pipe_is_closed(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert child.ended(_DEADLINE_S)
    assert child.exit_code == ORPHANED


def test_stop_reaps_a_child_and_may_be_called_again(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    assert child.running
    assert not child.ended(0.05)
    child.stop()
    child.stop()
    assert child.exit_code == -signal.SIGTERM
    assert not Path(f"/proc/{child.pid}").exists()


def test_a_child_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal\n"
        "def main():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    print('ready', flush=True)\n"
        "    while True: signal.pause()\n"
    )
    child = with_module(tmp_path, "stubborn:main")
    until(lambda: "ready" in child.last_words(), "it is ready")
    child.stop(patience=0.2)
    assert child.exit_code == -signal.SIGKILL


def with_module(folder: Path, target: str, *arguments: str) -> Child:
    """Start a child that can import from ``folder``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        return Child("child", target, arguments, home=folder / "home")


def test_a_child_has_its_own_home_and_command_line(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(
        "import json, os, sys\n"
        "def main():\n"
        "    print(json.dumps([sys.argv, os.getcwd(), os.environ['FLWR_HOME']]))\n"
    )
    child = with_module(tmp_path, "told:main", "--port", "7")
    assert child.ended(_DEADLINE_S)
    child.stop()
    home = str(tmp_path / "home")
    assert json.loads(child.last_words()) == [["told:main", "--port", "7"], home, home]


def test_a_child_imports_nothing_from_where_it_starts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "planted.py").write_text("def main(): print('planted code ran')\n")
    child = Child("child", "planted:main", [], home=home)
    assert child.ended(_DEADLINE_S)
    child.stop()
    assert child.exit_code == 1
    assert "No module named 'planted'" in child.last_words()


def test_a_failure_says_how_it_ended_and_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def main():\n    raise SystemExit('no such option')\n")
    child = with_module(tmp_path, "broken:main")
    assert child.ended(_DEADLINE_S)
    child.stop()
    error = child.failure()
    assert isinstance(error, ProcessError)
    assert "exit code 1" in str(error)
    assert "no such option" in "\n".join(error.__notes__)


def test_a_child_that_fails_ends_whatever_threads_it_has_left(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(
        "import threading\n"
        "def main():\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    raise KeyboardInterrupt\n"
    )
    child = with_module(tmp_path, "stuck:main")
    try:
        assert child.ended(_DEADLINE_S)
    finally:
        child.stop()
    assert child.exit_code == 1
    assert "KeyboardInterrupt" in child.last_words()


def test_nothing_of_the_shell_reaches_flower() -> None:
    home = Path("/srv/party")
    inherited = {"FLWR_INTERNAL_GRPC_FLEET_API": "1", "PATH": "/bin", "NO_PROXY": "intern"}
    environment = child_environment(home, inherited)
    assert "FLWR_INTERNAL_GRPC_FLEET_API" not in environment
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_HOME"] == "/srv/party"
    assert environment["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]
    assert environment["NO_PROXY"].split(",") == ["intern", "127.0.0.1", "::1", "localhost"]


def show() -> None:
    """Print, as a child, what this process has."""
    try:
        Path("written").write_text("one byte or more")
        wrote = True
    except OSError:
        wrote = False
    limits = (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
    said = {
        "environment": dict(os.environ), "home": [*map(str, Path(os.environ["HOME"]).iterdir())],
        "here": str(Path.cwd()), "arguments": sys.argv[1:], "wrote": wrote,
        "limits": [resource.getrlimit(each) for each in limits],
    }  # fmt: skip
    sys.stdout.write(json.dumps(said))


def test_a_limited_child_has_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('code of the folder was run')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "of the shell")
    done = run_limited(f"{__name__}:show", "a b", seconds=20, memory=4 << 30, patience=200)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    kept = {"PYTHONPATH", "PYTHONUSERBASE", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "HOME",
            "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME", "LC_CTYPE"}  # fmt: skip
    assert said["environment"].keys() <= kept
    assert said["here"] == said["environment"]["HOME"]
    assert not Path(said["here"]).exists()
    assert (said["home"], said["wrote"]) == ([said["here"] + "/written"], False)
    assert said["arguments"] == ["a b"]
    assert said["limits"] == [[20, 200], [4 << 30, 4 << 30], [64, 64]]


def test_a_home_that_cannot_be_written_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="cannot be written"):
        Child("child", "signal:pause", [], home=tmp_path / "file")


def test_a_taken_port_is_said_to_be_taken() -> None:
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            require_free_port("127.0.0.1", port)
    require_free_port("127.0.0.1", port)


def test_a_free_port_can_be_listened_on() -> None:
    require_free_port("127.0.0.1", free_port())


@pytest.mark.parametrize(("host", "port"), [("203.0.113.7", 0), ("127.0.0.1", 70000)])
def test_an_address_that_is_not_ours_is_a_usage_error(host: str, port: int) -> None:
    with pytest.raises(UsageError):
        listen(host, port)


def test_a_child_can_be_told_when_to_go_on_and_one_line(tmp_path: Path) -> None:
    (tmp_path / "waiter.py").write_text(
        "from pathlib import Path\n"
        "from pate.runtime.child import told\n"
        "def main():\n"
        "    print('ready', flush=True)\n"
        "    Path('told').write_text(told())\n"
    )
    child = with_module(tmp_path, "waiter:main")
    try:
        until(lambda: "ready" in child.last_words(), "it is ready")
        assert not child.ended(0.2)
        child.go("51442")
        assert child.ended(_DEADLINE_S)
        assert (tmp_path / "home" / "told").read_text() == "51442"
        child.go("it has ended")  # which is no error
    finally:
        child.stop()
