"""``pate-party ledger`` and ``pate-party verify``: print the ledger, verify a statement against it."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from party.cli.naming import NameOption, the_home
from party.options import PolicyOption
from pate.campaign.choices import EARLY_ENDS
from pate.codes import code_of
from pate.errors import DataError, LedgerError
from pate.runtime.command import print_json
from pate.runtime.options import HomeOption, JsonOption
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.accountant import Figure, Totals
    from party.ledger.campaigns import Campaign
    from party.ledger.ledger import PartyLedger
    from pate.accounting.filters import Delta
    from pate.campaign.offer import Offer

#: No privacy statement is larger.
_LARGEST_STATEMENT = 2**20


def ledger(
    home: HomeOption = None,
    name: NameOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print what left this machine, and its epsilon.

    Votes per campaign, synthetic rows, and this party's cumulative epsilon.
    The whole chain is checked first. It works while a party runs.
    """
    from party.cli.synthesize import as_json as rows_as_json

    place = the_home(home, name)
    ledger = _ledger_of(place)
    delta = _delta(place, policy)
    figure = ledger.cumulative_epsilon(delta)
    if as_json:
        print_json(
            {
                "head": ledger.head,
                "campaigns": [_as_json(each, delta) for each in ledger.campaigns()],
                "synthetic_rows": [rows_as_json(each) for each in ledger.syntheses()],
                "series": [_series_json(each, delta) for each in _by_series(ledger.campaigns())],
                "own_figure": _figure_json(figure),
                "bounds": [each.body() for each in ledger.bounds()],
                "bundles": [asdict(each) for each in ledger.bundles()],
            }
        )
        return
    _print([*_in_words(ledger, delta, figure)])


