"""Hours of the week at which a party votes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = 24 * 60
_SPAN: Final = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])")


@dataclass(frozen=True)
class Hours:
    """A span of the day, on some weekdays, in local time.

    >>> from datetime import datetime
    >>> night = Hours.parse("20:00-06:00", ["fri"])
    >>> datetime.fromisoformat("2024-03-01T21:00") in night  # a Friday
    True
    >>> datetime.fromisoformat("2024-03-02T05:59") in night  # the night that began on Friday
    True
    >>> datetime.fromisoformat("2024-03-02T06:00") in night
    False
    """

    begin: int
    end: int  # minute after the last; at most ``begin`` if the span crosses midnight
    weekdays: frozenset[int] = frozenset(range(7))  # days on which it begins, Monday is 0

    @classmethod
    def parse(cls, span: str = "00:00-24:00", weekdays: Iterable[str] = WEEKDAYS) -> Hours:
        """Read ``HH:MM-HH:MM`` and names of days such as ``mon``."""
        found = _SPAN.fullmatch(span)
        if found is None:
            raise UsageError(f"hours are written as 08:00-18:00, got {span!r}")
        first, second, third, fourth = map(int, found.groups())
        begin, end = 60 * first + second, 60 * third + fourth
        if begin >= _DAY or end > _DAY or begin == end:
            raise UsageError(f"hours {span!r} are an empty span; the whole day is 00:00-24:00")
        named = tuple(weekdays)
        if not named or not set(named) <= set(WEEKDAYS):
            raise UsageError(f"weekdays is a list of some of {', '.join(WEEKDAYS)}")
        return cls(begin, end, frozenset(map(WEEKDAYS.index, named)))

    def __contains__(self, now: datetime) -> bool:
        minute, day = 60 * now.hour + now.minute, now.weekday()
        if self.begin < self.end:
            return self.begin <= minute < self.end and day in self.weekdays
        if minute >= self.begin:
            return day in self.weekdays
        return minute < self.end and (day - 1) % 7 in self.weekdays

    def __str__(self) -> str:
        span = "-".join(f"{at // 60:02d}:{at % 60:02d}" for at in (self.begin, self.end))
        if len(self.weekdays) == len(WEEKDAYS):
            return span
        return f"{span} on {', '.join(WEEKDAYS[day] for day in sorted(self.weekdays))}"
