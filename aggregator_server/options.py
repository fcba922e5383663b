"""The options of ``pate-server``: those that several commands have, and those of a campaign."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from aggregator_server.identities.store import FOLDER
from pate.errors import UsageError
from pate.runtime.command import ConfigOption, JsonOption
from pate.runtime.home import default_home

HomeOption = Annotated[
    Path | None,
    typer.Option(help="Where campaigns are kept. Default: your state directory.", metavar="DIR"),
]
CampaignOption = Annotated[str, typer.Option("--campaign", help="Name of the campaign.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="PATE_LEDGER",
        help="Keep the ledger in this PostgreSQL database, postgresql+psycopg://USER@HOST/DATABASE, "
        "one for any number of campaigns. Its password goes into ~/.pgpass, never here. Default: a "
        "file in the campaign's folder.",
        metavar="URL",
        show_default=False,
    ),
]


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
class ServingOptions:
    """What a campaign is served with, at its start and when it is resumed.

    Each field, here and below, is the option of that name.
    """

    public: Annotated[
        Path | None,
        typer.Option(
            help="The unlabelled public set: a folder of images, an .npz, an IDX file, CSV or Parquet.",
            metavar="PATH",
        ),
    ] = None
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Table: a column of --public to leave out; repeat for more.", metavar="COLUMN"
        ),
    ] = None
    window: Annotated[
        tuple[int, int] | None,
        typer.Option(
            help="Images of more than 8 bits a pixel: the values that become black and white, for the public "
            "set and for every party, such as 0 4095. It is part of the campaign's terms.",
            metavar="LOW HIGH",
            show_default=False,
        ),
    ] = None
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
            show_default=False,
        ),
    ] = None
    student_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Loopback port on which the student gets its labels."),
    ] = 9093
    page: Annotated[
        bool,
        typer.Option("--page/--no-page", help="Serve a page that shows how the campaign stands."),
    ] = True
    page_host: Annotated[
        str,
        typer.Option(help="Address of the page. Others than loopback need `pate-server init`."),
    ] = "127.0.0.1"
    page_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Port of the page; 0: any free one. Default: 9094, or a free one if that is taken.",
            show_default=False,
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
    as_json: JsonOption = False
    config: ConfigOption = None

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
class MechanismOptions:
    """What a campaign is: mechanism, budget, parties."""

    aggregator: Annotated[
        str,
        typer.Option(
            help="Mechanism: lnmax, gnmax, confident-gnmax (answers only where teachers agree), "
            "interactive-gnmax (answers where they agree and the student does not know), or "
            "neighbour (no teachers: each record votes once, at its nearest public input, so that "
            "all labels together cost one release)."
        ),
    ] = "confident-gnmax"
    parties: Annotated[
        str, typer.Option(help="How many parties to wait for, or their names, comma separated.")
    ] = "3"
    min_parties: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With fewer the campaign stops. Default: two thirds of the roster; masked: more "
            "than that.",
        ),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(help="Class names, comma separated. Default: the parties', who must agree."),
    ] = None
    epsilon: Annotated[
        float, typer.Option(help="Hard budget: no label leaves once it is spent.")
    ] = 2.0
    delta: Annotated[
        float | None,
        typer.Option(
            help="At which epsilon holds; well below one over all records. Default: 1e-5; gated 1e-6, as "
            "much as parties set aside for it."
        ),
    ] = None
    unit: Annotated[
        str, typer.Option(help="What is protected: a record, a patient, or a whole party.")
    ] = "record"
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds of labels. Default: 2 if interactive, else 1.")
    ] = None
    first_round_share: Annotated[
        str, typer.Option(help="Share of the budget that the first of several rounds may use.")
    ] = "1/2"
    max_queries: Annotated[
        int | None, typer.Option(min=1, help="Ask at most so many queries, budget or not.")
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(
            help="Confident: votes that the top class needs, about. Neighbour: noisy votes by which "
            "it must lead."
        ),
    ] = None
    interactive_threshold: Annotated[
        str | None,
        typer.Option(help="Interactive: votes by which teachers must exceed the student's belief."),
    ] = None
    sigma1: Annotated[
        str | None, typer.Option(help="Standard deviation of the threshold's noise, in votes.")
    ] = None
    sigma2: Annotated[
        str | None, typer.Option(help="Standard deviation of the noise on each count, in votes.")
    ] = None
    scale: Annotated[
        str | None, typer.Option(help="LNMax: scale of the Laplace noise (1/gamma), in votes.")
    ] = None
    confidence: Annotated[
        str | None,
        typer.Option(help="Interactive: student's probability at which its label is reinforced."),
    ] = None
    publish: Annotated[
        str,
        typer.Option(
            help="capped: labels leave as they are answered, under a cap that looks at no vote. "
            "gated: those of one batch (--max-queries) leave together, if a private test finds that "
            "these votes cost little; far more labels for teachers that agree, or none at all."
        ),
    ] = "capped"
    gate_order: Annotated[
        float | None,
        typer.Option(
            help="Gated: Renyi order. Take it from `pate account --gate` on public votes."
        ),
    ] = None
    aggregation: Annotated[
        str | None,
        typer.Option(
            help="masked: this server learns sums of votes alone. plain: it sees every party's "
            "votes. Default: masked from three parties on."
        ),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            help="central: this server adds the noise. distributed: every party adds a share to its "
            "masked votes, so that this server sees no exact sum either. Default: central; of "
            "masked neighbour votes distributed."
        ),
    ] = None
    colluders: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Masked: parties that may be in league with this server without harm. Default: "
            "the most that --min-parties allows, below a third of the roster.",
        ),
    ] = None
    vote_proofs: Annotated[
        bool,
        typer.Option(
            "--vote-proofs",
            help="Masked: every party proves, showing nothing else, that each row of its votes sums "
            "to its teachers and has no negative count. Who fails is named and left out.",
        ),
    ] = False
    class_quota: Annotated[
        bool,
        typer.Option(
            "--class-quota",
            help="Interactive: later rounds ask first about inputs that the student takes for classes "
            "with few labels so far. All of that is public: it costs nothing.",
        ),
    ] = False
    gate_share: Annotated[
        float, typer.Option(help="Gated: share of the divergence that the test itself may cost.")
    ] = 0.15
    representatives: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: how many public inputs records vote at. Default: as many as "
            "--expected-records and the budget let win clearly.",
        ),
    ] = None
    expected_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Neighbour: about how many records all parties have: your guess, since none of them "
            "tells. Default: 10000.",
        ),
    ] = None
    most_votes: Annotated[
        int | None,
        typer.Option(min=1, help="Neighbour: most votes of one party on one count. Default: 4095."),
    ] = None
    votes_per_patient: Annotated[
        int | None,
        typer.Option(
            min=1, help="Neighbour, --unit patient: most votes of one patient. Default: 1."
        ),
    ] = None


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
