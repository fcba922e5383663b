"""``pate-party ledger`` and ``pate-party verify``: print the ledger, verify a statement against it."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from party.cli.home import NameOption, the_home
from party.options import PolicyOption
from pate.errors import DataError, LedgerError
from pate.runtime.command import print_json
from pate.runtime.options import HomeOption, JsonOption
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.accountant import Figure
    from party.ledger.ledger import PartyLedger
    from party.ledger.state import Campaign
    from pate.accounting.filters import Delta

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
    from party.ledger.words import campaign_in_words, number_of

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
        yield from rows_in_words(release, delta)
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
    what = f"all {len(campaigns)}"
    if rows:
        releases = number_of(len(rows), "release")
        what = f"{number_of(len(campaigns), 'campaign')} and {releases} of synthetic rows"
    yield f"{what} together, by our own accountant: {figure.in_words}"
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


def _series_in_words(campaigns: Sequence[Campaign], delta: Delta) -> Iterator[str]:
    from party.ledger.accountant import cumulative_epsilon
    from party.ledger.words import number_of
    from pate.formats.enrolment import readable

    offer = campaigns[0].offer
    figure = cumulative_epsilon([each.totals for each in campaigns], delta)
    yield (
        f"series {offer.announced.series}: {number_of(len(campaigns), 'campaign')} signed by the key "
        f"{readable(offer.key)}"
    )
    units = sum(each.voted for each in campaigns)
    yield (
        f"  who has voted in it does not vote in it again: {number_of(units, 'vote')} of our "
        f"{offer.announced.unit}s so far"
    )
    yield f"  the whole series, by our own accountant: {figure.in_words}"


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
