"""The options of ``pate-server``: shared ones, and those of a campaign."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pate.campaign.choices import Guess
from pate.campaign.options import CampaignOption, MechanismOptions, RarestOption
from pate.errors import UsageError
from pate.runtime.home import default_home
from pate.runtime.options import (
    CommandOptions,
    DropOption,
    EncoderOption,
    HomeOption,
    TextOption,
    WindowOption,
    of_campaign,
    of_data,
    of_network,
    of_storage,
)

LedgerOption = Annotated[
    str | None,
    of_storage(
        "--ledger",
        envvar="PATE_LEDGER",
        help="PostgreSQL for the ledger. Default: a file in --home",
        metavar="URL",
    ),
]


#: The folder of the server's identity, beside those of its campaigns.
FOLDER: Final = "identity"
#: Default validity of a one-time code.
CODE_LIFE: Final = dt.timedelta(days=14)
#: Default names of the public set in the working directory.
PUBLIC_NAMES: Final = ("public", "public.npz", "public.csv", "public.parquet")


def public_here() -> Path:
    """Return the only public set in the working directory under one of its default names."""
    found = [Path(name) for name in PUBLIC_NAMES if Path(name).exists()]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(
            f"this folder has {', '.join(map(str, found))}: say which is the public set with --public"
        )
    raise UsageError(
        "there is no public set: put unlabelled inputs into ./public (a folder of images), public.npz, "
        "public.csv or public.parquet, or name them with --public PATH; `pate new .` writes an "
        "example to try"
    )


def folder_of(home: Path | None, campaign: str) -> Path:
    """Return the folder of a campaign."""
    if not campaign or campaign.startswith(".") or "/" in campaign or campaign == FOLDER:
        raise UsageError(
            f"{campaign!r} cannot be the name of a campaign: it names a folder beside {FOLDER!r}"
        )
    return (home or default_home("server")) / campaign


@dataclass(frozen=True, kw_only=True)
class ServingOptions(CommandOptions):
    """Options of serving a campaign, at its start and on resuming.

    Each field, here and below, is the option of that name.
    """

    public: Annotated[
        Path | None,
        of_data(help="Public set. Default: ./public (or .npz, .csv, .parquet)", metavar="PATH"),
    ] = None
    drop: DropOption = None
    text: TextOption = None
    window: WindowOption = None
    encoder: EncoderOption = None
    host: Annotated[
        str,
        of_network(help="Listen here for parties.", metavar="ADDRESS"),
    ] = "127.0.0.1"
    port: Annotated[
        int | None,
        of_network(
            min=0,
            max=65535,
            help="Port for parties. Default: that of `init`, else 9092",
            metavar="PORT",
        ),
    ] = None
    student_port: Annotated[
        int,
        of_network(min=0, max=65535, help="Loopback port for the student.", metavar="PORT"),
    ] = 9093
    envelopes: Annotated[
        Path | None,
        of_network(help="By envelope: files to and from parties are here.", metavar="DIR"),
    ] = None
    by_envelope: Annotated[
        str | None,
        of_network(help="Only these parties by envelope: a,b. Default: all", metavar="NAMES"),
    ] = None
    answer_days: Annotated[
        float | None,
        of_network(min=0.001, help="To answer an envelope. Default: no end", metavar="DAYS"),
    ] = None
    page: Annotated[
        bool,
        of_network("--page/--no-page", help="Show the campaign in a browser."),
    ] = True
    page_host: Annotated[
        str,
        of_network(help="Address of the page.", metavar="ADDRESS"),
    ] = "127.0.0.1"
    page_port: Annotated[
        int | None,
        of_network(
            min=0,
            max=65535,
            help="Port of the page; 0: any. Default: 9094, or a free one",
            metavar="PORT",
        ),
    ] = None
    home: HomeOption = None
    campaign: CampaignOption = "campaign"
    ledger: LedgerOption = None
    patience: Annotated[
        float,
        of_network(min=0, help="Wait this long for the last votes.", metavar="SECONDS"),
    ] = 120.0
    linger: Annotated[
        float,
        of_network(min=-1, help="Serve labels after the end; -1: until read.", metavar="SECONDS"),
    ] = -1.0

    @property
    def dropped(self) -> tuple[str, ...]:
        """Each ``--drop``."""
        return tuple(self.drop or ())

    @property
    def place(self) -> Path:
        """The server's home."""
        return self.home or default_home("server")

    @property
    def folder(self) -> Path:
        """Of the campaign."""
        return folder_of(self.home, self.campaign)


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(ServingOptions):
    """Options of resuming a campaign."""

    head: Annotated[
        str | None,
        of_storage("--head", help="A head that the ledger must have.", metavar="NUMBER:DIGEST"),
    ] = None
    close: Annotated[
        bool,
        of_storage("--close", help="End the campaign with what was released."),
    ] = False


@dataclass(frozen=True, kw_only=True)
class CampaignOptions(ServingOptions, MechanismOptions):
    """Options of starting a campaign."""

    rarest: RarestOption = None

    @property
    def guess(self) -> Guess:
        """The coordinator's guesses."""
        return Guess(records=self.expected_records, rarest=self.rarest)


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CampaignOptions):
    """Options of ``pate-server check``: those of a campaign, all optional, and further ones.

    ``given`` are the names of those on the command line or in the configuration file.
    """

    expected_teachers: Annotated[
        int | None,
        of_campaign(
            min=1, help="Your guess at all teachers. Default: as many as the terms ask for"
        ),
    ] = None
    timeout: Annotated[
        float,
        of_network(min=0.1, help="For one check; data: 12 times that.", metavar="SECONDS"),
    ] = 5.0
    clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    given: frozenset[str] = frozenset()
