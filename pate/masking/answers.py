"""A party's answers: one per phase, in order; a repeated request gets the same answer."""

from __future__ import annotations

import hmac
from enum import Enum
from typing import TypeVar

from pate.errors import ProtocolError, RefusedError


class Phase(Enum):
    """The next request that a party accepts."""

    KEYS = "keys"
    SHARES = "shares"
    MASKED = "masked votes"
    PROOFS = "a proof of its votes"
    CONSISTENCY = "a signature"
    UNMASK = "an opening"
    DONE = "nothing more"
    FORGOTTEN = "nothing: it was ended"


Answer = TypeVar("Answer")


class Answers:
    """The answers of one attempt.

    Args:
        proved: whether votes are proved, which takes one more phase.

    Attributes:
        phase: the next one.
    """

    def __init__(self, *, proved: bool = False) -> None:
        self.phase = Phase.KEYS
        self._order = [each for each in Phase if proved or each is not Phase.PROOFS]
        self._given: dict[Phase, tuple[bytes, object]] = {}

    def given(self, phase: Phase, request: bytes, kind: type[Answer]) -> Answer | None:
        """Return the stored answer to a repeated request, None for a new request.

        Args:
            phase: of the request.
            request: hash of its content.
            kind: type of the answer.

        Raises:
            RefusedError: if another request was answered in this phase, or after :meth:`forget`.
            ProtocolError: if this is not the next phase.
        """
        if self.phase is Phase.FORGOTTEN:
            raise RefusedError("this attempt at a masked sum is over: begin another one")
        if phase in self._given:
            before, answer = self._given[phase]
            if not hmac.compare_digest(before, request):
                raise RefusedError(
                    f"asked for {phase.value} a second time, with another request: an attempt answers one"
                )
            assert isinstance(answer, kind)  # noqa: S101 - what give() was given
            return answer
        if phase is not self.phase:
            raise ProtocolError(f"asked for {phase.value}, and the next is {self.phase.value}")
        return None

    def give(self, phase: Phase, request: bytes, answer: Answer) -> Answer:
        """Store an answer, advance to the next phase, and return the answer."""
        self._given[phase] = (request, answer)
        self.phase = self._order[self._order.index(phase) + 1]
        return answer

    def forget(self) -> None:
        """Drop all answers and refuse further requests."""
        self.phase = Phase.FORGOTTEN
        self._given = {}
