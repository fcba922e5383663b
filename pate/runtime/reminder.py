"""Reminders about a long wait or task: their frequency, and the remaining time."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE: Final = 60.0
HOUR: Final = 3600.0


class Reminder:
    """Prints the reason of a wait when it changes, then after a minute, and ever more rarely.

    Pauses double from a minute to an hour, so that a wait of a day is thirty lines.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        least: float = 0.0,  # minimum seconds between two lines
        clock: Callable[[], float] = time.monotonic,  # seconds, monotonic
    ) -> None:
        self._say, self._least, self._clock = say, least, clock
        self._last: tuple[str, float] | None = None
        self._pause = MINUTE

    def tell(self, text: str, about: str | None = None) -> None:
        """Print ``text``, if a line is due.

        ``about``: the value whose change is reported at once; None: the text.
        """
        now, about = self._clock(), text if about is None else about
        if self._last is not None:
            before, said = self._last
            if now - said < (self._least if about != before else self._pause):
                return
            self._pause = MINUTE if about != before else min(2 * self._pause, HOUR)
        self._last = about, now
        self._say(text)


class Pace:
    """The speed of a task since it was first measured.

    Work done before that, such as stored teachers, does not count.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._first: tuple[float, int] | None = None

    def left(self, done: int, total: int) -> float | None:
        """Return the remaining seconds at the speed so far, None if unknown."""
        now = self._clock()
        if self._first is None:
            self._first = now, done
        began, before = self._first
        if done <= before or now <= began:
            return None
        return (total - done) * (now - began) / (done - before)


def left_in_words(seconds: float | None) -> str:
    """Return a remaining time in a few words, "" if it is not known.

    >>> left_in_words(7.2), left_in_words(95), left_in_words(7300), left_in_words(None)
    ('about 8 s left', 'about 2 min left', 'about 2.1 h left', '')
    """
    if seconds is None:
        return ""
    if seconds < 90:
        return f"about {math.ceil(seconds)} s left"
    if seconds < 90 * 60:
        return f"about {math.ceil(seconds / 60)} min left"
    return f"about {math.ceil(seconds / 360) / 10:g} h left"
