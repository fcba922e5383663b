"""``pate-server ledger backup`` and ``restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aggregator_server.options import LedgerOption
from pate.campaign.options import CampaignOption
from pate.runtime.options import HomeOption, JsonOption, of_campaign, of_storage
from pate.runtime.screen import Screen
from pate.storage import options
from pate.storage.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    import typer


def register(app: typer.Typer, folder_of: Callable[[Path | None, str], Path]) -> None:
    """Add the commands to ``pate-server ledger``."""

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

    app.command()(backup)
    app.command()(restore)
