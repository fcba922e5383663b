"""``pate-party``: the program of a data holder."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from party.cli import envelopes, home, ledger
from party.options import CheckOptions, StartOptions
from party.synthesis.options import SynthesisOptions
from pate.runtime.child import fork_ahead
from pate.runtime.command import print_json, run
from pate.runtime.forked import importing
from pate.runtime.help import Commands
from pate.runtime.home import locked, private_directory, write_file
from pate.runtime.options import JsonOption, of_output, takes
from pate.runtime.screen import Screen

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


@takes(SynthesisOptions)
def synthesize(options: SynthesisOptions) -> None:
    """Make synthetic rows under differential privacy.

    They are made of your table, to be a campaign's public set. The cost is entered in this party's
    ledger before the data are looked at, adds to what its votes cost, and is never given back. More
    rows of the same model (--model) cost nothing.

    For example: pate-party synthesize --data ./hospital_a.csv --schema schema.json --rows 1000
    --epsilon 1 --out public.parquet
    """
    from party.ledger.ledger import LEDGER_FILE
    from party.synthesis.release import make, would_be
    from pate.data.read import require_there

    place = options.place
    screen = home.screen_of(options.name or place.name)
    if options.data is not None:
        require_there(options.data)  # before anything is made for it
    if not options.dry_run:
        private_directory(place)
    with contextlib.ExitStack() as stack:
        if place.exists():
            stack.enter_context(locked(place / "lock", "another pate-party"))
        if options.model is None and not (place / LEDGER_FILE).exists():
            screen.say(
                f"{place} has no ledger yet, so a new one begins, in which nothing was ever charged; "
                "if these records were used under another name, that name has another ledger, which "
                "this one knows nothing of: choose it with --home or --name",
                "warning",
            )
        found = (would_be if options.dry_run else make)(options, screen)
    if options.as_json:
        print_json(found)


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of synthetic rows, of one schema.", metavar="FILE..."),
    ],
    out: Annotated[Path, of_output(help="The file of all their rows.", metavar="FILE.parquet")],
    as_json: JsonOption = False,
) -> None:
    """Merge several parties' synthetic rows into one public set.

    Each row once. Nothing is charged: the files are public. What each of them cost its party stands
    in the result.
    """
    from party.synthesis.files import merge as merged
    from party.synthesis.files import to_bytes
    from party.synthesis.release import Places

    places = Places(out=out)
    table, about = merged(files)
    write_file(places.out, to_bytes(table, about), mode=0o644)
    screen = Screen("pate-party")
    screen.say(f"{out}: {len(table)} rows")
    for source in about.sources:
        screen.say(source.in_words)
    if as_json:
        print_json({"rows": len(table), **asdict(about)})


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
    synthesize,
    merge,
    home.backup,
    home.restore,
    home.forget,
    home.new_sealing_key,
):
    app.command()(command)


def main() -> NoReturn:
    """Entry point of ``pate-party``."""
    run(app, "pate-party")
