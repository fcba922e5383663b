"""A site's operator: the question of the policy ``ask``, and the words on the policy and its bound.

The terminal and the party's page ask one question, and the first answer counts. It is stored as the
campaign is: in the ledger, once joined.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from party.ledger.accountant import together
from party.policy.policy import plain
from pate.answers import ANSWERS, LABELS
from pate.codes import CODES
from pate.formats.privacy_statement import rounded_up
from pate.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from party.ledger.ledger import PartyLedger
    from party.policy.policy import Policy
    from pate.campaign.offer import Offer

#: What is asked, and the answer; None until it is there.
Question: TypeAlias = "tuple[Offer, bool | None]"

#: Seconds between two looks for an answer on the page while the terminal is read.
_LOOK_S: Final = 0.2
#: Most bytes of a line.
_LINE: Final = 4096


class Operator:
    """Asks whether to join a campaign; see :meth:`ask`."""

    def __init__(
        self,
        terminal: IO[str] | None,
        *,
        page: bool = False,
        # says that the page asks, where no terminal does
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._terminal = terminal
        self._say = say
        #: Whether there is anyone to ask.
        self.is_here = terminal is not None or page
        self._turn = threading.Lock()
        self._answered = threading.Event()
        #: What is asked, or was asked last.
        self.asked: Question | None = None

    @classmethod
    def here(cls, *, page: bool = False, say: Callable[[str], None] = lambda _: None) -> Self:
        """Return the operator of this process; ``page``: whether the page asks, too."""
        return cls(sys.stdin if sys.stdin.isatty() else None, page=page, say=say)

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
        else:
            self._say(f"{printable(question(offer))} Answer on this party's page")
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
        f"{announced.queries} queries, at most {announced.cost_in_words}, "
        f"votes {announced.sums.aggregation}, noise {announced.sums.noise}"
    )


def bind(ledger: PartyLedger, policy: Policy) -> tuple[str, ...]:
    """Record the policy's bound, and return lines about it if it is new."""
    before = ledger.bounds()
    return tuple(_lines(ledger, policy, bool(before))) if ledger.bind(policy.bound) else ()


def _lines(ledger: PartyLedger, policy: Policy, again: bool) -> Iterator[str]:
    bounds, figure = ledger.bounds(), ledger.cumulative_epsilon(policy.divided_delta)
    yield f"new bound of this party's accountant, recorded in its ledger: {bounds[-1].in_words}"
    if again:
        yield (
            f"earlier bound: {bounds[-2].in_words}; all bounds so far guarantee together: "
            f"{together(bounds)}"
        )
    if figure.epsilon == 0:
        return
    yield f"earlier answers are counted by the rules of this version: {figure.in_words}"
    most = policy.largest_epsilon
    if most is not None and figure.epsilon > most:
        worth = figure.why_none or rounded_up(figure.epsilon)
        yield f"that exceeds {most:g} ({worth}): nothing more will leave under this policy"


def rules_in_words(policy: Policy) -> tuple[str, ...]:
    """Return the rules as lines whose subject is the policy."""
    by_word = {
        "enrolled": "campaigns signed by the key that was pinned at enrolment",
        "any": "any campaign",
        "ask": "campaigns that the operator accepts, on the screen or the party's page",
    }
    campaigns = (
        by_word[policy.campaigns]
        if isinstance(policy.campaigns, str)
        else f"{len(policy.campaigns)} campaigns by key"
    )
    lines = [
        f"joins {campaigns}",
        f"accepts {' or '.join(policy.aggregation)} votes, with {' or '.join(policy.noise)} noise",
        f"accepts guarantees per {' or '.join(policy.units)}",
    ]
    if policy.codes != CODES:
        lines.append(f"accepts neighbour votes by the code {' or '.join(policy.codes)} only")
    if policy.answers != ANSWERS:
        teachers = "" if LABELS in policy.answers else ", and no teachers' votes for several labels"
        lines.append(
            f"accepts neighbour votes only with the answer {' or '.join(policy.answers)}{teachers}"
        )
    if policy.encoders != ():
        named = " or ".join(each[:8] for each in policy.encoders or ())
        by = "any public encoder" if policy.encoders is None else f"the public encoder {named}"
        lines.append(f"accepts inputs made by {by}")
    for value, text in (
        (policy.max_queries, "answers at most {} queries per campaign"),
        (policy.max_queries_in_all, "answers at most {} queries in all"),
        (policy.least_sigma, "needs noise of a standard deviation of at least {} votes"),
        (
            policy.least_noise_multiplier,
            "needs noise of at least {} times what one unit can move",
        ),
        (policy.least_roster, "needs at least {} parties"),
    ):
        if value is not None:
            lines.append(text.format(plain(value)))
    lines.append(
        "sets no largest epsilon for this party's own accountant"
        if policy.largest_epsilon is None
        else f"stops when this party's own accountant reaches {policy.bound.in_words}, over all campaigns"
    )
    if policy.parties is not None:
        lines.append(f"takes part with {', '.join(sorted(policy.parties))} only, by their keys")
    if policy.hours is not None:
        lines.append(f"votes only {policy.hours}, local time")
    lines.append(
        "lets queries of one campaign be unmasked in another with other parties, or get other votes"
        if policy.allow_other
        else "lets no query be unmasked twice with different parties, or get two different votes"
    )
    return tuple(lines)
