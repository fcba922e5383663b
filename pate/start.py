"""The first instructions of a command, so that a stop is one line and one exit code from then on.

Only modules that the interpreter has loaded by itself are imported here: the handlers are in place
before the imports of a command, which take seconds on a busy machine.

Three rules say what Ctrl-C and SIGTERM do, in this order:

* while a command starts (its modules are imported, its command line is read) and after its end, they
  end the process at once: there is nothing to clean up, and waiting children end with their parent;
* during another import they wait for its end, at most :data:`LONGEST_WAIT_S`: modules in C turn an
  interrupt into errors of their own;
* else they raise KeyboardInterrupt, which passes through every ``finally``. A library may swallow it: then
  it is raised again, until the command ends.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time

TYPE_CHECKING = False  # importing it from typing takes longer than the rest of this module
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final, NoReturn

#: Exit code of a stopped process, as reported by a shell after Ctrl-C.
INTERRUPTED: Final = 130
#: Most seconds that a stop waits for the end of an import.
LONGEST_WAIT_S: Final = 5.0
_POLL_S: Final = 0.02
#: Seconds after which an interrupt that nobody handles any more is raised again.
_AGAIN_S: Final = 1.0
_IMPORT: Final = "<frozen importlib._bootstrap>"
_STDERR: Final = 2


class Stops:
    """What SIGINT and SIGTERM do to this process."""

    def __init__(self) -> None:
        self.at_once = False  # whether a stop ends the process at once
        self.asked = False  # whether a stop has raised KeyboardInterrupt
        # the party that this process is of, for the line that it ends with; "" if none
        self.who = ""
        self._name = ""
        self._code: int | None = None
        self._since: float | None = None

    def begin(self, name: str) -> None:
        """Install the handlers, for the command ``name``; a second time nothing happens.

        SIGINT that the parent has set to be ignored stays so.
        """
        if self.begun:
            return
        self._name, self.at_once = name, True
        signal.signal(signal.SIGTERM, self._stop)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._stop)
        # An interrupt cannot leave a finalizer: it is raised again, and Python's own report is no news.
        hook = sys.unraisablehook
        sys.unraisablehook = lambda told: None if told.exc_type is KeyboardInterrupt else hook(told)

    @property
    def begun(self) -> bool:
        """Whether the handlers are in place."""
        return bool(self._name)

    def end(self, code: int) -> None:
        """End the process with ``code``, without a line, if a stop comes from now on."""
        self._code, self.at_once = code, True
        if self.asked:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.at_once:
            self._exit()
        if number == signal.SIGALRM and self.asked and _is_handled():
            self._look_again(_AGAIN_S)
            return
        now = time.monotonic()
        self._since = self._since or now
        if now < self._since + LONGEST_WAIT_S and _imports(frame):
            self._look_again(_POLL_S)
            return
        self._since, self.asked = None, True
        self._look_again(_AGAIN_S)
        raise KeyboardInterrupt

    def _look_again(self, seconds: float) -> None:
        signal.signal(signal.SIGALRM, self._stop)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def _exit(self) -> NoReturn:
        """End at once: the one line, and no clean-up of the interpreter."""
        try:
            if self._code is None:
                os.write(_STDERR, self._line().encode())
        finally:
            os._exit(INTERRUPTED if self._code is None else self._code)

    def _line(self) -> str:
        """Return the line of :mod:`pate.runtime.command`, whose modules may not be imported yet."""
        if not _in_json():
            return f"{self._name}: stopped\n"
        now = time.time()
        zone = time.strftime("%z", time.localtime(now))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        return (
            f'{{"time": "{stamp}.{int(now * 1000) % 1000:03}{zone[:3]}:{zone[3:]}", "level": "info", '
            f'"program": "{self._name}", "text": "stopped", "kind": "Interrupted", '
            f'"exit_code": {INTERRUPTED}}}\n'
        )


#: Those of this process.
STOPS: Final = Stops()


def start(name: str, module: str) -> NoReturn:
    """Run a command from its first instruction; its ``__main__`` imports nothing else.

    ``module``: with its function ``main``.
    """
    if os.name != "posix":  # no locks, signals and modes of files as the programs need them
        print(  # noqa: T201 - nothing of ours can be imported
            f"{name}: this system is not supported: on Windows use WSL or a container",
            file=sys.stderr,
        )
        sys.exit(2)
    STOPS.begin(name)
    importlib.import_module(module).main()
    sys.exit(0)


def _imports(frame: FrameType | None) -> bool:
    """Return whether the interrupted code is part of an import."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT:
            return True
        frame = frame.f_back
    return False


def _is_handled() -> bool:
    """Return whether a KeyboardInterrupt is on its way up, through the code that was interrupted."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _in_json() -> bool:
    """Return whether lines are JSON objects, before the command line is read."""
    given = " ".join(sys.argv[1:])
    chosen = "--log json" in given or "--log=json" in given
    return chosen or os.environ.get("PATE_LOG") == "json"
