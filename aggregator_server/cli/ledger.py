"""``pate-server ledger show`` and ``verify``, ``export`` and ``certificate``: reports from a ledger."""

from __future__ import annotations

import json
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
CertificateOption = Annotated[
    Path, of_output(help="Where to write the certificate, as JSON.", metavar="FILE")
]
HeadOption = Annotated[
    str | None,
    of_storage(help="A head that must be in the chain.", metavar="NUMBER:DIGEST"),
]


def register(app: typer.Typer, ledger_app: typer.Typer) -> None:
    """Add the commands to ``pate-server`` and to ``pate-server ledger``."""
    app.command()(export)
    app.command()(certificate)
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


def certificate(
    out: CertificateOption, home: HomeOption = None, campaign: CampaignOption = "campaign"
) -> None:
    """Write by how many votes each label was safe (private).

    No epsilon covers it. For the server's own use: which labels no single party could have changed
    by voting otherwise. The file is for this user alone; whoever publishes any of it publishes
    votes.
    """
    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.ledger.store.place import place_of
    from aggregator_server.results.certificate import certificate_of

    with Ledger.open(place_of(folder_of(home, campaign))) as ledger:
        state = ledger.state()
        found = {round_: ledger.predictions(round_) for round_ in state.predictions}
        predictions = {round_: held for round_, held in found.items() if held is not None}
        made = certificate_of(state, ledger.counts(), predictions)
    write_file(out, (json.dumps(made.to_json(), indent=2) + "\n").encode())
    Screen("pate-server").say(
        f"{len(made.labels)} labels looked at; {out} is private to this server: it is made of votes"
    )


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
