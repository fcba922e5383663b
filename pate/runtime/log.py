"""Log lines of a command on the standard error: text, or by ``--log`` or ``PATE_LOG`` a JSON object each."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType

#: The environment variable that chooses the format.
LOG: Final = "PATE_LOG"
#: The formats: text for people, and JSON.
FORMS: Final = ("lines", "json")
#: Log levels.
LEVELS: Final = ("info", "warning", "error")


@dataclass(frozen=True)
class Line:
    """One log line."""

    time: datetime
    program: str  # such as ``pate-server``
    text: str
    level: str = "info"  # ``info``, ``warning`` or ``error``
    party: str = ""

    def __post_init__(self) -> None:
        if self.time.tzinfo is None:
            raise ValueError("the time of a line has no time zone")
        if self.level not in LEVELS:
            raise ValueError(f"level is {self.level!r}, possible are {', '.join(LEVELS)}")

    @classmethod
    def now(cls, program: str, text: str, level: str = "info", party: str = "") -> Line:
        """Return a line with the current time."""
        return cls(datetime.now(UTC).astimezone(), program, text, level, party)

    def to_json(self, **more: object) -> str:
        """Return the line as a JSON object on one line, in ASCII, with further fields.

        >>> Line(datetime(2026, 1, 2, tzinfo=UTC), "pate", "hello").to_json()
        '{"time": "2026-01-02T00:00:00.000+00:00", "level": "info", "program": "pate", "text": "hello"}'
        """
        fields = {
            "time": self.time.isoformat(timespec="milliseconds"),
            "level": self.level,
            "program": self.program,
            **({"party": self.party} if self.party else {}),
            "text": self.text,
        }
        # ASCII: a terminal's or a pipe's encoding then cannot break it.
        return json.dumps(fields | more, allow_nan=False)


def in_json() -> bool:
    """Return whether lines are printed as JSON."""
    return os.environ.get(LOG) == "json"


def print_line(line: Line, **more: object) -> None:
    """Print a line as JSON on the standard error, atomically if several threads print."""
    sys.stderr.write(line.to_json(**more) + "\n")
    sys.stderr.flush()


def everything_in_json(program: str) -> None:
    """Print the output of other code as JSON, too: logging, warnings, and unexpected errors."""
    root = logging.getLogger()
    if not any(isinstance(handler, _JsonHandler) for handler in root.handlers):
        root.addHandler(_JsonHandler(program))
    logging.captureWarnings(True)

    def tell(error: BaseException | None, trace: TracebackType | None, **more: object) -> None:
        name = type(error).__name__
        text = "".join(traceback.format_exception(error)) if trace is not None else ""
        line = Line.now(program, f"{name}: {error}", "error")
        print_line(line, kind=name, traceback=text, **more)

    def of_program(
        _: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        tell(error, trace, exit_code=1)

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            tell(args.exc_value, args.exc_traceback)

    sys.excepthook = of_program
    threading.excepthook = of_thread


class _JsonHandler(logging.Handler):
    """Prints what libraries log, from warnings on."""

    def __init__(self, program: str) -> None:
        super().__init__(logging.WARNING)
        self._program = program

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        more: dict[str, object] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            more["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        when = datetime.fromtimestamp(record.created, UTC).astimezone()
        try:
            print_line(Line(when, self._program, record.getMessage(), level), **more)
        except Exception:  # noqa: BLE001 - an unprintable record must not end the program
            self.handleError(record)
