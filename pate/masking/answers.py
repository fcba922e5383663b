"""What a party has answered: one answer in each phase, in order, and the same again if asked so."""

from __future__ import annotations

import hmac
from enum import Enum
from typing import TypeVar

from pate.errors import ProtocolError, RefusedError


class Phase(Enum):
    """What a party is asked for next."""

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
        proved: whether votes are proved: without that there is one phase less.

    Attributes:
        phase: what is asked for next.
    """

    def __init__(self, *, proved: bool = False) -> None:
        self.phase = Phase.KEYS
        self._order = [each for each in Phase if proved or each is not Phase.PROOFS]
        self._given: dict[Phase, tuple[bytes, object]] = {}

    def given(self, phase: Phase, request: bytes, kind: type[Answer]) -> Answer | None:
        """Return the answer to a request if it was given before, None if it is to be made now.

        Args:
            phase: that the request belongs to.
            request: hash of all that it says.
            kind: type of the answer.

        Raises:
            RefusedError: if another request was answered in this phase, or all is forgotten.
            ProtocolError: if it is not the turn of this phase.
        """
        if self.phase is Phase.FORGOTTEN:
            raise RefusedError("this attempt at a masked sum is over: begin another one")
        if phase in self._given:
            before, answer = self._given[phase]
            if not hmac.compare_digest(before, request):
                raise RefusedError(
                    f"asked for {phase.value} a second time, with another request: one is "
                    "answered in an attempt"
                )
            assert isinstance(answer, kind)  # noqa: S101 - what give() was given
            return answer
        if phase is not self.phase:
            raise ProtocolError(f"asked for {phase.value}, and the next is {self.phase.value}")
        return None

    def give(self, phase: Phase, request: bytes, answer: Answer) -> Answer:
        """Keep an answer, go on to the next phase, and return the answer."""
        self._given[phase] = (request, answer)
        self.phase = self._order[self._order.index(phase) + 1]
        return answer

    def forget(self) -> None:
        """Drop all answers, and give no more."""
        self.phase = Phase.FORGOTTEN
        self._given = {}
