"""``pate-party``: the program of a data holder."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, NoReturn

import typer

from party.cli import backup, enrol, ledger, synthesize
from party.options import CheckOptions, StartOptions, name_of
from pate.errors import ProtocolError, UsageError
from pate.formats.enrolment import check_name
from pate.runtime.child import fork_ahead
from pate.runtime.command import print_json, run
from pate.runtime.help import Commands
from pate.runtime.home import default_home, locked, private_directory
from pate.runtime.imports import importing
from pate.runtime.options import takes
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

app = Commands(
    no_args_is_help=True,
    help="Take part in a PATE campaign with your own data. Only votes leave this machine: no record, "
    "no model weight, no score, and not the number of your records.\n\nFor example: pate-party start "
    "--data ./hospital_a",
)


enrol.register(app)
ledger.register(app)
backup.register(app)
synthesize.register(app)


@app.command()
@takes(StartOptions)
def start(options: StartOptions) -> None:
    """Train teachers, join a campaign, vote, leave at its end.

    Teachers are trained once and reused while data and settings stay the same. A start that was
    killed continues where it was: give the same command again.
    """
    with importing():
        from party.flower.internals import SUPERNODE_MAIN
        from party.monitoring import Status, watched
        from party.session import take_part

    fork_ahead(SUPERNODE_MAIN)  # before anything of this party's is read
    screen = Screen("pate-party")
    known_as = options.name or name_of(options.data)
    place = options.home or default_home("party") / known_as
    known_as = _checked_name(known_as, place, asked=options.name is not None)
    private_directory(place)
    with contextlib.ExitStack() as held:
        held.enter_context(locked(place / "lock", "another pate-party"))
        status = Status()
        if options.metrics_port is not None:
            door = watched(status, place, options.metrics_host, options.metrics_port)
            screen.say(f"metrics and health: {held.enter_context(door)}/metrics")
        ending = take_part(options, known_as, place, screen, status)
    if options.as_json:
        print_json({"party": known_as, **asdict(ending)})


@app.command()
@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Check the configuration before taking part.

    Give it the options of `pate-party start`, as far as you know them: none is needed. It works
    before and after `pate-party enroll`, and while a party runs; nothing is changed, and no teacher
    is trained.

    One line a check: ok, warning or failed, and what to do. What it prints holds no record and no
    number of records (unless you ask with --counts), so with --json, which leaves out what each column
    looks like, it may be shown to the coordinator. The exit code is 0 if nothing failed, else that of
    the first failure.
    """
    from party.preflight.checks import checks_of
    from pate.preflight import present

    raise typer.Exit(present(checks_of(options), as_json=options.as_json))


def _checked_name(name: str, place: Path, *, asked: bool) -> str:
    """Return the party's name: that of its enrolment, or else ``name``.

    Raises:
        UsageError: if the name is invalid, or differs from that of the enrolment.
        StateError: if the enrolment in ``place`` is damaged.
    """
    from party.identity.enrolment import Enrolment

    with contextlib.ExitStack() as held:
        if place.exists():
            held.enter_context(locked(place / "lock", "another pate-party"))
        enrolment = Enrolment.load(place)
    if enrolment is not None and not asked:
        return enrolment.name
    try:
        check_name(name)
    except ProtocolError as error:
        raise UsageError(f"{error}; give one with --name") from error
    if enrolment is not None and name != enrolment.name:
        raise UsageError(
            f"{place} is enrolled as {enrolment.name}, not as {name}: leave out --name, or name "
            "another --home"
        )
    return name


def main() -> NoReturn:
    """Entry point of ``pate-party``."""
    run(app, "pate-party")
