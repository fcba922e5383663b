"""A party's page over a real ledger, and an operator who is asked."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from party.ledger.ledger import PartyLedger
from party.monitoring import Status
from party.page import PartyPage, View
from party.policy.operator import Operator
from party.policy.policy import Policy
from tests.support.party.offers import KEY
from tests.support.processes.programs import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pate.campaign.offer import Offer
    from pate.data.values import Inputs


class Desk:
    """A party that shows itself.

    Attributes:
        inputs: the public set that it has, None until one was sent.
    """

    def __init__(self, home: Path, ledger: PartyLedger | None = None, **changes: Any) -> None:
        self.home = home
        self.ledger = ledger or PartyLedger(home / "ledger.db")
        self.policy = dataclasses.replace(Policy(), campaigns="ask", **changes)
        self.status, self.operator = Status(), Operator(None, page=True)
        self.inputs: Inputs | None = None
        self.view = View(
            name="hospital_a",
            server="pate.example.org:9092",
            pinned=KEY,
            policy=self.policy,
            ledger=self.ledger,
            status=self.status,
            operator=self.operator,
        )
        self.view.public = lambda _: self.inputs

    @contextmanager
    def asked(self, offer: Offer) -> Iterator[list[bool]]:
        """The operator is asked while the block runs; yields what gets the answer when it is over."""
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(self.operator.ask(offer)))
        thread.start()
        until(lambda: self.operator.asked == (offer, None), "the operator is asked")
        try:
            yield answers
        finally:
            self.operator.answer(offer.digest.hex(), says=False)
            thread.join()

    @contextmanager
    def page(self) -> Iterator[PartyPage]:
        """The page on a port."""
        with PartyPage(self.view, self.operator, self.home, 0) as page:
            yield page
