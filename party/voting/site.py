"""A site's policy and ledger, applied to requests, and its entry on a campaign's roster.

The policy states what may be asked, the ledger what was answered. Both belong to this site, and
both are applied before anything is computed, whatever the server sends.
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from party.policy.policy import OutsideHoursError
from pate.errors import ProtocolError, RefusedError
from pate.runtime.failpoints import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from party.ledger.ledger import PartyLedger
    from party.ledger.sent_votes import Answer
    from party.policy.policy import Policy
    from pate.campaign.offer import Offer, Settled
    from protos.pate.v1 import vote_pb2


class Site:
    """A party's control over its own votes; ``pinned`` is the campaign key of its enrolment."""

    def __init__(
        self,
        policy: Policy,
        ledger: PartyLedger,
        *,
        pinned: bytes | None = None,
        ask: Callable[[Offer], bool] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now().astimezone(),
    ) -> None:
        self.ledger = ledger
        self._policy = policy
        self._pinned = pinned
        self._ask = ask
        self._clock = clock
        #: Campaigns that the operator has accepted.
        self._agreed: Offer | None = None
        #: Set after a permanent refusal by the policy: there is nothing to wait for.
        self.refused: RefusedError | None = None

    @property
    def allows_again(self) -> bool:
        """Whether queries of one campaign may get other votes, or other survivors, in another."""
        return self._policy.allow_other

    def consider(self, offer: Offer) -> None:
        """Apply our rules to a campaign, before any of our data is read for it; records nothing."""
        self._admit(offer, None, None)

    def join(self, offer: Offer) -> None:
        """Join a campaign, durably."""
        self._admit(offer, None, None)
        self.ledger.join(offer)
        reach("offer-recorded")

    def admit(self, offer: Offer, answer: Answer) -> None:
        """Check that votes on a batch may be computed, their tags unknown, and record the terms durably."""
        self._admit(offer, answer.batch, answer.hashes)
        self.ledger.join(offer)
        self.check(offer, answer)

    def check(self, offer: Offer, answer: Answer) -> None:
        """Compare votes that may leave with earlier ones; see :mod:`party.ledger.sent_votes`."""
        self.ledger.check_answer(offer, answer, allow_other=self.allows_again)

    def answer(self, offer: Offer, answer: Answer) -> None:
        """Record, durably, that votes on a batch, with their tags, are about to leave."""
        self.ledger.answer(offer, answer, allow_other=self.allows_again)
        reach("answer-recorded")

    def known(self, key: bytes, campaign: bytes) -> Offer:
        """Return the terms of a joined campaign whose own key signed the request."""
        held = self.ledger.offer_of(campaign.hex())
        if held is None:
            raise RefusedError("a step of a campaign that this party has not joined")
        if not hmac.compare_digest(held.key, key):
            raise RefusedError("a step of a campaign, signed by another key than the campaign's")
        return held

    def compare(self, offer: Offer) -> None:
        """Compare the terms of a request with those of the campaign that this party has joined."""
        self.known(offer.key, bytes.fromhex(offer.campaign))
        self.ledger.view(offer, None, None)

    def require_open(self, campaign: bytes) -> None:
        """Check that a campaign, joined or not, may still ask for votes."""
        record = self.ledger.find(campaign.hex())
        if record is not None and record.ending is not None:
            raise RefusedError(
                f"campaign {campaign.hex()[:8]} has ended: no more keys ahead for it"
            )

    def ended(self, campaign: bytes, finish: vote_pb2.Finish) -> None:
        """Record the server's report of the end of a campaign."""
        self.ledger.end(
            campaign.hex(),
            queries_asked=finish.queries_asked,
            labels_released=finish.labels_released,
            epsilon=finish.epsilon_cap,
            delta=finish.delta,
            cause=finish.cause,
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
        # Before anything leaves: only a bound fixed in advance is a guarantee.
        self.ledger.bind(self._policy.bound)


def other_classes(ours: tuple[str, ...], agreed: tuple[str, ...]) -> str:
    """Return why a class list that is not that of most parties is refused, and what to do."""
    parts = [
        f"{who} {', '.join(names)}"
        for who, names in (
            ("only ours have", sorted(set(ours) - set(agreed))),
            ("ours lack", sorted(set(agreed) - set(ours))),
        )
        if names
    ]
    return (
        f"our records have other classes than most parties of the campaign name: {'; '.join(parts)}. Correct "
        f"the labels, or start again with --classes {','.join(agreed)}: records of any other class then take "
        "no part"
    )


def check_on_roster(settled: Settled, name: str, identity: bytes, teachers: int) -> None:
    """Check our entry on the roster."""
    for member in settled.roster:
        if (member.name, member.identity) == (name, identity.hex()):
            if member.teachers == teachers:
                return
            raise ProtocolError(
                f"the roster lists us with {member.teachers} teachers, but we have {teachers}"
            )
    raise ProtocolError("we are not on the roster of the campaign that requests our votes")
