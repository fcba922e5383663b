"""Where a party's run stands: written by the run, read by whoever watches it.

Nothing about the party's records is in it: not how many they are, not what classes they have.
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
#: What a party may be doing; ``away``: it is connected, and the server does not answer just now.
STATES: Final[tuple[State, ...]] = get_args(State)


@dataclass(frozen=True)
class Standing:
    """A party's run at one moment.

    Attributes:
        state: what it does.
        teachers: how many it is to have; 0 if its records vote themselves.
        trained: how many of them are ready.
        ledger: its ledger, None before it is open.
        delta: at which its own accountant counts, with its parts.
        largest_epsilon: where that stops; None: nowhere.
        ends: when what it trusts the server by expires; None: it is not enrolled.
    """

    state: State = "reading"
    teachers: int = 0
    trained: int = 0
    ledger: PartyLedger | None = None
    delta: Delta | None = None
    largest_epsilon: float | None = None
    ends: datetime | None = None


class Status:
    """The present standing; threads may write and read it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._standing = Standing()

    @property
    def standing(self) -> Standing:
        """The run as it stands now."""
        return self._standing

    def is_now(self, state: State) -> None:
        """Note what the party does from now on."""
        with self._turn:
            self._standing = replace(self._standing, state=state)

    def trained(self, done: int, total: int) -> None:
        """Note how many teachers are ready."""
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
        """Note the party's ledger, what its policy allows in it, and until when it may connect."""
        with self._turn:
            self._standing = replace(
                self._standing,
                ledger=ledger,
                delta=delta,
                largest_epsilon=largest_epsilon,
                ends=ends,
            )
