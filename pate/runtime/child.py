"""Child processes that cannot outlive their parent.

A parent that is killed outright (``kill -9``, the memory killer) runs no clean-up, and a child
that it leaves behind keeps ports, memory and a node identity. So each child has the read end of a pipe
whose only write end is the parent's: when the parent ends, for any reason, the kernel closes the pipe,
and a thread in the child ends it. This needs no signals, no process groups and nothing specific to one
operating system. Only a process that the parent forks without an exec
(workers of ``multiprocessing``) shares its end of the pipe, and keeps the child while it lives.

The child is ``python -m pate.runtime.child module:function argument ...``: it loads the
function by name and calls it as its main program, with the arguments as its command line. If the
command has forked one ahead (:mod:`pate.runtime.forked`), it is that one, which has loaded it.

Every other Python child is started by this module, too: a program of ours as :func:`python` says, and what
takes foreign bytes apart by :func:`run_limited`. None picks up a module from the directory that it starts in,
nor does a process of simulated parties, which multiprocessing spawns.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import ipaddress
import itertools
import os
import queue
import resource
import secrets
import site
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pate.errors import DiskError, PortInUseError, ProcessError, UsageError
from pate.runtime import forked
from pate.runtime.forked import importing
from pate.runtime.home import open_private, private_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pate.runtime.forked import Forked

#: Addresses that only this machine reaches.
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
#: No telemetry, no update check, no package installation at run time; nor does the library by which
#: it reads JSON look through all installed packages for plugins, of which none is ours. Must be set
#: before the first import of flwr, and in every child process.
QUIET_FLOWER: Final[dict[str, str]] = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "RAY_USAGE_STATS_ENABLED": "0",
}
#: A party's default server.
LOCAL_SERVER: Final = "127.0.0.1:9092"
#: A student's default server.
LOCAL_STUDENT_SERVICE: Final = "127.0.0.1:9093"
#: Exit code of a child whose parent is gone.
ORPHANED: Final = 75
_STDIN: Final = 0
_LISTEN_BACKLOG: Final = 512
#: Ports that are tried first where any free one will do, and how many of them.
_PORTS: Final = range(20_000, 32_768)
_TRIES: Final = 20
#: In which order.
_ports: Iterator[int] = iter(lambda: secrets.choice(_PORTS), None)
#: Most characters of a log in an error message.
_LAST_LINES: Final = 12
_MOST_AT_ONCE: Final = 4096
#: Where our packages lie.
_OURS: Final = Path(__file__).resolve().parents[2]
#: All that a limited child gets of the environment: where Python and its libraries lie.
_FOR_PYTHON: Final = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")
#: First argument of one.
_LIMITED: Final = "--limited"
#: Files that it may have open, and the processor seconds in all, times those that are granted at first.
_MOST_OPEN, _GRANTS = 64, 10
#: In a child: the lines that its parent sent over the pipe.
_lines: Final[queue.SimpleQueue[bytes]] = queue.SimpleQueue()


def python(module: str, *arguments: object) -> list[str]:
    """Return the command line of ``python -m module arguments``.

    The directory that it starts in is no place for modules: whoever wrote its files would run code there.
    """
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def python_environment(inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment for :func:`python`: a checkout's modules are found, too."""
    environment = dict(os.environ if inherited is None else inherited)
    if str(_OURS) not in (*site.getsitepackages(), site.getusersitepackages()):
        others = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_OURS), others]))
    return environment


