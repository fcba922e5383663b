"""What a check finds, and what a check is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.errors import PateError

#: Seconds that a check may take unless it says otherwise.
SECONDS = 5.0


class Status(StrEnum):
    """How a check came out. ``SKIPPED``: there was nothing to look at, or nothing to look with."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        status: how it came out.
        text: what was found, one line, for the screen of whoever runs the check.
        mend: what to do about it, or empty: then there is nothing to do, or the text says it.
        kind: the error that a start would end with; for ``FAILED`` alone.

    Raises:
        ValueError: for a failure without a kind, or a kind without a failure.
    """

    status: Status
    text: str
    mend: str = ""
    kind: type[PateError] | None = None

    def __post_init__(self) -> None:
        if (self.status is Status.FAILED) != (self.kind is not None):
            raise ValueError("a failure, and nothing else, has a kind of error")
        # What a server or a file is called may hold anything, and the screen obeys control characters.
        object.__setattr__(self, "text", one_line(self.text))
        object.__setattr__(self, "mend", one_line(self.mend))

    @classmethod
    def ok(cls, text: str) -> Self:
        """All is as it should be."""
        return cls(Status.OK, text)

    @classmethod
    def skipped(cls, text: str) -> Self:
        """Nothing was looked at; ``text`` says why, and what would change that."""
        return cls(Status.SKIPPED, text)

    @classmethod
    def warning(cls, text: str, mend: str) -> Self:
        """A start would work, and may go wrong later."""
        return cls(Status.WARNING, text, mend)

    @classmethod
    def failed(cls, kind: type[PateError], text: str, mend: str) -> Self:
        """A start would end with an error of this kind."""
        return cls(Status.FAILED, text, mend, kind)

    @classmethod
    def of(cls, error: PateError, mend: str = "") -> Self:
        """A start would end with this error, whose message says what to do."""
        return cls(Status.FAILED, str(error), mend, type(error))


@dataclass(frozen=True)
class Check:
    """One thing to look at.

    Attributes:
        group: under which heading.
        name: what to call it, a word or two.
        look: looks, and returns what it finds, or raises one of our errors: a failure.
        seconds: how long it may take, counted from the start of all checks.
        late: the kind of failure if it takes longer; None: only a warning.
    """

    group: str
    name: str
    look: Callable[[], Finding]
    seconds: float = SECONDS
    late: type[PateError] | None = None


def one_line(text: str) -> str:
    r"""Return ``text`` on one line, with what a terminal would obey replaced.

    >>> one_line("two\nlines \x1b[31mred")
    'two lines ?[31mred'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
