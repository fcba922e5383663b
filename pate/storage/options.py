"""What the commands that make and restore backups of any role share: options, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pate.runtime.command import print_json
from pate.runtime.options import of_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.runtime.screen import Screen

OutOption = Annotated[
    Path, of_storage(help="The folder to make for this one backup.", metavar="DIR")
]
BackupArgument = Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")]
HeadOption = Annotated[
    str | None,
    of_storage(help="A head that the copy must have.", metavar="NUMBER:DIGEST"),
]
SignedByOption = Annotated[
    str | None,
    of_storage(
        "--signed-by",
        help="Key of who signed the backup. Default: of the identity in --home",
        metavar="KEY",
    ),
]


def say_made(screen: Screen, made: Mapping[str, object], what: str, *, as_json: bool) -> None:
    """Say what a backup holds, and what to note of it."""
    say_restored(
        screen,
        made,
        f"{made['folder']} holds {what} up to its entry {made['head']}, and verifies",
        as_json=as_json,
    )
    if not as_json:
        screen.say(
            "note the head in another place than the copy's: whoever restores is asked for the newest"
        )


def say_restored(
    screen: Screen, done: Mapping[str, object], what: str, *also: str, as_json: bool
) -> None:
    """Say what was restored, and who signed the backup."""
    if as_json:
        print_json(done)
        return
    signed = f"signed by {done['signer']}" if done["signer"] else "not signed"
    nothing = "" if done["signer"] else ": nothing shows whether somebody altered it"
    for line in (what, f"the backup is {signed}{nothing}", *also):
        screen.say(line)