def run_limited(
    target: str, *arguments: object, seconds: int, memory: int, patience: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a function on foreign bytes in a process that has nothing of ours but them.

    It has an empty environment, an empty directory as its home, and no input. The kernel bounds its processor
    time, memory and open files, and lets it write no file and start no process (but as root). That is a bound
    on resources, not a sandbox: it runs as this user, who can read files and has a network.

    ``target``: ``module:function``; it is called without arguments, and prints its result;
    ``seconds``: of processor time, at first; see :func:`grant`; ``memory``: bytes of address space;
    ``patience``: seconds on the wall.
    """
    environment = python_environment({k: os.environ[k] for k in _FOR_PYTHON if k in os.environ})
    if site.ENABLE_USER_SITE:
        environment["PYTHONUSERBASE"] = site.getuserbase()
    environment |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        home = tempfile.TemporaryDirectory(prefix="pate-")
    except OSError as error:
        raise DiskError(f"{tempfile.gettempdir()} cannot be written: {error.strerror}") from error
    with home as folder:
        return subprocess.run(
            python("pate.runtime.child", _LIMITED, seconds, memory, target, *arguments),
            capture_output=True,
            check=False,
            cwd=folder,
            env={**environment, "HOME": folder, "TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            timeout=patience,
        )


def grant(seconds: int) -> None:
    """Let this process, a limited child, use so many seconds of processor time more, within its bound."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(time.process_time()) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (min(soft, most), most))


def _limit(seconds: int, memory: int) -> None:
    """Bound this process by the kernel, before it imports anything large."""
    for what, soft, most in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NPROC, 1, 1),
        (resource.RLIMIT_NOFILE, _MOST_OPEN, _MOST_OPEN),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds, seconds * _GRANTS),
    ):
        resource.setrlimit(what, (soft, most))


class Child:
    """A running child process and its end; its output is appended to the file ``log``."""

    def __init__(self, name: str, target: str, arguments: Sequence[str], *, home: Path) -> None:
        """Start ``target``, a ``module:function``, in ``home``; ``name`` is also that of its log."""
        self.name = name
        home = home.resolve()
        self.log = home / f"{name}.log"
        try:
            private_directory(home)
            output = open_private(self.log)
        except (OSError, DiskError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise DiskError(f"{self.log} cannot be written: {reason}") from error
        self._process: Forked | subprocess.Popen[bytes]
        with output:
            self._process = _forked(name, target, arguments, self.log) or subprocess.Popen(
                python("pate.runtime.child", target, *arguments),
                stdin=subprocess.PIPE,
                bufsize=0,  # unbuffered: a line is sent at once, or not at all
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=child_environment(home),
                # Ctrl-C is for the parent, which stops its children in order.
                start_new_session=True,
                # Its files, Flower's included, are readable only by this user.
                umask=0o077,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it still runs; one that does not is reaped by asking."""
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def ended(self, within: float) -> bool:
        """Wait up to ``within`` seconds and say whether it has ended (and is reaped)."""
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, patience: float = 8.0) -> None:
        """Ask it to end, insist after ``patience`` seconds, and reap it. Harmless if it has ended."""
        if self.running:
            self._process.terminate()
            if not self.ended(patience):
                self._process.kill()
                self._process.wait()
        # Only now: the closed pipe would end it at once, without its own clean-up.
        if self._process.stdin is not None:
            self._process.stdin.close()

    def go(self, line: str) -> None:
        """Send one line to a child that waits for it in :func:`told`; only once."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended, which its owner notices
                self._process.stdin.write(line.encode() + b"\n")

    def last_words(self) -> str:
        """Return the end of its log, for an error message."""
        try:
            with self.log.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - 8192))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_LAST_LINES:])

    def failure(self) -> ProcessError:
        """Return the error that says how it ended, with the end of its log."""
        return ProcessError(
            f"{self.name} ended with exit code {self.exit_code}; its log is {self.log}:"
        ).followed_by(self.last_words())


