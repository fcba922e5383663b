"""``pate-party``: the program of a data holder."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import NoReturn

import typer

from party.cli import envelopes, home, ledger, synthesize
from party.options import CheckOptions, StartOptions
from pate.runtime.child import fork_ahead
from pate.runtime.command import print_json, run
from pate.runtime.forked import importing
from pate.runtime.help import Commands
from pate.runtime.options import takes

app = Commands(
    no_args_is_help=True,
    help="Take part in a PATE campaign with your own data. Only votes leave this machine: no record, "
    "no model weight, no score, and not the number of your records.\n\nFor example: pate-party start "
    "--data ./hospital_a",
)


@takes(StartOptions)
def start(options: StartOptions) -> None:
    """Train teachers, join a campaign, vote, leave at its end.

    Teachers are trained once and reused while data and settings stay the same. A start that was
    killed continues where it was: give the same command again.
    """
    options.require_sense()
    with importing():
        from party.flower.internals import SUPERNODE_MAIN
        from party.monitoring import Status, watched
        from party.session import take_part

    fork_ahead(SUPERNODE_MAIN)  # before anything of this party's is read
    with contextlib.ExitStack() as held:
        known_as, place, screen = held.enter_context(home.at_home(options))
        status = Status()
        if options.metrics_port is not None:
            door = watched(status, place, options.metrics_host, options.metrics_port)
            screen.say(f"metrics and health: {held.enter_context(door)}/metrics")
        ending = take_part(options, known_as, place, screen, status)
    if options.as_json:
        print_json({"party": known_as, **asdict(ending)})


@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Check the configuration before taking part.

    Give it the options of `pate-party start`, as far as you know them: none is needed. It works
    before and after `pate-party enroll`, and while a party runs; nothing is changed, and no teacher
    is trained.

    One line for each finding: ok, warning, failed or unknown, and what to do. What it prints holds no
    record and no number of records (unless you ask with --counts), so with --json, which leaves out
    what each column looks like, it may be shown to the coordinator. The exit code is 0 if nothing
    failed, else that of the first failure; 44 if something was not found out in time.
    """
    from party.preflight.checks import checks_of
    from pate.preflight import present

    raise typer.Exit(present(checks_of(options), as_json=options.as_json))


# In the order of a party's year, which is that of --help.
for command in (
    home.enroll,
    check,
    start,
    ledger.ledger,
    ledger.verify,
    envelopes.answer,
    envelopes.train,
    envelopes.watch,
    synthesize.synthesize,
    synthesize.merge,
    home.backup,
    home.restore,
    home.forget,
    home.new_sealing_key,
):
    app.command()(command)


def main() -> NoReturn:
    """Entry point of ``pate-party``."""
    run(app, "pate-party")
