"""Running checks: all at once, each for a bounded time, told in their order."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pate.errors import PateError
from pate.runtime.preflight.finding import Check, Finding, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """A check and what it found."""

    group: str
    name: str
    finding: Finding


@dataclass(frozen=True)
class Report:
    """What all checks found, in their order."""

    results: tuple[Result, ...]

    def count(self, status: Status) -> int:
        """Return how many came out so."""
        return sum(result.finding.status is status for result in self.results)

    @property
    def first_failure(self) -> Result | None:
        """The first check that failed, or None."""
        return next((r for r in self.results if r.finding.status is Status.FAILED), None)

    @property
    def exit_code(self) -> int:
        """0 if nothing failed, else the code of the first failure's kind."""
        first = self.first_failure
        return 0 if first is None or first.finding.kind is None else first.finding.kind.exit_code

    def to_dict(self) -> dict[str, object]:
        """Return the report as a JSON object."""
        return {
            "ready": self.first_failure is None,
            "exit_code": self.exit_code,
            "counts": {status.value: self.count(status) for status in Status},
            "checks": [_as_json(result) for result in self.results],
        }


def _as_json(result: Result) -> dict[str, object]:
    found = result.finding
    return {
        "group": result.group,
        "name": result.name,
        "status": found.status.value,
        "text": found.text,
        "to_do": found.mend or None,
        "error": None if found.kind is None else found.kind.__name__,
        "exit_code": 0 if found.kind is None else found.kind.exit_code,
    }


class Once(Generic[T]):
    """Something that several checks look at and that is made once, by whoever comes first.

    >>> number = Once(lambda: print("made") or 7)
    >>> number(), number()
    made
    (7, 7)
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: tuple[T] | None = None
        self._error: PateError | None = None

    def __call__(self) -> T:
        """Return it.

        Raises:
            PateError: the same each time, if it cannot be made.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if self._made is None:
                try:
                    self._made = (self._make(),)
                except PateError as error:
                    self._error = error
                    raise
            return self._made[0]


class _Started:
    """A check that runs in a thread of its own, which a process that ends does not wait for."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._found: Finding | None = None
        self._thread = threading.Thread(target=self._run, name=f"check {check.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = self._check.look()
        except PateError as error:
            self._found = Finding.of(error)
        except Exception as error:  # noqa: BLE001 - one check that breaks must not hide the others
            self._found = Finding.failed(
                PateError,
                f"the check itself broke off: {type(error).__name__}: {error}",
                "report it; the other checks do not depend on it",
            )

    def result(self, began: float) -> Finding:
        check = self._check
        self._thread.join(max(0.0, began + check.seconds - time.monotonic()))
        if self._found is not None:
            return self._found
        text, mend = (
            f"nothing found out within {check.seconds:g} s",
            "give it longer with --timeout",
        )
        if check.late is None:
            return Finding.warning(text, mend)
        return Finding.failed(check.late, text, mend)


def run_checks(checks: Sequence[Check], tell: Callable[[Result], None] = lambda _: None) -> Report:
    """Run checks side by side, and return what they found.

    Args:
        checks: in the order in which they are told; a later one may wait for what an earlier one
            looks at, see :class:`Once`.
        tell: called with each result, in order, as soon as it and all before it are there.
    """
    began = time.monotonic()
    started = [_Started(check) for check in checks]
    results = []
    for check, one in zip(checks, started, strict=True):
        results.append(Result(check.group, check.name, one.result(began)))
        tell(results[-1])
    return Report(tuple(results))
