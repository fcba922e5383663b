"""What a site agrees to, applied: its policy and its ledger, side by side.

The policy says what may be asked, the ledger what was answered. Both are this site's, and both are
consulted before anything is computed, whatever the server says.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from party.policy.policy import OutsideHoursError
from pate.errors import RefusedError
from pate.runtime.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from party.ledger.ledger import PartyLedger
    from party.ledger.sent_votes import Answer
    from party.offer import Offer
    from party.policy.policy import Policy
    from protos.pate.v1 import vote_pb2


def _now() -> datetime:
    return datetime.now().astimezone()


class Site:
    """A party's say over its own votes.

    Args:
        policy: what it agrees to.
        ledger: what it did, durable.
        pinned: the campaign key that it got when it was enrolled, 32 bytes; None: not enrolled.
        ask: asks whoever sits at the screen a question; None: nobody does.
        clock: local time.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: PartyLedger,
        *,
        pinned: bytes | None = None,
        ask: Callable[[str], bool] | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.ledger = ledger
        self._policy = policy
        self._pinned = pinned
        self._ask = ask
        self._clock = clock
        #: What somebody at the screen need not be asked about again.
        self._agreed: Offer | None = None
        #: Set when the policy has refused, and will refuse again: there is nothing to wait for.
        self.refused: RefusedError | None = None

    @property
    def allows_again(self) -> bool:
        """Whether queries of one campaign may get other votes, or other parties, in another."""
        return self._policy.allow_other

    def consider(self, offer: Offer) -> None:
        """Apply our rules to a campaign, before anything of ours is read for it; record nothing of it.

        Raises:
            RefusedError: if the policy does not allow it, or its terms are not what they were.
        """
        self._admit(offer, None, None)

    def join(self, offer: Offer) -> None:
        """Agree to a campaign, durably, or not.

        Raises:
            RefusedError: if the policy does not allow it, or its terms are not what they were.
            DiskError: if it cannot be recorded.
        """
        self._admit(offer, None, None)
        self.ledger.join(offer)
        reach("offer-recorded")

    def admit(self, offer: Offer, answer: Answer) -> None:
        """Check that votes on a batch may be computed, and record on what terms, durably.

        Args:
            offer: what is asked.
            answer: the votes, without tags: they are not known yet.

        Raises:
            RefusedError: if the policy does not allow it, its terms are not what they were, or
                what left before does not go with it.
        """
        self._admit(offer, answer.batch, answer.hashes)
        self.ledger.join(offer)
        self.check(offer, answer)

    def check(self, offer: Offer, answer: Answer) -> None:
        """Compare votes that may leave with what left before; see :mod:`party.ledger.sent_votes`.

        Raises:
            RefusedError: if they do not go together.
        """
        self.ledger.check_answer(offer, answer, allow_other=self.allows_again)

    def answer(self, offer: Offer, answer: Answer) -> None:
        """Record, durably, that votes on a batch, with their tags, are about to leave.

        Raises:
            RefusedError: if what left before does not go with them.
            DiskError: if it cannot be recorded; then nothing leaves.
        """
        self.ledger.answer(offer, answer, allow_other=self.allows_again)
        reach("answer-recorded")

    def known(self, key: bytes, campaign: bytes) -> Offer:
        """Return the terms of a campaign that we have joined and whose own key signed what came.

        Raises:
            RefusedError: otherwise.
        """
        held = self.ledger.offer_of(campaign.hex())
        if held is None:
            raise RefusedError("a step of a campaign that this party has not joined")
        if not hmac.compare_digest(held.key, key):
            raise RefusedError("a step of a campaign, signed by another key than the campaign's")
        return held

    def ended(self, campaign: bytes, finish: vote_pb2.Finish) -> None:
        """Record how the server says that a campaign has ended."""
        self.ledger.end(
            campaign.hex(),
            queries_asked=finish.queries_asked,
            labels_released=finish.labels_released,
            epsilon=finish.epsilon_cap,
            delta=finish.delta,
        )
        reach("ending-recorded")

    def _admit(self, offer: Offer, batch: bytes | None, hashes: Sequence[bytes] | None) -> None:
        view = self.ledger.view(offer, batch, hashes)
        if offer == self._agreed:
            view = replace(view, joined=True)
        try:
            self._policy.admit(offer, view, self._clock(), self._pinned, self._ask)
        except OutsideHoursError:
            raise
        except RefusedError as error:
            self.refused = error
            raise
        self._agreed = offer
        # Before anything leaves: only a bound that was fixed beforehand promises anything.
        self.ledger.bind(self._policy.bound)
