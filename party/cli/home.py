"""A party's home: its name and screen, its keys and enrolment, and copies of its ledger."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from party.options import OwnOptions, name_of
from pate.errors import ProtocolError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.command import print_json
from pate.runtime.home import default_home, locked, private_directory
from pate.runtime.options import HomeOption, JsonOption, of_output, of_storage
from pate.runtime.screen import Screen
from pate.start import STOPS
from pate.storage import options

if TYPE_CHECKING:
    from collections.abc import Iterator

#: ``--name`` of a command about a home that is there: ``the_home`` and ``named_home`` take it.
NameOption = Annotated[
    str | None,
    of_storage("--name", help="The party, if several are at home here.", metavar="NAME"),
]


def screen_of(name: str) -> Screen:
    """Return this process's screen, whose lines bear the party's name: several may share a terminal."""
    STOPS.who = name
    return Screen("pate-party", name)


def home_of(home: Path | None, name: str | None) -> Path | None:
    """Return the home that ``--home`` or ``--name`` states, whether it is there or not; None for neither."""
    if home is not None and name is not None:
        raise UsageError("--home and --name both say whose home is meant: give one of them")
    return home if name is None else default_home("party") / _valid(name)


def the_home(home: Path | None, name: str | None, *, with_ledger: bool = True) -> Path:
    """Return the home that was stated, or the only one in the state directory."""
    from party.ledger.ledger import LEDGER_FILE

    if home is not None and name is None:
        return home
    stated, above = home_of(home, name), default_home("party")
    found = sorted(
        path for path in above.glob("*/") if not with_ledger or (path / LEDGER_FILE).exists()
    )
    what = "a ledger" if with_ledger else "a home"
    if not found:
        raise UsageError(f"no party has {what} in {above}: give its --home")
    names = ", ".join(path.name for path in found)
    if stated is not None and stated not in found:
        raise UsageError(f"{stated.name} has no {what[2:]} in {above}; these have one: {names}")
    if stated is None and len(found) > 1:
        raise UsageError(f"several parties have {what} in {above}: give the --name of one: {names}")
    return stated or found[0]


def _valid(name: str) -> str:
    try:
        return check_name(name)
    except ProtocolError as error:
        raise UsageError(f"{error}; give one with --name") from error


def checked_name(name: str, place: Path, *, asked: bool) -> str:
    """Return the party's name: that of its enrolment, or else ``name``."""
    from party.identity.enrolment import Enrolment

    with contextlib.ExitStack() as held:
        if place.exists():
            held.enter_context(locked(place / "lock", "another pate-party"))
        enrolment = Enrolment.load(place)
    if enrolment is not None and not asked:
        return enrolment.name
    if enrolment is not None and _valid(name) != enrolment.name:
        raise UsageError(
            f"{place} is enrolled as {enrolment.name}, not as {name}: leave out --name, or name "
            "another --home"
        )
    return _valid(name)


@contextlib.contextmanager
def at_home(options: OwnOptions, called: str | None = None) -> Iterator[tuple[str, Path, Screen]]:
    """Yield the name, home and screen of the party of a command, whose home is its own for the block."""
    asked = options.name or called or name_of(options.data or Path())
    place = options.home or default_home("party") / asked
    name = checked_name(asked, place, asked=options.name is not None)
    screen = screen_of(name)
    if options.home is None and options.name is None and not place.exists():
        from party.identity.enrolment import Enrolment

        enrolled = sorted(filter(Enrolment.stands_in, place.parent.glob("*/")))
        if enrolled:
            screen.say(
                "a new party, by the name of its file; a party that is enrolled here goes on with its "
                f"--name: {', '.join(path.name for path in enrolled)}"
            )
    private_directory(place)
    with locked(place / "lock", "another pate-party"):
        yield name, place, screen


# --- become known to a server, and replace a key --------------------------------------------------


def enroll(
    bundle: Annotated[
        Path, typer.Argument(help="The bundle that the coordinator gave you.", metavar="BUNDLE")
    ],
    answer: Annotated[
        Path | None,
        of_output(help="Write the answer here instead of sending it.", metavar="FILE"),
    ] = None,
    new_identity: Annotated[
        bool,
        of_storage("--new-identity", help="Make a new identity key, after a revocation."),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make this party's keys and enrol by BUNDLE, once.

    The private keys stay here. If the server cannot be reached, its coordinator gets an answer as a file, which holds no secret.

    If it broke off, give the same command again: the same answer is sent.
    """  # noqa: E501 - a help text is folded where it is shown
    from party.identity.enrolment import enrol, read_bundle
    from pate.formats.enrolment import fingerprint, line_of_party, readable

    invitation = read_bundle(bundle, dt.datetime.now(dt.UTC))
    screen = screen_of(invitation.name)
    place = private_directory(home or default_home("party") / invitation.name)
    screen.say(
        f"enrolling as {invitation.name} with {invitation.server}; its authority is "
        f"{readable(fingerprint(invitation.ca))}: compare it with the coordinator's"
    )
    with locked(place / "lock", "another pate-party"):
        done = enrol(
            invitation,
            place,
            file=answer or Path(f"{invitation.name}.answer.json"),
            send=answer is None,
            new_identity=new_identity,
        )
    screen.say(f"your identity key is {done.identity.hex()}; keys are kept in {place}")
    screen.say(
        "in [parties] of a policy.toml, yours or another party's: "
        + line_of_party(invitation.name, done.identity)
    )
    if done.answer is None:
        at = "" if home is None else f" --home {home}"
        screen.say(
            f"{invitation.server} has confirmed the enrolment; next: `pate-party start --name "
            f"{invitation.name}{at} --data PATH`"
        )
    else:
        screen.say(
            f"{done.why}: give {done.answer} to the coordinator, for `pate-server admit "
            f"{done.answer.name}`"
        )
    if done.waits:
        screen.say(
            "the enrolment that you have is used until then: when it was admitted, `pate-party "
            f"enroll {bundle}` again, while the server runs"
        )
    if as_json:
        print_json(
            {
                "party": invitation.name,
                "server": invitation.server,
                "identity": done.identity.hex(),
                "answer": None if done.answer is None else str(done.answer),
            }
        )


def new_sealing_key(
    home: HomeOption = None, name: NameOption = None, as_json: JsonOption = False
) -> None:
    """Make a new sealing key, if the old one may have leaked.

    Other parties seal shares for it in masked campaigns by envelope. The server learns the new one from the next description.
    Your keys ahead that wait for a sum are deleted.

    A campaign whose keys ahead have left, and that has not asked for votes, continues without this party.
    """  # noqa: E501 - a help text is folded where it is shown
    from party.identity.keys import new_sealing_key as make
    from party.voting.ahead import BUNDLES_FILE, AheadFile
    from pate.errors import UsageError
    from pate.masking.ahead.store import drop_stale
    from pate.masking.keys import KeyPair

    place = the_home(home, name, with_ledger=False)
    if not place.is_dir():
        raise UsageError(f"{place} is not the home of a party")
    with locked(place / "lock", "another pate-party"):
        public = KeyPair(make(place)).public
        bundles = place / BUNDLES_FILE
        if bundles.exists():
            drop_stale(AheadFile(bundles), public, int(time.time()))
    if as_json:
        print_json({"home": str(place), "sealing": public.hex()})
        return
    screen = Screen("pate-party")
    screen.say(f"the new sealing key of {place} is {public.hex()}; the old one is deleted")
    screen.say(
        "campaigns that have your keys ahead, and have not asked for your votes, continue without you"
    )


# --- copies of the ledger and the noise -----------------------------------------------------------

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
