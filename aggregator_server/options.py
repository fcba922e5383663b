"""Options that several commands of ``pate-server`` have, told once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
KnownHeadOption = Annotated[
    str | None,
    typer.Option(
        "--head",
        help="The last head that the server had, NUMBER:DIGEST, known from elsewhere than its ledger. "
        "A ledger that lacks it is refused.",
    ),
]
CloseOption = Annotated[
    bool,
    typer.Option(
        "--close",
        help="In a database, where the campaign's folder is lost: end the campaign where its ledger "
        "ends. Its labels are kept, and nothing more is answered; safe if the database is an old one.",
    ),
]
HostOption = Annotated[
    str,
    typer.Option(
        help="Address to listen on for parties. Others than loopback need `pate-server init`."
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port to listen on for parties. Default: the one that `pate-server init` was told, else "
        "9092.",
        show_default=False,
    ),
]
StudentPortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="Loopback port on which the student gets its labels.")
]
PageOption = Annotated[
    bool, typer.Option("--page/--no-page", help="Serve a page that shows how the campaign stands.")
]
PageHostOption = Annotated[
    str,
    typer.Option(help="Address of the page. Others than loopback need `pate-server init`."),
]
PagePortOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port of the page; 0: any free one. Default: 9094, or a free one if that is taken.",
        show_default=False,
    ),
]
PublicOption = Annotated[
    Path | None,
    typer.Option(
        help="The unlabelled public set: a folder of images, an .npz, an IDX file, CSV or Parquet.",
        metavar="PATH",
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Table: a column of --public to leave out; repeat for more.", metavar="COLUMN"
    ),
]
WindowOption = Annotated[
    tuple[int, int] | None,
    typer.Option(
        help="Images of more than 8 bits a pixel: the values that become black and white, for the public "
        "set and for every party, such as 0 4095. It is part of the campaign's terms.",
        metavar="LOW HIGH",
        show_default=False,
    ),
]
PatienceOption = Annotated[
    float,
    typer.Option(
        min=0,
        help="Seconds to wait for the remaining parties once --min-parties have voted.",
    ),
]
LingerOption = Annotated[
    float,
    typer.Option(
        min=-1,
        help="Seconds to keep serving labels after the end until a student has them all; -1: for ever.",
    ),
]
