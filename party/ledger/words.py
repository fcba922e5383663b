"""A party's ledger in words, for its own screens, and as JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from party.ledger.accountant import at_promised_delta, cumulative_epsilon, together
from pate.campaign.choices import EARLY_ENDS
from pate.codes import code_of
from pate.formats.enrolment import readable
from pate.formats.privacy_statement import in_words as guarantee
from pate.formats.privacy_statement import rounded_up
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.accountant import Figure, Totals
    from party.ledger.ledger import PartyLedger
    from party.ledger.state import Campaign
    from party.ledger.synthesis import Synthesis, SynthesisRecord
    from pate.accounting.filters import Delta
    from pate.campaign.offer import Offer
    from pate.storage.hash_chain import Json


def campaign_in_words(record: Campaign, delta: Delta, *, counts: bool = True) -> Iterator[str]:
    """Yield a line about a campaign, and one for each fact of it, indented.

    ``counts``: with the number of our records that voted in a series, which is private.
    """
    offer = record.offer
    announced = offer.announced
    asked_in_words = code_of(announced.code).asked_in_words
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
            f"  opened: the sum over {asked_in_words(queries)} in "
            f"{number_of(batches, 'batch', 'batches')}, with the votes of {', '.join(survivors)}"
        )
    for file in record.files.values():
        yield (
            f"  envelope {file.number} answered {file.at}, by a file of "
            f"{number_of(file.size, 'byte')} with SHA-256 {file.digest}"
        )
    if announced.series is not None:
        cast = number_of(_votes_of(record), "vote") if record.batches else "no vote"
        ours = f", with {cast} of our {announced.unit}s" if counts else ""
        yield f"  of the series {announced.series}{ours}"
    among = announced.neighbours
    yield f"  promised: {guarantee(announced.epsilon, announced.delta, announced.unit, neighbours=among)}"
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
            f"  ended {end.at}: {asked_in_words(end.queries_asked)} asked, {released} released, "
            f"at most {guarantee(end.epsilon, end.delta, announced.unit, neighbours=among)}"
        )
    yield from _own_figures(record.totals, delta)


def _own_figures(totals: Totals, delta: Delta) -> Iterator[str]:
    """Yield the epsilon at the promised delta, which can be compared, and at our own if it is another."""
    ours, theirs = cumulative_epsilon([totals], delta), at_promised_delta(totals)
    first = ours if theirs is None or theirs.delta == ours.delta else theirs
    yield f"  by our own accountant: {first.in_words}"
    promised = totals.offer.announced
    if promised.epsilon < first.epsilon < math.inf:
        every = first.observer == "server" and not promised.one_release
        yield (
            "  it is above the promised epsilon because our accountant divides delta among several filters"
            f"{', and counts every query that was voted on, answered or not' if every else ''}"
        )
    if first is not ours:
        sizes = ("smaller", "larger") if ours.delta < first.delta else ("larger", "smaller")
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
        f"votes on {code_of(record.offer.announced.code).asked_in_words(record.queries)} in "
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


# --- a whole ledger -------------------------------------------------------------------------------


def in_words(ledger: PartyLedger, delta: Delta) -> Iterator[str]:
    """Yield the lines of a whole ledger: campaigns, synthetic rows, keys ahead, series, and bounds."""
    campaigns, rows = ledger.campaigns(), ledger.syntheses()
    yield f"{ledger.path}: the chain holds, head {ledger.head}"
    if not campaigns and not rows:
        yield "nothing has left: no campaign was joined"
        return
    for each in campaigns:
        yield ""
        yield from campaign_in_words(each, delta)
    for release in rows:
        yield ""
        yield from _rows_in_words(release, delta)
    if bundles := ledger.bundles():
        used = sum(bool(each.round) for each in bundles)
        yield ""
        yield (
            f"keys ahead: {number_of(len(bundles), 'bundle')} left, each for one masked sum; {used} "
            f"{'was' if used == 1 else 'were'} used (--json has numbers and digests)"
        )
    for several in _by_series(campaigns):
        yield ""
        yield from _series_in_words(several, delta)
    yield ""
    what = f"all {len(campaigns)} together" if len(campaigns) > 1 else "in all"
    if rows:
        releases = number_of(len(rows), "release")
        what = f"{number_of(len(campaigns), 'campaign')} and {releases} of synthetic rows together"
    yield f"{what}, by our own accountant: {ledger.cumulative_epsilon(delta).in_words}"
    if bounds := ledger.bounds():
        yield f"our own accountant keeps: {bounds[-1].in_words}"
    if len(bounds) > 1:
        yield f"it kept {len(bounds)} bounds so far; together they promise {together(bounds)}"


def _by_series(campaigns: Iterable[Campaign]) -> list[list[Campaign]]:
    """Return the campaigns of each series in which votes of ours have left, in order."""
    found: dict[tuple[bytes, str], list[Campaign]] = {}
    for each in campaigns:
        if each.offer.announced.series is not None and each.batches:
            found.setdefault((each.offer.key, each.offer.announced.series), []).append(each)
    return list(found.values())


def _votes_of(record: Campaign) -> int:
    """Return the votes of units of a series: a patient's has two hashes, of its number and its record."""
    return record.voted // 2 if record.offer.announced.unit == "patient" else record.voted


