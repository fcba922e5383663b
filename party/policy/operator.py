"""The operator's answer to a campaign, under the policy ``ask``: at the terminal or on the party's page.

One question, and the first answer counts. It is stored as the campaign is: in the ledger, once joined.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from pate.printable import printable

if TYPE_CHECKING:
    from typing import Self

    from pate.campaign.offer import Offer

#: What is asked, and the answer; None until it is there.
Question: TypeAlias = "tuple[Offer, bool | None]"

#: Seconds between two looks for an answer on the page while the terminal is read.
_LOOK_S: Final = 0.2
#: Most bytes of a line.
_LINE: Final = 4096


class Operator:
    """Asks whether to join a campaign; see :meth:`ask`."""

    def __init__(self, terminal: IO[str] | None, *, page: bool = False) -> None:
        self._terminal = terminal
        #: Whether there is anyone to ask.
        self.is_here = terminal is not None or page
        self._turn = threading.Lock()
        self._answered = threading.Event()
        #: What is asked, or was asked last.
        self.asked: Question | None = None

    @classmethod
    def here(cls, *, page: bool = False) -> Self:
        """Return the operator of this process; ``page``: whether the page asks, too."""
        return cls(sys.stdin if sys.stdin.isatty() else None, page=page)

    def ask(self, offer: Offer) -> bool:
        """Ask, and wait for the first answer; the end of the terminal's input means no.

        What was typed before is no answer. Nor is Ctrl-C: it stops the party, as always.
        """
        if self._terminal is not None:
            termios.tcflush(self._terminal, termios.TCIFLUSH)
        with self._turn:
            self._answered.clear()
            self.asked = offer, None
        if self._terminal is not None:
            sys.stderr.write(f"{printable(question(offer))} [y/N]: ")
            sys.stderr.flush()
        while not self._answered.wait(None if self._terminal is None else _LOOK_S):
            if self._terminal is not None and select.select([self._terminal], [], [], 0)[0]:
                # One line; a buffer in front of the terminal would store a second one for later.
                line = os.read(self._terminal.fileno(), _LINE)
                self.answer(offer.digest.hex(), line.strip().lower() in (b"y", b"yes"), typed=True)
        return bool(self.asked[1])

    def answer(self, digest: str, says: bool, *, typed: bool = False) -> bool:
        """Answer the question about the offer with a digest; False if it is not asked, or answered."""
        with self._turn:
            if self.asked is None or self.asked[1] is not None:
                return False
            offer = self.asked[0]
            if digest != offer.digest.hex():
                return False
            self.asked = offer, says
            if self._terminal is not None and not typed:
                sys.stderr.write(f"{'yes' if says else 'no'}, by the page\n")
                sys.stderr.flush()
            self._answered.set()
            return True


def question(offer: Offer) -> str:
    """Return the question for a terminal."""
    announced = offer.announced
    return (
        f"Join campaign {offer.campaign} (key {offer.key.hex()[:16]}…)? {announced.aggregator}, at most "
        f"{announced.queries} queries, epsilon {announced.epsilon:g} at delta {announced.delta:g} "
        f"per {announced.unit}, votes {announced.sums.aggregation}, noise {announced.sums.noise}"
    )
