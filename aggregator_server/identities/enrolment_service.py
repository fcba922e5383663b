"""The enrolment service: accepts parties' answers over the network, or refuses without a reason.

A party may miss the confirmation of its answer and send the same answer again: it gets the
confirmation again. For that the service stays open for a while after an answer.
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

#: Refused answers allowed per address within a number of seconds; further ones are not read. A code
#: cannot be guessed: this only limits the server's load.
ATTEMPTS: Final = 10
WITHIN_S: Final = 600.0
#: How long an accepted answer may be repeated, in seconds.
RECEIPT_S: Final = 14 * 86_400
#: Most remembered addresses.
_ADDRESSES: Final = 4096


class EnrolmentService:
    """Accepts answers; only the operator sees why one was refused."""

    def __init__(
        self,
        identities: Identities,
        *,
        clock: Callable[[], dt.datetime],
        # called with one line for the operator, from any thread
        on_event: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Accept answers for ``identities``."""
        self._identities = identities
        self._clock = clock
        self._on_event = on_event
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, deque[float]] = OrderedDict()

    def open(self) -> bool:
        """Return whether a code is open or was used recently, so that an answer is possible."""
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
        """Process one answer; return whether it was accepted.

        ``body``: of the request; at most :data:`pate.formats.enrolment.MAX_FILE` bytes are read.
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
