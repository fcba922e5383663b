"""``pate-server export``, ``ledger show`` and ``ledger verify``: reports from a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aggregator_server.options import LedgerOption, folder_of
from pate.campaign.options import CampaignOption
from pate.runtime.command import print_json
from pate.runtime.home import write_file
from pate.runtime.options import HomeOption, JsonOption, of_output, of_storage
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    import typer

OutOption = Annotated[Path, of_output(help="Where to write the labels, as JSON.", metavar="FILE")]
HeadOption = Annotated[
    str | None,
    of_storage(help="A head that must be in the chain.", metavar="NUMBER:DIGEST"),
]


def register(app: typer.Typer, ledger_app: typer.Typer) -> None:
    """Add the commands to ``pate-server`` and to ``pate-server ledger``."""
    app.command()(export)
    ledger_app.command()(show)
    ledger_app.command()(verify)


def export(out: OutOption, home: HomeOption = None, campaign: CampaignOption = "campaign") -> None:
    """Write labels and privacy statement to a file.

    `pate-student train --labels` reads it.
    """
    from aggregator_server.results.report import label_set

    labels = label_set(folder_of(home, campaign))
    write_file(out, labels.to_json().encode(), mode=0o644)
    Screen("pate-server").say(f"{labels.content_in_words} written to {out}")


def show(
    home: HomeOption = None, campaign: CampaignOption = "campaign", as_json: JsonOption = False
) -> None:
    """Print the ledger's entries, one a line. It is private to the server."""
    from aggregator_server.results.report import entries, show_entries

    found = entries(folder_of(home, campaign))
    if as_json:
        print_json(found)
    else:
        show_entries(found)


def verify(
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    ledger: LedgerOption = None,
    head: HeadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay the ledger: chain, costs, budget, releases."""
    from aggregator_server.results.report import verify as verified

    found = verified(folder_of(home, campaign), head, ledger)
    if as_json:
        print_json(found)
    else:
        Screen("pate-server").say(
            f"the ledger holds: {found['entries']} entries, {found['labels_released']} labels, "
            f"head {found['head']}"
        )
