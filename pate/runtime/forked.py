"""Children forked from a command before it has private data, so that modules are imported once.

A party and its SuperNode, and a server and its SuperLink, need most of the same modules, and importing
them takes most of the time of a short campaign. So a starting command may :func:`fork_ahead`: it
imports the child's target and forks, and the child waits until :class:`pate.runtime.child.Child` sends
its arguments. If there is no such child, or it was used, a new process is started.

A fork copies the whole process, so it is done only while that is nothing but code: by a command, before
it has read a file, opened a connection or started a thread. The child closes all its files, and
receives from its parent the arguments and environment of a new process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pate.foreign import json_value
from pate.start import STOPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: Signals that stop a command.
_STOPS: Final = frozenset({signal.SIGINT, signal.SIGTERM})
#: Most bytes of a thread's or process's name.
_LONGEST_NAME: Final = 15
#: The waiting children, by their target.
_ahead: Final[dict[str, Forked]] = {}
_allowed: Final = threading.Event()


class Forked:
    """The parent's end of a forked child, with the used interface of :class:`subprocess.Popen`."""

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self._code: int | None = None
        self._lock = threading.Lock()

    def begin(
        self,
        name: str,
        target: str,  # ``module:function``
        arguments: Sequence[str],
        *,
        log: Path,  # the existing file that its output is appended to
        home: Path,
        environment: Mapping[str, str],
    ) -> None:
        """Send the child its command, as the arguments of a new process."""
        order = {
            "name": name, "arguments": [target, *arguments], "log": str(log), "home": str(home),
            "environment": dict(environment),
        }  # fmt: skip
        left = json.dumps(order).encode() + b"\n"
        while left and self.stdin is not None:
            left = left[self.stdin.write(left) :]

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code."""
        if (code := self.poll()) is not None:
            return code
        end = os.pidfd_open(self.pid)
        try:
            ended = select.poll()
            ended.register(end, select.POLLIN)
            ended.poll(None if timeout is None else max(0.0, timeout * 1000))
        finally:
            os.close(end)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def discard(self) -> None:
        """Kill and reap an unused child."""
        if self.stdin is not None:
            self.stdin.close()
        self.kill()
        self.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # its id is not reused until it is reaped
            os.kill(self.pid, number)


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Allow this process to fork within the block: it is a command's own, without foreign code."""
    _allowed.set()
    try:
        yield
    finally:
        _allowed.clear()
        for child in _ahead.values():
            child.discard()
        _ahead.clear()


def fork_ahead(target: str, lifeline: Callable[[], str]) -> None:
    """Fork a child for ``target``, if this process may be forked.

    In the child this does not return: it raises SystemExit when ``target`` has returned, so that the
    interpreter ends as after any program.

    ``target``: ``module:function``; it is imported here; ``lifeline``: starts to watch the parent,
    in the child, and returns the parent's first line.
    """
    module, _, function = target.partition(":")
    if sys.platform != "linux" or not _allowed.is_set() or threading.active_count() != 1:
        return
    with importing():
        run = getattr(importlib.import_module(module), function)
    if threading.active_count() != 1:  # a library started a thread, which the child would lack
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    read, write = os.pipe()
    pid = -1
    # A stop meanwhile is for the parent.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        if pid := os.fork():
            os.close(read)
            _ahead[target] = Forked(pid, os.fdopen(write, "wb", buffering=0))
            return
    finally:
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)

    def become_and_run() -> None:
        _become(read, lifeline)
        run()

    through(become_and_run)
    raise SystemExit(0)


def through(run: Callable[[], object]) -> None:
    """Run a child's main program. One that fails ends at once, even with running threads.

    Two threads of Flower that are refused at once each interrupt the process. The second interrupt ends the
    clean-up of the first, and threads that it would have stopped keep the process alive.
    """
    try:
        run()
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001 - as the interpreter does at the end of a program
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def forked_ahead(target: str) -> Forked | None:
    """Return the waiting child for ``target``, once; None if there is none."""
    child = _ahead.pop(target, None)
    return child if child is not None and child.poll() is None else None


def _become(pipe: int, lifeline: Callable[[], str]) -> None:
    """Release all of the parent's resources, wait for its command, and run it."""
    # Ctrl-C is for the parent.
    os.setsid()
    os.umask(0o077)
    _ahead.clear()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # drops one that is pending
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(pipe, _STDIN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, _STDOUT)
    os.dup2(nowhere, _STDERR)
    for number in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if number > _STDERR:
            with contextlib.suppress(OSError):  # the descriptor that listed them is closed
                os.close(number)
    _forget_log()
    if not sys.flags.safe_path:
        del sys.path[0]  # the parent's working directory
    order = json_value(lifeline())
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    os.dup2(log, _STDOUT)
    os.dup2(log, _STDERR)
    os.close(log)
    os.chdir(order["home"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["arguments"]
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:  # noqa: PTH123
        comm.write(order["name"][:_LONGEST_NAME])


def _forget_log() -> None:
    """Remove the parent's log handlers, which print its name and format."""
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]


#: Number of new modules from which on freezing them pays off.
_MANY: Final = 100


@contextmanager
def importing() -> Iterator[None]:
    """Import a program's modules without the garbage collector; a stop ends the process at once."""
    before, was_on, at_once = len(sys.modules), gc.isenabled(), STOPS.at_once
    gc.disable()
    STOPS.at_once = STOPS.begun
    try:
        yield
    finally:
        STOPS.at_once = at_once
        if len(sys.modules) - before > _MANY:
            gc.freeze()
        if was_on:
            gc.enable()
