"""A party's name, its home, and the screen that bears its name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

from pate.errors import ProtocolError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.home import default_home, locked
from pate.runtime.options import of_storage
from pate.runtime.screen import Screen
from pate.start import STOPS

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
