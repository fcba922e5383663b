"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import datetime as dt

    from pate.errors import PateError


class Status(StrEnum):
    """How a check came out. ``SKIPPED``: there was nothing to look at, or nothing to look with."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


class Skipped(Exception):  # noqa: N818 - no error: there is nothing to look at
    """Raised by a check with nothing to look at; the text says why, and what would change that."""


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        status: how it came out.
        text: what was found, one line, for the screen of whoever runs the check.
        to_do: what helps, or empty: then there is nothing to do, or the text says it.
        kind: the error that a start would end with; for ``FAILED`` only.
        lines: more of it, for the screen of whoever runs the check only: in no JSON.

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
        # What a server or a file is called may hold anything, and the screen obeys control characters.
        object.__setattr__(self, "text", one_line(self.text))
        object.__setattr__(self, "to_do", one_line(self.to_do))

    @classmethod
    def ok(cls, text: str) -> Self:
        """All is as it should be."""
        return cls(Status.OK, text)

    @classmethod
    def skipped(cls, text: str) -> Self:
        """Nothing was looked at; ``text`` says why, and what would change that."""
        return cls(Status.SKIPPED, text)

    @classmethod
    def warning(cls, text: str, to_do: str) -> Self:
        """A start would work, and may go wrong later."""
        return cls(Status.WARNING, text, to_do)

    @classmethod
    def failed(cls, kind: type[PateError], text: str, to_do: str = "") -> Self:
        """A start would end with an error of this kind."""
        return cls(Status.FAILED, text, to_do, kind)


def one_line(text: str) -> str:
    r"""Return ``text`` on one line, with what a terminal would obey replaced.

    >>> one_line("two\nlines \x1b[31mred")
    'two lines ?[31mred'
    """
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def days_left(when: dt.datetime, now: dt.datetime) -> str:
    """Return how long it is until then, in words."""
    days = (when - now).days
    return "1 day left" if days == 1 else f"{days} days left"
