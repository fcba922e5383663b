"""``pate-server export``, and ``ledger`` with its commands: reports from a ledger, and its copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aggregator_server.options import LedgerOption, folder_of
from pate.campaign.options import CampaignOption
from pate.runtime.command import print_json
from pate.runtime.home import write_file
from pate.runtime.options import HomeOption, JsonOption, of_campaign, of_output, of_storage
from pate.runtime.screen import Screen
from pate.storage import options
from pate.storage.manifest import read_manifest

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
    for command in (show, verify, backup, restore):
        ledger_app.command()(command)


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


def backup(
    out: options.OutOption,
    home: HomeOption = None,
    campaign: CampaignOption = "campaign",
    as_json: JsonOption = False,
) -> None:
    """Copy a campaign to the folder --out.

    Also while it runs; the copy is verified. It holds sums of votes and is as private as the
    server. Identities are not in it. Of a ledger in a database the copy is a file, too.
    """
    from aggregator_server.ledger.backup import back_up

    made = back_up(folder_of(home, campaign), out)
    options.say_made(Screen("pate-server"), made, campaign, as_json=as_json)


def restore(
    folder: options.BackupArgument,
    head: options.HeadOption = None,
    close: Annotated[
        bool,
        of_storage("--close", help="End the campaign where the copy ends."),
    ] = False,
    home: HomeOption = None,
    campaign: Annotated[
        str | None,
        of_campaign("--campaign", help="Its name. Default: the one it had", metavar="NAME"),
    ] = None,
    ledger: LedgerOption = None,
    signed_by: options.SignedByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a campaign from BACKUP.

    One that was not finished needs --head or --close: a ledger that goes back in time would
    spend its budget a second time. Only the files that a campaign's backup has are written. A
    backup that another key signed than the server's identity is refused.
    """
    from aggregator_server.ledger.backup import restore as put_back

    name = campaign or read_manifest(folder).name
    done = put_back(
        folder,
        folder_of(home, name),
        head=head,
        close=close,
        database=ledger,
        signed_by=signed_by,
    )
    what = (
        f"{done['folder']} is back: {done['phase']}, {done['labels_released']} labels, head "
        f"{done['head']}"
    )
    also = [
        (
            "labels that left after the copy was taken are not in it; the epsilon that is stated "
            "covers them"
        )
    ]
    options.say_restored(
        Screen("pate-server"), done, what, *(also if close else []), as_json=as_json
    )
