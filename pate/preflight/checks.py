"""Checks before a start: concurrent, each with a timeout, reported in order; nothing is changed.

A check is a step of a start, or what a start would meet later. Whatever fails is collected: the other checks
go on. Output has one line for each finding; coloured and folded on a terminal, plain in a pipe.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pate.errors import PateError, UndecidedError
from pate.printable import number_of, printable
from pate.runtime.command import print_json
from pate.runtime.screen import Display

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

T = TypeVar("T")

#: Longest single wait of the main thread, in seconds.
_LOOK_S: Final = 1.0


class Status(StrEnum):
    """The status of a check.

    ``SKIPPED``: its subject, or the means to check it, is missing. ``UNKNOWN``: it was not done in time.
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class Skipped(Exception):  # noqa: N818 - not an error: there is nothing to check
    """Raised by a check without a subject; the text says why, and what would change that."""


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    status: Status
    text: str  # one line, for the screen of the operator
    to_do: str = ""  # the remedy, or empty if none is needed or the text has it
    # the error that a start would end with; only for ``FAILED``
    kind: type[PateError] | None = None
    lines: tuple[str, ...] = ()  # details only for the screen of the operator; not in the JSON

    def __post_init__(self) -> None:
        if (self.status is Status.FAILED) != (self.kind is not None):
            raise ValueError("a failure, and nothing else, has a kind of error")
        # Names of servers and files may contain control characters.
        object.__setattr__(self, "text", one_line(self.text))
        object.__setattr__(self, "to_do", one_line(self.to_do))

    @classmethod
    def ok(cls, text: str) -> Self:
        """The check passed."""
        return cls(Status.OK, text)

    @classmethod
    def skipped(cls, text: str) -> Self:
        """Nothing was checked; ``text`` says why, and what would change that."""
        return cls(Status.SKIPPED, text)

    @classmethod
    def warning(cls, text: str, to_do: str) -> Self:
        """A start would work, but may fail later."""
        return cls(Status.WARNING, text, to_do)

    @classmethod
    def unknown(cls, text: str, to_do: str) -> Self:
        """Nothing was found out: whether a start would work is not known."""
        return cls(Status.UNKNOWN, text, to_do)

    @classmethod
    def failed(cls, kind: type[PateError], text: str, to_do: str = "") -> Self:
        """A start would end with an error of this kind."""
        return cls(Status.FAILED, text, to_do, kind)


def one_line(text: str) -> str:
    r"""Return ``text`` on one line, with control characters as escapes.

    >>> one_line("two\nlines \x1b[31mred")
    'two lines \\x1b[31mred'
    """
    return printable(" ".join(text.split()))


def days_left(when: dt.datetime, now: dt.datetime) -> str:
    """Return the time until then, in words."""
    days = (when - now).days
    return f"{number_of(days, 'day')} left"


class Check(NamedTuple):
    """One check."""

    name: str
    # runs the check and returns its finding, or several in their order; raises one of our errors on
    # failure
    look: Callable[[], Finding | Sequence[Finding]]
    seconds: float  # timeout, from the start of all checks
    # the kind of failure on a timeout; None: the finding is unknown
    late: type[PateError] | None = None


class Result(NamedTuple):
    """A check and its finding."""

    group: str
    name: str
    finding: Finding


class Report(NamedTuple):
    """The findings of all checks, in order."""

    results: tuple[Result, ...]

    def number(self, status: Status) -> int:
        """Return the number of checks with this status."""
        return sum(result.finding.status is status for result in self.results)

    @property
    def first_failure(self) -> Result | None:
        """The first check that failed, or None."""
        return next((r for r in self.results if r.finding.status is Status.FAILED), None)

    @property
    def exit_code(self) -> int:
        """The code of the first failure's kind; else, if a finding is unknown, of that; else 0."""
        first = self.first_failure
        if first is not None and first.finding.kind is not None:
            return first.finding.kind.exit_code
        return UndecidedError.exit_code if self.number(Status.UNKNOWN) else 0

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return {
            "ready": self.exit_code == 0,
            "exit_code": self.exit_code,
            "counts": {status.value: self.number(status) for status in Status},
            "checks": [
                {
                    "group": group,
                    "name": name,
                    "status": found.status.value,
                    "text": found.text,
                    "to_do": found.to_do or None,
                    "error": None if found.kind is None else found.kind.__name__,
                    "exit_code": 0 if found.kind is None else found.kind.exit_code,
                }
                for group, name, found in self.results
            ],
        }


def begin(work: Callable[[], T]) -> Future[T]:
    """Start ``work`` in its own thread, and return a future of its result or error.

    Unlike an executor's thread it does not delay the end of the process: a check that hangs, for
    example on a dead network disk, must not keep the command from ending.
    """
    made: Future[T] = Future()

    def run() -> None:
        try:
            made.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again to the reader of the result
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return made


def needed(work: Future[T], without: str) -> T:
    """Return the result of :func:`begin`, which several checks may use.

    ``without``: why a check is skipped if the work failed; another check reports the fault.
    """
    try:
        return work.result()
    except PateError:
        raise Skipped(without) from None


