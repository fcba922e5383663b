"""The campaigns of a party's ledger in words, for its own screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from party.ledger.accountant import at_promised_delta, cumulative_epsilon
from pate.campaign.choices import EARLY_ENDS
from pate.codes import code_of
from pate.formats.enrolment import readable
from pate.formats.privacy_statement import in_words, neighbours_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.accountant import Totals
    from party.ledger.state import Campaign
    from pate.accounting.filters import Delta
    from pate.campaign.offer import Offer


def campaign_in_words(record: Campaign, delta: Delta, *, counts: bool = True) -> Iterator[str]:
    """Yield a line about a campaign, and one for each fact of it, indented.

    ``counts``: with the number of our records that voted in a series, which is private.
    """
    offer = record.offer
    announced = offer.announced
    yield f"campaign {offer.campaign}, joined {record.joined_at}"
    yield f"  signed by the key {readable(offer.key)}"
    yield (
        f"  asked: {announced.aggregator} over a public set of {number_of(announced.queries, 'query')}"
        f", {number_of(announced.rounds, 'round')}"
    )
    if offer.settled is not None:
        names = offer.settled.names
        yield (f"  with {number_of(len(names), 'party')} ({', '.join(names)}), {_who_votes(offer)}")
    yield f"  left: {_votes_in_words(record)}"
    for survivors, batches, queries in _openings(record):
        yield (
            f"  opened: the sum over {number_of(queries, 'query')} in "
            f"{number_of(batches, 'batch', 'batches')}, with the votes of {', '.join(survivors)}"
        )
    for file in record.files.values():
        yield (
            f"  envelope {file.number} answered {file.at}, by a file of "
            f"{number_of(file.size, 'byte')} with SHA-256 {file.digest}"
        )
    if announced.series is not None:
        cast = number_of(record.voted, "vote") if record.batches else "no vote"
        ours = f", with {cast} of our {announced.unit}s" if counts else ""
        yield f"  of the series {announced.series}{ours}"
    among = neighbours_of(
        announced.unit,
        records_vote=announced.records_vote,
        series=announced.series,
        code=announced.code,
    )
    yield f"  promised: {in_words(announced.epsilon, announced.delta, announced.unit, neighbours=among)}"
    if record.ending is not None and record.ending.cause:
        yield (
            f"  ended {record.ending.at}, before it asked for votes: {EARLY_ENDS[record.ending.cause]}"
        )
    elif record.ending is not None:
        end, answer = record.ending, code_of(announced.code).answer
        released = number_of(end.labels_released, "label")
        if not answer.labelled:
            released = answer.release_in_words(end.labels_released, end.queries_asked)
        yield (
            f"  ended {end.at}: {number_of(end.queries_asked, 'query')} asked, {released} released, "
            f"at most {in_words(end.epsilon, end.delta, announced.unit, neighbours=among)}"
        )
    yield from _own_figures(record.totals, delta)


def _own_figures(totals: Totals, delta: Delta) -> Iterator[str]:
    """Yield the epsilon at the promised delta, which can be compared, and at our own if it is another."""
    ours, theirs = cumulative_epsilon([totals], delta), at_promised_delta(totals)
    if theirs is None or theirs.delta == ours.delta:
        yield f"  by our own accountant: {ours.in_words}"
        return
    sizes = ("smaller", "larger") if ours.delta < theirs.delta else ("larger", "smaller")
    yield f"  by our own accountant: {theirs.in_words}"
    yield f"  the same at our own, {sizes[0]} delta (so epsilon is {sizes[1]}): {ours.in_words}"


def _who_votes(offer: Offer) -> str:
    announced, how = offer.announced, code_of(offer.announced.code).in_words
    if not announced.records_vote:
        teachers = 0 if offer.settled is None else offer.settled.teachers
        return number_of(teachers, "teacher") + (how and f", {how}")
    most = f", at most {announced.most_votes} of a party on a count"
    return f"records vote{how and f', {how}'}{most}"


def _votes_in_words(record: Campaign) -> str:
    if not record.batches:
        return "no votes"
    how = {
        ("masked", "central"): "masked: nobody saw our votes alone, the server their exact sum",
        ("masked", "distributed"): "masked, with a noise share: nobody saw our votes alone, the "
        "server their noisy sum",
        ("plain", "central"): "plain: the server saw our vote vectors",
    }[record.offer.announced.sums.aggregation, record.offer.announced.sums.noise]
    batches = [*record.batches.values()]
    again = sum(len(each.answered_at) for each in batches) - len(batches)
    first, last = batches[0].answered_at[0], max(each.answered_at[-1] for each in batches)
    return (
        f"votes on {number_of(record.queries, 'query')} in "
        f"{number_of(len(batches), 'batch', 'batches')}"
        + (f", {number_of(again, 'batch', 'batches')} again" if again else "")
        + f", from {first} to {last}; {how}"
    )


def _openings(record: Campaign) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield survivors, batches and queries, one for each list of survivors."""
    for survivors in dict.fromkeys(each.survivors for each in record.opened):
        if survivors is not None:
            these = [each for each in record.opened if each.survivors == survivors]
            yield survivors, len(these), sum(each.queries for each in these)


def number_of(count: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun."""
    if count == 1:
        return f"1 {one}"
    plural = many or (one[:-1] + "ies" if one.endswith("y") else one + "s")
    return f"{count} {plural}"
