"""The finding of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from pate.printable import printable

if TYPE_CHECKING:
    import datetime as dt

    from pate.errors import PateError


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
    """The result of one check.

    Attributes:
        status: of the check.
        text: one line, for the screen of the operator.
        to_do: the remedy, or empty if none is needed or the text has it.
        kind: the error that a start would end with; only for ``FAILED``.
        lines: details only for the screen of the operator; not in the JSON.

    Raises:
        ValueError: for a failure without a kind, or a kind without a failure.
    """

    status: Status
    text: str
    to_do: str = ""
    kind: type[PateError] | None = None
    lines: tuple[str, ...] = ()

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
    return "1 day left" if days == 1 else f"{days} days left"
