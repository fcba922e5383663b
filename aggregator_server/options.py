"""The options of ``pate-server``: those that several commands have, and those of a campaign."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from aggregator_server.identities.store import FOLDER
from pate.campaign.options import CampaignOption, MechanismOptions
from pate.errors import UsageError
from pate.runtime.home import default_home
from pate.runtime.options import (
    CommandOptions,
    DropOption,
    HomeOption,
    WindowOption,
    of_data,
)

LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="PATE_LEDGER",
        help="Keep the ledger in this PostgreSQL database, postgresql+psycopg://USER@HOST/DATABASE, "
        "one for any number of campaigns. Its password goes into ~/.pgpass, never here. Default: a "
        "file in the campaign's folder.",
        metavar="URL",
    ),
]


_page = partial(typer.Option, rich_help_panel="The page")


def folder_of(home: Path | None, campaign: str) -> Path:
    """Return the folder of a campaign.

    Raises:
        UsageError: if nothing can be called so.
    """
    if not campaign or campaign.startswith(".") or "/" in campaign or campaign == FOLDER:
        raise UsageError(
            f"{campaign!r} cannot be the name of a campaign: it names a folder beside {FOLDER!r}"
        )
    return (home or default_home("server")) / campaign


@dataclass(frozen=True, kw_only=True)
class ServingOptions(CommandOptions):
    """What a campaign is served with, at its start and when it is resumed.

    Each field, here and below, is the option of that name.
    """

    public: Annotated[
        Path | None,
        of_data(
            help="The unlabelled public set: a folder of images, an .npz, an IDX file, CSV or Parquet.",
            metavar="PATH",
        ),
    ] = None
    drop: DropOption = None
    window: WindowOption = None
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on for parties. Others than loopback need `pate-server init`."
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port to listen on for parties. Default: the one that `pate-server init` was told, else "
            "9092.",
        ),
    ] = None
    student_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Loopback port on which the student gets its labels."),
    ] = 9093
    page: Annotated[
        bool,
        _page("--page/--no-page", help="Serve a page that shows how the campaign stands."),
    ] = True
    page_host: Annotated[
        str,
        _page(help="Address of the page. Others than loopback need `pate-server init`."),
    ] = "127.0.0.1"
    page_port: Annotated[
        int | None,
        _page(
            min=0,
            max=65535,
            help="Port of the page; 0: any free one. Default: 9094, or a free one if that is taken.",
        ),
    ] = None
    home: HomeOption = None
    campaign: CampaignOption = "campaign"
    ledger: LedgerOption = None
    patience: Annotated[
        float,
        typer.Option(
            min=0,
            help="Seconds to wait for the remaining parties once --min-parties have voted.",
        ),
    ] = 120.0
    linger: Annotated[
        float,
        typer.Option(
            min=-1,
            help="Seconds to keep serving labels after the end until a student has them all; -1: for ever.",
        ),
    ] = -1.0

    @property
    def dropped(self) -> tuple[str, ...]:
        """Each ``--drop``."""
        return tuple(self.drop or ())

    @property
    def folder(self) -> Path:
        """Of the campaign.

        Raises:
            UsageError: if nothing can be called so.
        """
        return folder_of(self.home, self.campaign)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(ServingOptions):
    """What a campaign is resumed with."""

    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            help="The last head that the server had, NUMBER:DIGEST, known from elsewhere than its ledger. "
            "A ledger that lacks it is refused.",
        ),
    ] = None
    close: Annotated[
        bool,
        typer.Option(
            "--close",
            help="In a database, where the campaign's folder is lost: end the campaign where its ledger "
            "ends. Its labels are kept, and nothing more is answered; safe if the database is an old one.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class CampaignOptions(ServingOptions, MechanismOptions):
    """What a campaign is started with."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CampaignOptions):
    """What ``pate-server check`` is asked: the options of a campaign, none of them needed, and more.

    Attributes:
        clock: this machine's.
        given: names of those that were typed, or stand in the configuration file.
    """

    expected_teachers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="About how many teachers all parties have, to say how many queries the budget pays "
            "for. Default: 10 a party.",
        ),
    ] = None
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for a check; reading data may take 12 times that."),
    ] = 5.0
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    given: frozenset[str] = frozenset()

    @property
    def place(self) -> Path:
        """The server's home."""
        return self.home or default_home("server")
