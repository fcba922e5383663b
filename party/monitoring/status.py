"""Status of a party's run, written by the run and read by monitoring.

It contains nothing about the party's records, neither their number nor their classes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from datetime import datetime

    from party.ledger.ledger import PartyLedger
    from pate.accounting.filters import Delta

State = Literal["reading", "training", "connecting", "connected", "away", "ended"]
#: States of a party; ``away``: it is connected, but the server does not answer at present.
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True)
class Standing:
    """A party's run at one moment."""

    state: State = "reading"
    teachers: int = 0  # number of teachers; 0 if its records vote
    trained: int = 0  # number of teachers that are ready
    ledger: PartyLedger | None = None
    delta: Delta | None = None  # of its own accountant, with its parts
    largest_epsilon: float | None = None  # bound of the accountant; None: no bound
    # expiry of the server's authority; None if the party is not enrolled
    ends: datetime | None = None


class Status:
    """The current standing; thread-safe."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._standing = Standing()

    @property
    def standing(self) -> Standing:
        """The current standing of the run."""
        return self._standing

    def is_now(self, state: State) -> None:
        """Set the state."""
        with self._turn:
            self._standing = replace(self._standing, state=state)

    def trained(self, done: int, total: int) -> None:
        """Set the number of ready teachers."""
        with self._turn:
            self._standing = replace(self._standing, trained=done, teachers=total)

    def bound_by(
        self,
        ledger: PartyLedger,
        *,
        delta: Delta,
        largest_epsilon: float | None,
        ends: datetime | None,
    ) -> None:
        """Set the party's ledger, its policy's bound, and the expiry of its enrolment."""
        with self._turn:
            self._standing = replace(
                self._standing,
                ledger=ledger,
                delta=delta,
                largest_epsilon=largest_epsilon,
                ends=ends,
            )
