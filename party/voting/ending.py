"""A campaign on the party's screen, and its end, as the server reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.answers import CLASS, answer_of
from pate.campaign.choices import EARLY_ENDS
from pate.codes import code_of
from pate.data.values import Inputs, Table
from pate.errors import ProtocolError
from pate.formats.privacy_statement import in_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from protos.pate.v1 import vote_pb2

#: How votes leave.
_AGGREGATION: Final = {
    "plain": "plain aggregation: the server sees our vote vectors",
    "masked": "masked sums: no one sees our votes alone",
}
_NOISE: Final = {"central": "noise by the server", "distributed": "noise by the parties"}


@dataclass(frozen=True)
class Ending:
    """The end of a campaign for a party."""

    campaign: str
    queries_asked: int
    labels_released: int
    epsilon: float  # the campaign's cap towards the public, data-independent
    delta: float
    unit: str
    adjacency: str
    records_vote: bool
    observer: str
    votes_given: int  # queries that this party answered for the campaign
    answer: str = CLASS  # what was voted for, the text of an :class:`~pate.answers.Answer`
    # why it ended before it asked for votes, a key of :data:`pate.campaign.choices.EARLY_ENDS`;
    # empty otherwise
    cause: str = ""

    @classmethod
    def of(cls, campaign: bytes, finish: vote_pb2.Finish, offer: Offer, asked: int) -> Self:
        """Return the end that a server reports; we answered ``asked`` queries."""
        announced = offer.announced
        return cls(
            campaign=campaign.hex(),
            queries_asked=finish.queries_asked,
            labels_released=finish.labels_released,
            epsilon=finish.epsilon_cap,
            delta=finish.delta,
            unit=announced.unit,
            adjacency=announced.neighbours,
            records_vote=announced.records_vote,
            observer="public",
            votes_given=asked,
            answer=str(announced.voted_for),
            cause=finish.cause,
        )


def check_ending(finish: vote_pb2.Finish, offer: Offer, asked: int) -> None:
    """Check that a campaign ends with the guarantee that we accepted; ProtocolError otherwise.

    That is for another delta, a larger epsilon than announced, or one that differs from the cap; or
    if it ended as if it had asked for no votes, and had ours.
    """
    if finish.cause and asked:
        raise ProtocolError("a campaign that had votes of ours ended as if it had asked for none")
    said = finish.epsilon_cap
    if finish.delta != offer.announced.delta or not 0 <= said <= offer.announced.epsilon * (
        1 + 1e-9
    ):
        raise ProtocolError("the campaign ended with another guarantee than it began with")
    worth = offer.worth
    if worth is None:
        return
    if abs(said - worth) > 1e-6 * worth:
        raise ProtocolError(
            f"the campaign ended at epsilon {said:g}, but its terms convert to {worth:g}"
        )


def joined_in_words(campaign: Announced) -> Iterator[str]:
    """Yield lines about a campaign that was joined: its terms, and what a series means."""
    rounds = f" in {campaign.rounds} rounds" if campaign.in_rounds else ""
    yield (
        f"joined campaign {campaign.id[:8]}: {campaign.aggregator}{rounds}, "
        f"{campaign.queries} queries, at most {campaign.cost_in_words}, "
        f"{leaving_in_words(campaign)}"
    )
    if campaign.series:
        yield _series(campaign)


def leaving_in_words(campaign: Announced) -> str:
    """Return how votes leave, and who adds the noise."""
    return f"{_AGGREGATION[campaign.sums.aggregation]}, {_NOISE[campaign.sums.noise]}"


def _series(campaign: Announced) -> str:
    """Return what a series means for our file, and what is outside of its promise."""
    if campaign.unit == "patient":
        known = (
            "a patient has these votes once, whatever the number of campaigns; one who reappears "
            "under another identifier counts as another patient"
        )
    else:
        known = (
            "a record votes in one of its campaigns only, and is known by its content: one that is "
            "corrected counts as another record. Keep rows in the file until the series ends, or "
            "name each patient with --group"
        )
    return f"campaign {campaign.id[:8]} is of the series {campaign.series!r}: {known}"


def kind_in_words(inputs: Inputs) -> str:
    """Return what a public set is."""
    return (
        f"a table of {len(inputs.names)} columns" if isinstance(inputs, Table) else inputs.schema()
    )


def voting_in_words(campaign: Announced, batch: vote_pb2.Batch) -> str:
    """Return what we vote on."""
    if not batch.round:
        code = code_of(campaign.code)
        return (
            f"voting {'in' if code.in_directions else 'on'} {code.asked_in_words(len(batch.rows))}"
        )
    what = "our records' disagreement with the model shown" if batch.shown else "class counts"
    return f"round {batch.round} of {campaign.rounds}: voting, {what}"


def ended_in_words(ending: Ending) -> str:
    """Return a line for the operator about the end of a campaign."""
    if ending.cause:
        return (
            f"the campaign has ended before it asked for votes: {EARLY_ENDS[ending.cause]}. No vote of "
            "ours has left for it; its coordinator may start another one"
        )
    answer, number = answer_of(ending.answer), ending.queries_asked
    asked = "" if answer.in_rounds else f"{number} queries asked, "
    released = answer.release_in_words(ending.labels_released, number)
    return (
        f"the campaign has ended: {asked}{released} released, at most "
        f"{in_words(ending.epsilon, ending.delta, ending.unit, neighbours=ending.adjacency)}"
    )