def verify(
    statement: Annotated[
        Path,
        typer.Argument(help="A published privacy statement (privacy.json).", metavar="STATEMENT"),
    ],
    home: HomeOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a published privacy statement by this party's ledger.

    Ends with an error if anything differs from the signed terms, from what this party answered, or
    from what the figures come to. What this party cannot tell is "unclear", and no error.
    """
    from party.ledger.verify import agrees, unclear, verify_statement
    from pate.formats.privacy_statement import PrivacyStatement

    own = _ledger_of(the_home(home, name))
    published = PrivacyStatement.from_json(_text(statement))
    checks = verify_statement(published, own.find(published.campaign))
    if as_json:
        print_json({
            "agrees": agrees(checks),
            "unclear": unclear(checks),
            "checks": [asdict(each) for each in checks],
        })  # fmt: skip
    else:
        _print([str(each) for each in checks], indent=9)
        hold = sum(each.finding == "ok" for each in checks)
        said = f"{hold} of {len(checks)} hold"
        if agrees(checks):
            said += "; nothing differs"
            if names := unclear(checks):
                said += f"; this party cannot tell: {', '.join(names)}"
        _print([said])
    if not agrees(checks):
        wrong = [each.name for each in checks if each.finding == "differs"]
        raise LedgerError(f"{statement} does not agree with our ledger: {', '.join(wrong)}")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_STATEMENT + 1)
        if len(body) > _LARGEST_STATEMENT:
            raise DataError(f"{path} is too large for a privacy statement")
        return body.decode()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text") from error


def _ledger_of(home: Path) -> PartyLedger:
    from party.ledger.ledger import LEDGER_FILE, PartyLedger

    return PartyLedger(home / LEDGER_FILE, read_only=True)


def _delta(home: Path, policy: Path | None) -> Delta:
    from party.policy.file import policy_of

    return policy_of(home, loopback=False, file=policy).divided_delta


def _print(lines: list[str], indent: int = 0) -> None:
    """Print lines; on a terminal, continuation lines are indented by ``indent`` columns if it is given."""
    console = Display()
    for line in lines:
        if indent and console.is_terminal:
            further = " " * indent
            line = textwrap.fill(line, console.width, subsequent_indent=further)  # noqa: PLW2901
        # Never as markup: others choose the names.
        console.print(line, soft_wrap=True, markup=False)


def _in_words(ledger: PartyLedger, delta: Delta, figure: Figure) -> Iterator[str]:
    from party.cli.synthesize import in_words as rows_in_words
    from party.ledger.accountant import together

    campaigns, rows = ledger.campaigns(), ledger.syntheses()
    yield f"{ledger.path}: the chain holds, head {ledger.head}"
    if not campaigns and not rows:
        yield "nothing has left: no campaign was joined"
        return
    for each in campaigns:
        yield ""
        yield from _campaign_in_words(each, delta)
    for release in rows:
        yield ""
        yield from rows_in_words(release, delta)
    if bundles := ledger.bundles():
        used = sum(bool(each.round) for each in bundles)
        yield ""
        yield (
            f"keys ahead: {_number(len(bundles), 'bundle')} left, each for one masked sum; {used} "
            f"{'was' if used == 1 else 'were'} used (--json has numbers and digests)"
        )
    for several in _by_series(campaigns):
        yield ""
        yield from _series_in_words(several, delta)
    yield ""
    what = f"all {len(campaigns)}"
    if rows:
        what = f"{_number(len(campaigns), 'campaign')} and {_number(len(rows), 'release')} of synthetic rows"
    yield f"{what} together, by our own accountant: {figure.in_words}"
    if bounds := ledger.bounds():
        yield f"our own accountant keeps: {bounds[-1].in_words}"
    if len(bounds) > 1:
        yield f"it kept {len(bounds)} bounds so far; together they promise {together(bounds)}"


def _campaign_in_words(record: Campaign, delta: Delta) -> Iterator[str]:
    from pate.formats.enrolment import readable
    from pate.formats.privacy_statement import in_words, neighbours_of

    offer = record.offer
    announced = offer.announced
    yield f"campaign {offer.campaign}, joined {record.joined_at}"
    yield f"  signed by the key {readable(offer.key)}"
    yield (
        f"  asked: {announced.aggregator} over a public set of {_number(announced.queries, 'query')}"
        f", {_number(announced.rounds, 'round')}"
    )
    if offer.settled is not None:
        names = offer.settled.names
        yield (f"  with {_number(len(names), 'party')} ({', '.join(names)}), {_who_votes(offer)}")
    yield f"  left: {_votes_in_words(record)}"
    for survivors, batches, queries in _openings(record):
        yield (
            f"  opened: the sum over {_number(queries, 'query')} in "
            f"{_number(batches, 'batch', 'batches')}, with the votes of {', '.join(survivors)}"
        )
    for file in record.files.values():
        yield (
            f"  envelope {file.number} answered {file.at}, by a file of "
            f"{_number(file.size, 'byte')} with SHA-256 {file.digest}"
        )
    if announced.series is not None:
        cast = _number(record.voted, "vote") if record.batches else "no vote"
        yield f"  of the series {announced.series}, with {cast} of our {announced.unit}s"
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
        released = _number(end.labels_released, "label")
        if not answer.labelled:
            released = answer.release_in_words(end.labels_released, end.queries_asked)
        yield (
            f"  ended {end.at}: {_number(end.queries_asked, 'query')} asked, {released} released, "
            f"at most {in_words(end.epsilon, end.delta, announced.unit, neighbours=among)}"
        )
    yield from _own_figures(record.totals, delta)


def _own_figures(totals: Totals, delta: Delta) -> Iterator[str]:
    """Yield the epsilon at the promised delta, which can be compared, and at our own if it is another."""
    from party.ledger.accountant import at_promised_delta, cumulative_epsilon

    ours, theirs = cumulative_epsilon([totals], delta), at_promised_delta(totals)
    if theirs is None or theirs.delta == ours.delta:
        yield f"  by our own accountant: {ours.in_words}"
        return
    sizes = ("smaller", "larger") if ours.delta < theirs.delta else ("larger", "smaller")
    yield f"  by our own accountant: {theirs.in_words}"
    yield f"  the same at our own, {sizes[0]} delta (so epsilon is {sizes[1]}): {ours.in_words}"


def _by_series(campaigns: Iterable[Campaign]) -> list[list[Campaign]]:
    """Return the campaigns of each series in which votes of ours have left, in order."""
    found: dict[tuple[bytes, str], list[Campaign]] = {}
    for each in campaigns:
        if each.offer.announced.series is not None and each.batches:
            found.setdefault((each.offer.key, each.offer.announced.series), []).append(each)
    return list(found.values())


def _series_in_words(campaigns: Sequence[Campaign], delta: Delta) -> Iterator[str]:
    from party.ledger.accountant import cumulative_epsilon
    from pate.formats.enrolment import readable

    offer = campaigns[0].offer
    figure = cumulative_epsilon([each.totals for each in campaigns], delta)
    yield (
        f"series {offer.announced.series}: {_number(len(campaigns), 'campaign')} signed by the key "
        f"{readable(offer.key)}"
    )
    units = sum(each.voted for each in campaigns)
    yield (
        f"  who has voted in it does not vote in it again: {_number(units, 'vote')} of our "
        f"{offer.announced.unit}s so far"
    )
    yield f"  the whole series, by our own accountant: {figure.in_words}"


def _who_votes(offer: Offer) -> str:
    announced, how = offer.announced, code_of(offer.announced.code).in_words
    if not announced.records_vote:
        teachers = 0 if offer.settled is None else offer.settled.teachers
        return _number(teachers, "teacher") + (how and f", {how}")
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
        f"votes on {_number(record.queries, 'query')} in "
        f"{_number(len(batches), 'batch', 'batches')}"
        + (f", {_number(again, 'batch', 'batches')} again" if again else "")
        + f", from {first} to {last}; {how}"
    )


def _openings(record: Campaign) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Yield survivors, batches and queries, one for each list of survivors."""
    for survivors in dict.fromkeys(each.survivors for each in record.opened):
        if survivors is not None:
            these = [each for each in record.opened if each.survivors == survivors]
            yield survivors, len(these), sum(each.queries for each in these)


def _number(count: int, one: str, many: str | None = None) -> str:
    if count == 1:
        return f"1 {one}"
    plural = many or (one[:-1] + "ies" if one.endswith("y") else one + "s")
    return f"{count} {plural}"


def _as_json(record: Campaign, delta: Delta) -> dict[str, object]:
    from party.ledger.accountant import cumulative_epsilon

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
    from party.ledger.accountant import cumulative_epsilon

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
