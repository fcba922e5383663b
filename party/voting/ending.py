"""The end of a campaign, as the server reports it to a party."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.answers import CLASS
from pate.codes import code_of
from pate.errors import ProtocolError
from pate.formats.privacy_statement import neighbours_of

if TYPE_CHECKING:
    from typing import Self

    from pate.campaign.offer import Offer
    from protos.pate.v1 import vote_pb2


@dataclass(frozen=True)
class Ending:
    """The end of a campaign for a party.

    Attributes:
        campaign: its id, hexadecimal.
        queries_asked: queries that the server put to its mechanism.
        labels_released: labels released by the server.
        epsilon: the campaign's cap towards the public, data-independent.
        delta: of the cap.
        unit: of privacy: ``record``, ``patient`` or ``party``.
        adjacency: of neighbouring data sets.
        records_vote: whether records voted instead of teachers.
        observer: against whom it holds.
        votes_given: queries that this party answered for the campaign.
        answer: what was voted for, the text of an :class:`~pate.answers.Answer`.
        cause: why it ended before it asked for votes, a key of
            :data:`pate.campaign.choices.EARLY_ENDS`; empty otherwise.
    """

    campaign: str
    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    unit: str
    adjacency: str
    records_vote: bool
    observer: str
    votes_given: int
    answer: str = CLASS
    cause: str = ""

    @classmethod
    def of(cls, campaign: bytes, finish: vote_pb2.Finish, offer: Offer, asked: int) -> Self:
        """Return the end that a server reports.

        Args:
            campaign: its id.
            finish: the server's message, checked.
            offer: of the campaign in our ledger.
            asked: queries that we answered for it.
        """
        return cls(
            campaign=campaign.hex(),
            queries_asked=finish.queries_asked,
            labels_released=finish.labels_released,
            epsilon=finish.epsilon_cap,
            delta=finish.delta,
            unit=offer.unit,
            adjacency=neighbours_of(
                offer.unit, records_vote=offer.records_vote, series=offer.series, code=offer.code
            ),
            records_vote=offer.records_vote,
            observer="public",
            votes_given=asked,
            answer=str(code_of(offer.code).answer),
            cause=finish.cause,
        )


def check_ending(finish: vote_pb2.Finish, offer: Offer, asked: int) -> None:
    """Check that a campaign ends with the guarantee that we accepted.

    Args:
        finish: the server's message.
        offer: of the campaign in our ledger.
        asked: queries that we answered for it.

    Raises:
        ProtocolError: for another delta, a larger epsilon than announced, or one that differs from
            the cap; or if it ended as if it had asked for no votes, and had ours.
    """
    if finish.cause and asked:
        raise ProtocolError("a campaign that had votes of ours ended as if it had asked for none")
    said = finish.epsilon_cap
    if finish.delta != offer.delta or not 0 <= said <= offer.epsilon * (1 + 1e-9):
        raise ProtocolError("the campaign ended with another guarantee than it began with")
    worth = offer.worth
    if worth is None:
        return
    if abs(said - worth) > 1e-6 * worth:
        raise ProtocolError(
            f"the campaign ended at epsilon {said:g}, but its terms convert to {worth:g}"
        )