def run_checks(
    groups: Mapping[str, Sequence[Check]], show: Callable[[Result], None] = lambda _: None
) -> Report:
    """Run checks concurrently, and return their findings.

    ``groups``: checks by their heading, in display order; ``show``: called with each result, in
    order, as soon as it and all before it are ready.
    """
    began = time.monotonic()
    started = [
        (group, check, begin(partial(_find, check)))
        for group, checks in groups.items()
        for check in checks
    ]
    results = []
    for group, check, found in started:
        for finding in _found_by(began + check.seconds, found) or [_late(check)]:
            results.append(Result(group, check.name, finding))
            show(results[-1])
    return Report(tuple(results))


def _found_by(deadline: float, found: Future[Sequence[Finding]]) -> Sequence[Finding]:
    """Return the findings of a check, none if there are none by ``deadline``.

    It looks once a second: a signal that arrives just as CPython begins to wait for a lock is noticed
    only when that wait is over, so one long wait could miss Ctrl-C for minutes.
    """
    while True:
        left = deadline - time.monotonic()
        try:
            return found.result(min(max(0.0, left), _LOOK_S))
        except TimeoutError:
            if left <= 0:
                return ()


def _find(check: Check) -> Sequence[Finding]:
    try:
        found = check.look()
    except Skipped as why:
        found = Finding.skipped(str(why))
    except PateError as error:
        found = Finding.failed(type(error), str(error))
    except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
        found = Finding.failed(
            PateError,
            f"the check itself broke off: {type(error).__name__}: {error}",
            "report it; the other checks do not depend on it",
        )
    return [found] if isinstance(found, Finding) else found


def _late(check: Check) -> Finding:
    text, to_do = f"nothing found out within {check.seconds:g} s", "give it longer with --timeout"
    if check.late is None:
        return Finding.unknown(text, to_do)
    return Finding.failed(check.late, text, to_do)


_STYLES: Final = {
    Status.OK: "green",
    Status.WARNING: "bold yellow",
    Status.FAILED: "bold red",
    Status.SKIPPED: "dim",
    Status.UNKNOWN: "bold yellow",
}
#: A longer text is split into its sentences.
_LONG: Final = 160
_TO_DO: Final = "to do: "


def present(
    groups: Mapping[str, Sequence[Check]], *, as_json: bool, console: Console | None = None
) -> int:
    """Run checks, print their findings on the standard output, and return the exit code.

    ``as_json``: whether to print only one JSON object, at the end; ``console``: for the output;
    None: the standard output.
    """
    if as_json:
        report = run_checks(groups)
        print_json(report.to_dict())
        return report.exit_code
    console = console or Display()
    widest = max((len(check.name) for checks in groups.values() for check in checks), default=0)
    headings: list[str] = []

    def folded(result: Result) -> None:
        if result.group not in headings:
            headings.append(result.group)
            console.print()
            console.print(Text(result.group, style="bold"))
        console.print(_row(result, widest))

    def plain(result: Result) -> None:
        found = result.finding
        to_do = f" ({_TO_DO}{found.to_do})" if found.to_do else ""
        line = f"{found.status.value:<8} {result.name}: {found.text}{to_do}"
        for each in (line, *(f"{'':<8} {more}" for more in found.lines)):
            console.print(each, markup=False, soft_wrap=True)

    if console.is_terminal:
        with console.status("looking", spinner="line"):  # of plain characters
            report = run_checks(groups, folded)
    else:
        report = run_checks(groups, plain)
    line, style = _verdict(report)
    if console.is_terminal:
        console.print()
        console.print(Text(line, style=style))
    else:
        console.print(line, markup=False, soft_wrap=True)
    return report.exit_code


def _row(result: Result, widest: int) -> Table:
    found = result.finding
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=2 + len(Status.WARNING))
    row.add_column(width=widest)
    row.add_column(ratio=1, overflow="fold")
    style = _STYLES[found.status]
    quiet = "dim" if found.status is Status.SKIPPED else ""
    status = Text(f"  {found.status.value}", style=style)
    # Each sentence of a long text has its own line.
    texts = found.text.split("; ") if len(found.text) > _LONG else [found.text]
    sentences = Group(*(Text(each, style=quiet) for each in texts))
    row.add_row(status, Text(result.name, style=quiet), sentences)
    for line in found.lines:
        row.add_row("", "", Text(line, style="dim"))
    if found.to_do:
        row.add_row("", "", Text.assemble((_TO_DO, style), found.to_do))
    return row


def _verdict(report: Report) -> tuple[str, str]:
    """Return the closing line, and its style."""
    warnings, code = report.number(Status.WARNING), report.exit_code
    counts = (
        f"{report.number(Status.OK)} ok, {number_of(warnings, 'warning')}, "
        f"{report.number(Status.FAILED)} failed"
    )
    for status in (Status.SKIPPED, Status.UNKNOWN):
        counts += f", {number} {status.value}" if (number := report.number(status)) else ""
    first = report.first_failure
    if first is not None:
        return f"{counts}: not ready: {first.name} (exit code {code})", "bold red"
    if code:
        return f"{counts}: whether it is ready is not known (exit code {code})", "bold yellow"
    return f"{counts}: ready", "bold green"
