"""``pate-server ledger backup`` and ``restore``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator_server.options import LedgerOption
from pate.campaign.options import CampaignOption
from pate.runtime.command import print_json
from pate.runtime.options import HomeOption, JsonOption, SignedByOption, UnsignedOption
from pate.runtime.screen import Screen
from pate.storage.manifest import signed_line

if TYPE_CHECKING:
    from collections.abc import Callable


def register(app: typer.Typer, folder_of: Callable[[Path | None, str], Path]) -> None:
    """Add the commands to ``pate-server ledger``.

    Args:
        app: the group.
        folder_of: the folder of a campaign, from ``--home`` and its name.
    """

    def backup(
        out: Annotated[
            Path,
            typer.Option(help="The folder to make for this one backup.", metavar="DIR"),
        ],
        home: HomeOption = None,
        campaign: CampaignOption = "campaign",
        as_json: JsonOption = False,
    ) -> None:
        """Copy a campaign to the folder --out, also while it runs, and verify the copy.

        It holds sums of votes and is as private as the server. Identities are not in it. Of a ledger
        in a database the copy is a file, too.
        """
        from aggregator_server.ledger.backup import back_up

        made = back_up(folder_of(home, campaign), out)
        if as_json:
            print_json(made)
            return
        screen = Screen("pate-server")
        screen.say(f"{out} holds {campaign} up to its entry {made['head']}, and verifies")
        screen.say(signed_line(str(made["signer"])))
        screen.say(
            "note the head in another place than the copy's: whoever restores is asked for the newest"
        )

    def restore(
        folder: Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")],
        head: Annotated[
            str | None,
            typer.Option(
                help="The last head that the server had once it had stopped, NUMBER:DIGEST, known from "
                "elsewhere than the copy. A copy that lacks it is refused."
            ),
        ] = None,
        close: Annotated[
            bool,
            typer.Option(
                "--close",
                help="End the campaign where the copy ends: its labels are kept, and nothing more is "
                "answered. What was left of the budget is lost; safe whatever followed the copy.",
            ),
        ] = False,
        home: HomeOption = None,
        campaign: Annotated[
            str | None,
            typer.Option("--campaign", help="Under which name. Default: the one it had."),
        ] = None,
        ledger: LedgerOption = None,
        signed_by: SignedByOption = None,
        unsigned: UnsignedOption = False,
        as_json: JsonOption = False,
    ) -> None:
        """Put BACKUP back as a campaign; one that was not finished needs --head or --close.

        A ledger that goes back in time would spend its budget a second time. Only the files that a
        campaign's backup has are written. A backup that another key signed than the server's
        identity is refused.
        """
        from aggregator_server.ledger.backup import restore as put_back
        from pate.storage.manifest import read_manifest

        name = campaign or read_manifest(folder).name
        done = put_back(
            folder,
            folder_of(home, name),
            head=head,
            close=close,
            database=ledger,
            signed_by=signed_by,
            unsigned=unsigned,
        )
        if as_json:
            print_json(done)
            return
        screen = Screen("pate-server")
        screen.say(
            f"{done['folder']} is back: {done['phase']}, {done['labels_released']} labels, head "
            f"{done['head']}"
        )
        screen.say(signed_line(str(done["signer"])))
        if close:
            screen.say(
                "labels that left after the copy was taken are not in it; the epsilon that is stated "
                "covers them"
            )

    app.command()(backup)
    app.command()(restore)
