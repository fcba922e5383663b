"""``pate-party backup``, ``restore`` and ``forget``."""

from __future__ import annotations

from typing import Annotated, Final

from party.cli.naming import NameOption, home_of, the_home
from pate.errors import UsageError
from pate.runtime.command import print_json
from pate.runtime.home import default_home
from pate.runtime.options import HomeOption, JsonOption, of_storage
from pate.runtime.screen import Screen
from pate.storage import options

_ALLOW_NEW: Final = (
    "what was answered after that is forgotten: let the policy allow only campaigns over public sets "
    "that this party never saw, and no series that it has voted in: it may not know who has"
)


def backup(
    out: options.OutOption,
    home: HomeOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy this party's ledger and noise to the folder --out.

    Also while it runs; the copy is verified. It is as private as the party's home. Keys, enrolment,
    policy and teachers are not in it.
    """
    from party.backup import back_up

    made = back_up(the_home(home, name), out)
    options.say_made(Screen("pate-party"), made, "the ledger", as_json=as_json)


def restore(
    folder: options.BackupArgument,
    head: options.HeadOption = None,
    entries_lost: Annotated[
        bool,
        of_storage("--entries-lost", help="Accept that answers after the copy are forgotten."),
    ] = False,
    home: HomeOption = None,
    name: NameOption = None,
    signed_by: options.SignedByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore the ledger and noise in BACKUP to a home without.

    It needs --head or --entries-lost. Only the files that a party's backup has are written, and none
    is overwritten. A backup that another key signed than the identity in the home is refused.
    """
    from party.backup import named_home
    from party.backup import restore as put_back

    place = home_of(home, name) or named_home(folder, default_home("party"))
    done = put_back(
        folder,
        place,
        head=head,
        entries_lost=entries_lost,
        signed_by=signed_by,
    )
    what = f"restored the ledger in {done['folder']} up to entry {done['head']}"
    also = [_ALLOW_NEW] if entries_lost else []
    options.say_restored(Screen("pate-party"), done, what, *also, as_json=as_json)


def forget(
    entries_lost: Annotated[
        bool,
        of_storage("--entries-lost", help="Accept that answers missing here are forgotten."),
    ] = False,
    home: HomeOption = None,
    name: NameOption = None,
    as_json: JsonOption = False,
) -> None:
    """Continue without entries that the ledger has lost.

    For a ledger that is gone, or an older copy, when no newer backup is left.

    `pate-party start` refuses both: a party that forgot what it answered can be made to answer twice.
    """
    from party.backup import forget as go_on

    if not entries_lost:
        raise UsageError(
            "what the ledger lacks is forgotten for good: if there is a backup, `pate-party restore` "
            "it; else say --entries-lost, and then allow only campaigns over public sets that are "
            "new to you"
        )
    place = the_home(home, name, with_ledger=False)
    head = go_on(place)
    if as_json:
        print_json({"head": head, "folder": str(place)})
        return
    screen = Screen("pate-party")
    screen.say(f"{place} goes on with its ledger up to entry {head}")
    screen.say(_ALLOW_NEW)
