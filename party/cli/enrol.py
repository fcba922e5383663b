"""``pate-party enroll`` and ``new-sealing-key``: become known to a server, and replace a key."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Annotated

import typer

from party.cli.naming import NameOption, screen_of, the_home
from pate.runtime.command import print_json
from pate.runtime.home import default_home, locked, private_directory
from pate.runtime.options import HomeOption, JsonOption, of_output, of_storage
from pate.runtime.screen import Screen


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