def _series_in_words(campaigns: Sequence[Campaign], delta: Delta) -> Iterator[str]:
    offer = campaigns[0].offer
    figure = cumulative_epsilon([each.totals for each in campaigns], delta)
    yield (
        f"series {offer.announced.series}: {number_of(len(campaigns), 'campaign')} signed by the key "
        f"{readable(offer.key)}"
    )
    units = sum(map(_votes_of, campaigns))
    yield (
        f"  who has voted in it does not vote in it again: {number_of(units, 'vote')} of our "
        f"{offer.announced.unit}s so far"
    )
    yield f"  the whole series, by our own accountant: {figure.in_words}"


# --- synthetic rows -------------------------------------------------------------------------------


def _rows_in_words(record: SynthesisRecord, delta: Delta) -> Iterator[str]:
    """Yield lines about one release; ``delta`` is that of the party's cumulative epsilon."""
    made = record.synthesis
    yield f"synthetic rows {made.id}, reserved on {_day(record)}"
    yield f"  made: at most {made.rows} rows by {made.method}, {made.release}, of the schema {made.schema}"
    if record.spent_at is None:
        yield "  written: as far as is known, no; they count all the same"
    else:
        yield f"  written, SHA-256 {record.output}"
    if record.model is not None:
        yield f"  model kept, SHA-256 {record.model}: more rows of it cost nothing"
    yield f"  cost: {_cost(made)}"
    if not made.free:
        yield f"  by our own accountant: {cumulative_epsilon([], delta, [made]).in_words}"


def _rows_as_json(record: SynthesisRecord) -> dict[str, Json]:
    """Return one release; the costs are exact, as text."""
    return {
        **record.synthesis.body(),
        "reserved_on": _day(record),
        "output": record.output,
        "model_kept": record.model,
        "state": "reserved" if record.spent_at is None else "spent",
    }


def _day(record: SynthesisRecord) -> str:
    """Return when it was reserved: only the date.

    Learning a model from more records takes longer, so exact times of its start and of its end, or of
    the next release, would reveal about how many records there are.
    """
    return record.reserved_at[:10]


def _cost(made: Synthesis) -> str:
    if made.parent is not None:
        return f"nothing more: their model was paid for with synthetic rows {made.parent}"
    parts = [f"rho {float(made.rho):.4g}"]
    if made.epsilon is not None:
        parts.insert(0, f"pure epsilon {rounded_up(float(made.epsilon))}")
    if made.delta:
        parts.append(f"delta {float(made.delta):.3g}")
    return f"{', '.join(parts)}, per {made.unit}"


# --- as JSON --------------------------------------------------------------------------------------


def as_json(ledger: PartyLedger, delta: Delta) -> dict[str, object]:
    """Return a whole ledger; the costs of synthetic rows are exact, as text."""
    campaigns = ledger.campaigns()
    return {
        "head": ledger.head,
        "campaigns": [_as_json(each, delta) for each in campaigns],
        "synthetic_rows": [_rows_as_json(each) for each in ledger.syntheses()],
        "series": [_series_json(each, delta) for each in _by_series(campaigns)],
        "own_figure": _figure_json(ledger.cumulative_epsilon(delta)),
        "bounds": [each.body() for each in ledger.bounds()],
        "bundles": [asdict(each) for each in ledger.bundles()],
    }


def _as_json(record: Campaign, delta: Delta) -> dict[str, object]:
    return {
        "offer": record.offer.to_dict(),
        "joined_at": record.joined_at,
        "queries": record.queries,
        "batches": [asdict(each) for each in record.batches.values()],
        "files": [asdict(each) for each in record.files.values()],
        "ending": None if record.ending is None else asdict(record.ending),
        "own_figure": _figure_json(cumulative_epsilon([record.totals], delta)),
    }


def _series_json(campaigns: Sequence[Campaign], delta: Delta) -> dict[str, object]:
    return {
        "name": campaigns[0].offer.announced.series,
        "key": campaigns[0].offer.key.hex(),
        "campaigns": [each.offer.campaign for each in campaigns],
        "own_figure": _figure_json(cumulative_epsilon([each.totals for each in campaigns], delta)),
    }


def _figure_json(figure: Figure) -> dict[str, object]:
    """Return the JSON of a guarantee; epsilon is null if there is none at that delta."""
    made: dict[str, object] = asdict(figure)
    return made | {"epsilon": None if math.isinf(figure.epsilon) else figure.epsilon}
