"""Where answers of parties arrive over the network: taken in, or refused without a reason.

A party whose answer was taken in may not have heard so, and sends the very same again: it is told
that it is enrolled. For that the desk stays open for a while after an answer.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from aggregator_server.identities.registry import ENROLLED
from pate.errors import PateError
from pate.formats.enrolment import Answer

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from aggregator_server.identities.store import Identities

#: Refused answers that one address may send within a time, in seconds; then it is not read.
#: A code cannot be guessed: this only keeps an address from keeping the server busy.
ATTEMPTS: Final = 10
WITHIN_S: Final = 600.0
#: How long after it was taken in an answer may be sent again, in seconds.
RECEIPT_S: Final = 14 * 86_400
#: Addresses that are remembered.
_ADDRESSES: Final = 4096


class EnrolmentService:
    """Takes answers in; what was wrong with one is told to the operator alone."""

    def __init__(
        self,
        identities: Identities,
        *,
        clock: Callable[[], dt.datetime],
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Take answers for ``identities``.

        Args:
            identities: the server's.
            clock: tells the time.
            on_event: called with one line for the operator, from any thread.
        """
        self._identities = identities
        self._clock = clock
        self._on_event = on_event
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, deque[float]] = OrderedDict()

    def open(self) -> bool:
        """Say whether a code is open, or was used lately, so that an answer could come at all."""
        now = self._clock().timestamp()
        try:
            parties = self._identities.registry.parties()
        except PateError:
            return False
        return any(
            (p.invitation is not None and p.invitation.expires > now)
            or (p.state == ENROLLED and now < p.changed + RECEIPT_S)
            for p in parties.values()
        )

    def answer(self, body: bytes, source: str) -> bool:
        """Take in one answer and say whether that was possible.

        Args:
            body: what was sent; at most :data:`pate.formats.enrolment.MAX_FILE` bytes are looked at.
            source: the address that it came from.
        """
        with self._lock:
            if self._is_tired_of(source):
                return False
            try:
                answer = Answer.from_json(body)
                new = self._identities.admit(answer, self._clock())
            except PateError as error:
                self._note(source)
                self._on_event(f"an enrolment from {source} was refused: {error}")
                return False
        if new:
            self._on_event(
                f"{answer.name} is enrolled; its identity key is {answer.identity.hex()}"
            )
        return True

    def _is_tired_of(self, source: str) -> bool:
        times = self._refused.get(source, deque())
        while times and time.monotonic() - times[0] > WITHIN_S:
            times.popleft()
        return len(times) >= ATTEMPTS

    def _note(self, source: str) -> None:
        times = self._refused.setdefault(source, deque())
        times.append(time.monotonic())
        self._refused.move_to_end(source)
        while len(self._refused) > _ADDRESSES:
            self._refused.popitem(last=False)
