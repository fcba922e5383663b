"""Children that are forked from a command that has nothing private yet, so that both import once.

A party and its SuperNode, and a server and its SuperLink, need most of the same modules, and to import
them is most of what a short campaign costs. So a command that is about to begin may :func:`fork_ahead`:
it imports what the child runs, forks, and the child waits until :class:`pate.runtime.child.Child`
says what it is to be. A child that is not there, or was used, is started anew from nothing.

A fork copies all that a process has, so it is done only where that is nothing but code: by a command,
before it has read a file, opened a connection or begun a thread. The child closes all files that it
has, and gets from its parent what a new process would be started with.
"""

from __future__ import annotations

import contextlib
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
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pate.runtime.imports import importing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_STDIN, _STDOUT, _STDERR = 0, 1, 2
#: A name of a thread or process has so many bytes at most.
_LONGEST_NAME: Final = 15
#: The child that waits to become a target, by that target.
_ahead: Final[dict[str, Forked]] = {}
_allowed: Final = threading.Event()


class Forked:
    """The parent's end of a forked child; it has what is used of :class:`subprocess.Popen`.

    Attributes:
        pid: its process id.
        stdin: the pipe that keeps it alive.
    """

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = stdin
        self._code: int | None = None
        self._lock = threading.Lock()

    def begin(
        self,
        name: str,
        target: str,
        arguments: Sequence[str],
        *,
        log: Path,
        home: Path,
        environment: Mapping[str, str],
    ) -> None:
        """Say what the child is to be: as the arguments of a new process would.

        Args:
            name: what it is called in a list of processes.
            target: ``module:function``.
            arguments: its command line.
            log: the file that its output is appended to, which is there.
            home: its working directory.
            environment: all of its environment.

        Raises:
            OSError: if it has ended.
        """
        order = {
            "name": name,
            "arguments": [target, *arguments],
            "log": str(log),
            "home": str(home),
            "environment": dict(environment),
        }
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
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: if it runs for ``timeout`` seconds more.
        """
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
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self._signal(signal.SIGKILL)

    def discard(self) -> None:
        """End it, and reap it: nobody needs it."""
        if self.stdin is not None:
            self.stdin.close()
        self.kill()
        self.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:  # until it is reaped its id is its own
            os.kill(self.pid, number)


@contextlib.contextmanager
def allowed() -> Iterator[None]:
    """Let this process fork meanwhile: it is a command's own, and nobody else's code runs in it."""
    _allowed.set()
    try:
        yield
    finally:
        _allowed.clear()
        for child in _ahead.values():
            child.discard()
        _ahead.clear()


def fork_ahead(target: str, lifeline: Callable[[], str]) -> None:
    """Fork the child that is to be ``target``, if this is a place where that can be done.

    In the child this does not return: it raises SystemExit when ``target`` is through, so that the
    interpreter ends as it does after any program.

    Args:
        target: ``module:function``; it is imported here.
        lifeline: begins to watch, in the child, over the parent, and returns the parent's first line.
    """
    module, _, function = target.partition(":")
    if sys.platform != "linux" or not _allowed.is_set() or threading.active_count() != 1:
        return
    with importing():
        run = getattr(importlib.import_module(module), function)
    if threading.active_count() != 1:  # a library began a thread: it would not be in the child
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    read, write = os.pipe()
    if pid := os.fork():
        os.close(read)
        _ahead[target] = Forked(pid, os.fdopen(write, "wb", buffering=0))
        return

    def become_and_run() -> None:
        _become(read, lifeline)
        run()

    through(become_and_run)
    raise SystemExit(0)


def through(run: Callable[[], object]) -> None:
    """Run a child's main program. One that fails ends at once, whatever threads it has left.

    Two threads of Flower that are refused at the same moment each interrupt their process; the second
    interrupt ends the first one's clean-up, and threads that nobody stops any more would keep it.
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
    """Return the child that waits to be ``target``, once; None if there is none."""
    child = _ahead.pop(target, None)
    return child if child is not None and child.poll() is None else None


def _become(pipe: int, lifeline: Callable[[], str]) -> None:
    """Leave all behind that is the parent's, wait for its order, and become that."""
    # Ctrl-C is for the parent.
    os.setsid()
    os.umask(0o077)
    _ahead.clear()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(pipe, _STDIN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, _STDOUT)
    os.dup2(nowhere, _STDERR)
    for number in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if number > _STDERR:
            with contextlib.suppress(OSError):  # the one that listed them is closed
                os.close(number)
    _forget_log()
    if not sys.flags.safe_path:
        del sys.path[0]  # the directory that the parent was started from
    order = json.loads(lifeline())
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
    """Say nothing in the name and the form of the parent."""
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
    logging.captureWarnings(False)
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
