"""``pate-party ledger`` and ``pate-party verify``: print the ledger, verify a statement against it."""

from __future__ import annotations

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
    from party.ledger.ledger import PartyLedger
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
    from party.ledger.words import as_json as all_of_it
    from party.ledger.words import in_words

    place = the_home(home, name)
    ledger, delta = _ledger_of(place), _delta(place, policy)
    if as_json:
        print_json(all_of_it(ledger, delta))
    else:
        _print([*in_words(ledger, delta)])


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