def child_environment(home: Path, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child that runs Flower with its own ``home``.

    Flower's variables of the caller's shell are not passed on: one of them opens a second, unfiltered port.
    """
    source = os.environ if inherited is None else inherited
    environment = {k: v for k, v in source.items() if not k.startswith("FLWR_")}
    environment.update(QUIET_FLOWER)
    environment["FLWR_HOME"] = str(home)
    environment["PYTHONUNBUFFERED"] = "1"
    # Flower starts its helpers by name: they must be those of this installation.
    scripts = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join(filter(None, [scripts, source.get("PATH", "")]))
    # Connections to this machine use no proxy.
    for name in ("NO_PROXY", "no_proxy"):
        direct = [source.get(name, ""), *sorted(LOOPBACK)]
        environment[name] = ",".join(filter(None, direct))
    return environment


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host; an address of IPv6 may be in brackets.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.2", "[::1]", "10.0.0.1", "pate.example.org")]
    [True, True, True, False, False]
    """
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(bare.split("%", maxsplit=1)[0]).is_loopback
    except ValueError:
        return bare == "localhost"


def proxy_variable(*names: str) -> tuple[str, str] | None:
    """Return the first of these variables that names a proxy, and ``host:port`` without a password."""
    for name in names:
        if value := os.environ.get(name):
            with contextlib.suppress(ValueError):
                parts = urlsplit(value if "://" in value else f"http://{value}")
                return name, f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    return None


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port of ``host``, below those that systems give to outgoing connections."""
    for port in itertools.islice(_ports, _TRIES):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def joined(host: str, port: int) -> str:
    """Return ``host:port``, or ``[host]:port`` for an address of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` and ``port`` (0: any free one)."""
    if not 0 <= port < 2**16:
        raise UsageError(f"{port} is no port; ports go from 0 to 65535")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(f"{host}:{port} is no address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # A port that was in use a minute ago is free; on Windows the same option would steal.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"port {port} of {host} is taken; stop what uses it, or choose another with --port"
            ) from error
        raise UsageError(f"cannot listen on {host}:{port}: {error}") from error
    return listener


def require_free_port(host: str, port: int) -> None:
    """Raise unless this process could listen on ``host`` and ``port`` now."""
    listen(host, port).close()


def told() -> str:
    """Wait, in a child, for the line of :meth:`Child.go`, and return it."""
    return _lines.get().decode()


def fork_ahead(target: str) -> None:
    """Fork the next :class:`Child` of ``target``, if possible: :mod:`pate.runtime.forked`."""
    forked.fork_ahead(target, _first_line)


def _first_line() -> str:
    """Watch the parent from a child, and wait for its first line."""
    threading.Thread(target=_die_with_parent, name="lifeline", daemon=True).start()
    return told()


def _forked(name: str, target: str, arguments: Sequence[str], log: Path) -> Forked | None:
    """Return the child that was forked ahead as ``target``, which has begun; None if there is none."""
    child = forked.forked_ahead(target)
    if child is None:
        return None
    home = log.parent
    try:
        child.begin(
            name, target, arguments, log=log, home=home, environment=child_environment(home)
        )
    except OSError:  # it has ended
        child.wait()
        return None
    return child


def _die_with_parent() -> None:
    """Block until the parent's end of the pipe is closed, then end this process."""
    line = bytearray()
    while True:
        try:
            said = os.read(_STDIN, _MOST_AT_ONCE)
        except InterruptedError:
            continue
        except OSError:
            break
        if not said:
            break
        *whole, rest = (line + said).split(b"\n")
        for each in whole:
            _lines.put(bytes(each))
        line = rest
    os._exit(ORPHANED)


def main(arguments: Sequence[str]) -> None:
    """Run ``module:function`` of the first argument as this process's main program."""
    limited = arguments[0] == _LIMITED
    if limited:
        _limit(int(arguments[1]), int(arguments[2]))
        arguments = arguments[3:]
    target, *rest = arguments
    module, _, function = target.partition(":")
    if not limited:
        threading.Thread(target=_die_with_parent, name="lifeline", daemon=True).start()
    sys.argv = [target, *rest]
    with importing():
        loaded = importlib.import_module(module)
    forked.through(getattr(loaded, function))


if __name__ == "__main__":
    # As the importable module, so that other modules see the lines sent to this process.
    importlib.import_module("pate.runtime.child").main(sys.argv[1:])
