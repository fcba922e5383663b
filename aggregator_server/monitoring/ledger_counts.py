"""Counts from ledger entries for the page, updated entry by entry."""

from __future__ import annotations

from collections import Counter, deque
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from aggregator_server.monitoring.overview import LedgerLine
from pate.foreign import json_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pate.storage.hash_chain import Entry

#: Number of rows of entries on the page.
TAIL: Final = 12
#: Most points of the curve, more than a screen can resolve.
POINTS: Final = 96

#: A description of each kind of entry, without its content: votes are only committed to.
_WORDS: Final = {
    "open": "the campaign was opened",
    "roster": "parties, classes, mechanism and budget were fixed",
    "opening": "whose votes are in the next masked sum was recorded",
    "charge": "the worst cost of the next answers was charged",
    "round-end": "a round ended",
    "predictions": "the student's predictions were stored",
    "close": "the campaign was closed",
}
#: Kinds of entries that alternate: the page shows consecutive pairs of them as one row.
_PAIRS: Final = {
    "release": ("charge", "answers were charged, then released"),
    "votes": ("opening", "summed votes were stored"),
}


class LedgerCounts:
    """Labels by class, costs over labels, and the last entries.

    ``votes``: by party, number of queries whose sum includes its votes.
    """

    def __init__(self, *, to_the_minute: bool) -> None:
        """Start before the first entry.

        ``to_the_minute``: whether times are rounded down to the minute, which is required where the
        duration of a step may depend on votes.
        """
        self.labels: Counter[int] = Counter()
        self.votes: Counter[str] = Counter()
        self.entries = 0
        self._to_the_minute = to_the_minute
        self._spent = Fraction(0)
        self._charged = Fraction(0)
        self._points: list[tuple[int, Fraction]] = [(0, Fraction(0))]
        self._every = 1
        self._releases = 0
        self._tail: deque[LedgerLine] = deque(maxlen=TAIL)

    def take(self, entries: Iterable[Entry]) -> None:
        """Process the entries after the last processed one."""
        for entry in entries:
            self.entries = entry.seq
            when = short_time(entry.written_at, to_the_minute=self._to_the_minute)
            self._tell(entry.seq, entry.kind, when)
            if entry.kind in ("charge", "release"):
                self._pay(entry.kind, json_value(entry.body))
            elif entry.kind == "votes":
                body = json_value(entry.body)
                self.votes.update(dict.fromkeys(body["responders"], body["count"]))

    def _tell(self, number: int, kind: str, when: str) -> None:
        """Add a row; a pair of entries shares one row with the pairs before it."""
        first, words = number, _WORDS.get(kind, kind)
        if kind in _PAIRS:
            before, words = _PAIRS[kind]
            for joined in (before, kind):
                if self._tail and self._tail[0].kind == joined:
                    first = self._tail.popleft().first
        self._tail.appendleft(LedgerLine(number, kind, words, when, first))

    def _pay(self, kind: str, body: dict[str, object]) -> None:
        cost = Fraction(str(body["cost"]))
        if kind == "charge":
            self._spent, self._charged = self._spent + cost, cost
            return
        # Unused cost was returned with the release.
        self._spent += cost - self._charged
        answers = body["answers"]
        assert isinstance(answers, list)  # noqa: S101 - the ledger has checked its entries
        self.labels.update(label for _, label, _, _ in answers if label is not None)
        self._releases += 1
        if self._releases % self._every == 0:
            self._points.append((self.labels.total(), self._spent))
        if len(self._points) > POINTS:
            self._points, self._every = self._points[::2], 2 * self._every

    @property
    def tail(self) -> tuple[LedgerLine, ...]:
        """The last entries, the newest first."""
        return tuple(self._tail)

    @property
    def points(self) -> list[tuple[int, Fraction]]:
        """Pairs of labels released and cost charged by then, from zero to the last entry."""
        now = (self.labels.total(), self._spent)
        return self._points if self._points[-1] == now else [*self._points, now]


def short_time(stamp: str, *, to_the_minute: bool) -> str:
    """Return an ISO 8601 time in UTC, truncated to the second or the minute.

    >>> short_time("2026-01-02T03:04:05.678+00:00", to_the_minute=True)
    '2026-01-02T03:04Z'
    """
    return stamp[: 16 if to_the_minute else 19] + "Z"
