"""``pate-party backup``, ``restore`` and ``forget``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from party.cli.ledger import _home
from pate.errors import UsageError
from pate.runtime.command import print_json
from pate.runtime.home import default_home
from pate.runtime.options import HomeOption, JsonOption, SignedByOption, UnsignedOption
from pate.runtime.screen import Screen
from pate.storage.manifest import signed_line

OutOption = Annotated[
    Path, typer.Option(help="The folder to make for this one backup.", metavar="DIR")
]
_ALLOW_NEW: Final = (
    "what was answered after that is forgotten: let the policy allow only campaigns over public sets "
    "that this party never saw"
)
BackupArgument = Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")]


def register(app: typer.Typer) -> None:
    """Add the commands to ``pate-party``."""
    app.command()(backup)
    app.command()(restore)
    app.command()(forget)


def backup(
    out: OutOption,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy this party's ledger and noise to the folder --out, also while it runs, and verify the copy.

    It is as private as the party's home. Keys, enrolment, policy and teachers are not in it.
    """
    from party.backup import back_up

    made = back_up(_home(home), out)
    if as_json:
        print_json(made)
        return
    screen = Screen("pate-party")
    screen.say(f"{out} holds the ledger up to its entry {made['head']}, and verifies")
    screen.say(signed_line(str(made["signer"])))
    screen.say(
        "note the head in another place than the copy's: whoever restores is asked for the newest"
    )


def restore(
    folder: BackupArgument,
    head: Annotated[
        str | None,
        typer.Option(
            help="The last head that `pate-party ledger` showed, NUMBER:DIGEST, known from elsewhere "
            "than the copy. A copy that lacks it is refused."
        ),
    ] = None,
    entries_lost: Annotated[
        bool,
        typer.Option(
            "--entries-lost",
            help="Go on although what this party answered after the copy is forgotten: it no longer "
            "guards those queries against being asked again, and no longer counts them.",
        ),
    ] = False,
    home: HomeOption = None,
    signed_by: SignedByOption = None,
    unsigned: UnsignedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Put the ledger and noise in BACKUP back into a home that has none.

    It needs --head or --entries-lost. Only the files that a party's backup has are written, and none
    is overwritten. A backup that another key signed than the identity in the home is refused.
    """
    from party.backup import named_home
    from party.backup import restore as put_back

    place = home or named_home(folder, default_home("party"))
    done = put_back(
        folder,
        place,
        head=head,
        entries_lost=entries_lost,
        signed_by=signed_by,
        unsigned=unsigned,
    )
    if as_json:
        print_json(done)
        return
    screen = Screen("pate-party")
    screen.say(f"restored the ledger in {done['folder']} up to entry {done['head']}")
    screen.say(signed_line(str(done["signer"])))
    if entries_lost:
        screen.say(_ALLOW_NEW)


def forget(
    entries_lost: Annotated[
        bool,
        typer.Option(
            "--entries-lost",
            help="I know that what this party answered and its ledger lacks is forgotten: it no "
            "longer guards those queries against being asked again, and no longer counts them.",
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on although the ledger is gone, or is an older copy, and no newer backup is left.

    `pate-party start` refuses both: a party that forgot what it answered can be made to answer twice.
    """
    from party.backup import forget as go_on

    if not entries_lost:
        raise UsageError(
            "what the ledger lacks is forgotten for good: if there is a backup, `pate-party restore` "
            "it; else say --entries-lost, and then allow only campaigns over public sets that are "
            "new to you"
        )
    place = home or _only_home()
    head = go_on(place)
    if as_json:
        print_json({"head": head, "folder": str(place)})
        return
    screen = Screen("pate-party")
    screen.say(f"{place} goes on with its ledger up to entry {head}")
    screen.say(_ALLOW_NEW)


def _only_home() -> Path:
    """Return the one party's home in the state directory.

    Raises:
        UsageError: if there are several, or none.
    """
    place = default_home("party")
    found = [path for path in place.iterdir() if path.is_dir()] if place.is_dir() else []
    if len(found) != 1:
        raise UsageError(f"{place} has the homes of {len(found)} parties: give --home")
    return found[0]
