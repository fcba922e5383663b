"""``pate-server envelopes``: which files are out and in, and the end of waiting for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aggregator_server.options import folder_of
from pate.campaign.options import CampaignOption
from pate.errors import StateError
from pate.printable import listed
from pate.runtime.command import print_json
from pate.runtime.help import Commands
from pate.runtime.options import HomeOption, JsonOption
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    import typer

    from aggregator_server.exchange.store import Store


def register(app: typer.Typer) -> None:
    """Add the group to ``pate-server``."""
    group = Commands(
        no_args_is_help=True,
        help="List envelopes, or stop waiting for them.\n\n"
        "They are files that carry a campaign's messages to parties without a connection "
        "(--envelopes), and back.",
    )
    group.command("list")(list_)
    group.command()(close)
    app.add_typer(group, name="envelopes")


def list_(
    home: HomeOption = None, campaign: CampaignOption = "campaign", as_json: JsonOption = False
) -> None:
    """Print which envelopes are out, and which were answered, by party.

    It works while the server runs.
    """
    from aggregator_server.exchange.presence import in_words

    found = [each.facts() for each in _store(home, campaign, read_only=True).envelopes()]
    if as_json:
        print_json({"envelopes": found})
        return
    screen = Screen("pate-server")
    for each in found:
        screen.say(in_words(each))
    if not found:
        screen.say("no envelope was made yet")


def close(
    home: HomeOption = None, campaign: CampaignOption = "campaign", as_json: JsonOption = False
) -> None:
    """Stop waiting for the votes that are out: continue without them.

    The server first takes in all answers that lie in its inbox: at once if it runs, else when it is
    resumed. Later answers to these envelopes are refused permanently. With too few parties left the
    campaign cannot continue, and nothing is released. The first envelopes, in which parties describe
    themselves, are always waited for.
    """
    closing = _store(home, campaign, read_only=False).end_wait()
    if as_json:
        print_json({"closing": closing})
    elif closing:
        Screen("pate-server").say(
            f"no answer so far: {listed(closing)}. A running server takes in what lies in its inbox, and "
            "continues without those that are still missing; else `pate-server resume` does"
        )
    else:
        Screen("pate-server").say("no votes are being waited for")


def _store(home: Path | None, campaign: str, *, read_only: bool) -> Store:
    from aggregator_server.exchange.store import FILE, Store

    path = folder_of(home, campaign) / FILE
    if not path.exists():
        raise StateError(
            f"no envelope was made in {path.parent}: --campaign and --home name another"
        )
    return Store(path, read_only=read_only)
