"""Lines about a campaign for the party's screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.answers import answer_of
from pate.campaign.choices import EARLY_ENDS
from pate.data.values import Inputs, Table
from pate.formats.privacy_statement import in_words, neighbours_of
from protos.terms import code_in, in_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.voting.ending import Ending
    from protos.pate.v1 import vote_pb2

#: How votes leave.
_AGGREGATION: Final = {
    "plain": "plain aggregation: the server sees our vote vectors",
    "masked": "masked sums: no one sees our votes alone",
}
_NOISE: Final = {"central": "noise by the server", "distributed": "noise by the parties"}


def joined_in_words(campaign: vote_pb2.Campaign) -> Iterator[str]:
    """Yield lines about a campaign that was joined: its terms, and what a series means."""
    rounds = f" in {campaign.rounds} rounds" if in_rounds(campaign) else ""
    yield (
        f"joined campaign {campaign.id.hex()[:8]}: {campaign.mechanism}{rounds}, "
        f"{campaign.queries} queries, at most {_guarantee(campaign)}, "
        f"{_AGGREGATION[campaign.aggregation]}, {_NOISE[campaign.noise]}"
    )
    if campaign.series:
        yield _series(campaign)


def _guarantee(campaign: vote_pb2.Campaign) -> str:
    return in_words(
        campaign.epsilon,
        campaign.delta,
        campaign.unit,
        neighbours=neighbours_of(
            campaign.unit,
            records_vote=campaign.most_votes > 0,
            series=campaign.series,
            code=str(code_in(campaign)),
        ),
    )


def _series(campaign: vote_pb2.Campaign) -> str:
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
    return f"campaign {campaign.id.hex()[:8]} is of the series {campaign.series!r}: {known}"


def kind_in_words(inputs: Inputs) -> str:
    """Return what a public set is."""
    return (
        f"a table of {len(inputs.names)} columns" if isinstance(inputs, Table) else inputs.schema()
    )


def voting_in_words(campaign: vote_pb2.Campaign, batch: vote_pb2.Batch) -> str:
    """Return what we vote on."""
    if not batch.round:
        return f"voting on {len(batch.rows)} queries"
    what = "our records' disagreement with the model shown" if batch.shown else "class counts"
    return f"round {batch.round} of {campaign.rounds}: voting, {what}"


def ended_in_words(ending: Ending) -> str:
    """Return a line for the operator about the end of a campaign."""
    if ending.cause:
        return (
            f"the campaign has ended before it asked for votes: {EARLY_ENDS[ending.cause]}. No vote of "
            "ours has left for it; its coordinator may start another one"
        )
    released = answer_of(ending.answer).release_in_words(
        ending.labels_released, ending.queries_asked
    )
    return (
        f"the campaign has ended: {ending.queries_asked} queries asked, {released} released, at most "
        f"{in_words(ending.epsilon, ending.delta, ending.unit, neighbours=ending.adjacency)}"
    )
