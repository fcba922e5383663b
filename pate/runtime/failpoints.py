"""Named places at which a test may kill the process, as a power cut would.

A process started with ``PATE_FAILPOINT=name`` (or ``name:3`` for the third time) sends itself
SIGKILL when it reaches the place of that name. Without the variable a failpoint costs one
comparison. The names are the steps of the campaign at which a crash must lose nothing.
"""

from __future__ import annotations

import os
import signal
from typing import Final

#: Every failpoint there is; a misspelt name in a test must not pass unnoticed.
NAMES: Final = frozenset({
    "roster-recorded",      # server: the roster is in the ledger, no votes were asked
    "opening-listed",       # server: whose sum is opened is in the ledger, nobody was asked to
    "votes-arrived",        # server: all votes are here, nothing of them is on disk
    "votes-recorded",       # server: the histogram is on disk
    "charge-recorded",      # server: the charge is durable, no noise was drawn
    "noise-drawn",          # server: labels exist in memory only
    "release-recorded",     # server: the labels are durable
    "round-ended",          # server: a round's end is durable
    "campaign-closed",      # server: the end is durable, the parties do not know of it
    "teacher-trained",      # party: a teacher is in memory, not yet on disk
    "voting",               # party: votes are computed, neither cached nor sent
    "shares-sent",          # party: masked votes are asked for, so its shares have arrived
    "masked-sent",          # party: the list of survivors is here, so its masked vote has arrived
    "opening-recorded",     # party: the opening is in its ledger, and has not left
})  # fmt: skip

_seen = 0


def reach(name: str) -> None:
    """Die here if the environment asks for it.

    Raises:
        ValueError: if ``name`` is not in :data:`NAMES`.
    """
    global _seen  # one process, one failpoint: the count of passes belongs to the process
    if name not in NAMES:
        raise ValueError(f"no failpoint is called {name!r}")
    wanted, _, times = os.environ.get("PATE_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    _seen += 1
    if _seen >= int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
