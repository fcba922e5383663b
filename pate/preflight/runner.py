"""Runner of checks: concurrent, each with a timeout, reported in order."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pate.errors import PateError, UndecidedError
from pate.preflight.finding import Finding, Skipped, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")

#: Longest single wait of the main thread, in seconds.
_LOOK_S: Final = 1.0


class Check(NamedTuple):
    """One check.

    Attributes:
        name: one or two words.
        look: runs the check and returns its finding, or several in their order; raises one of our errors on
            failure.
        seconds: timeout, from the start of all checks.
        late: the kind of failure on a timeout; None: the finding is unknown.
    """

    name: str
    look: Callable[[], Finding | Sequence[Finding]]
    seconds: float
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

    Args:
        work: returned by :func:`begin`.
        without: why a check is skipped if the work failed; another check reports the fault.

    Raises:
        Skipped: if it failed, or was skipped.
    """
    try:
        return work.result()
    except PateError:
        raise Skipped(without) from None


def run_checks(
    groups: Mapping[str, Sequence[Check]], show: Callable[[Result], None] = lambda _: None
) -> Report:
    """Run checks concurrently, and return their findings.

    Args:
        groups: checks by their heading, in display order.
        show: called with each result, in order, as soon as it and all before it are ready.
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
