"""``pate-party``: what a data holder runs."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from party import cli_backup, cli_enrol, cli_ledger, cli_synthesize
from party.check import cli as cli_check
from party.cli_enrol import HomeOption
from pate.enrolment import check_name
from pate.errors import ProtocolError, UsageError
from pate.runtime.command import ConfigOption, JsonOption, print_json, run
from pate.runtime.home import default_home, locked, private_directory
from pate.runtime.imports import importing
from pate.runtime.lifeline import fork_ahead
from pate.runtime.screen import Screen

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Take part in a PATE campaign with your own data. Only votes leave this machine: no record, "
    "no model weight, no score, and not the number of your records.\n\nFor example: pate-party start "
    "--data ./hospital_a --server 127.0.0.1:9092 --teachers 50",
)


cli_enrol.register(app)
cli_ledger.register(app)
cli_backup.register(app)
cli_synthesize.register(app)


@app.command()
def start(
    data: Annotated[
        Path,
        typer.Option(
            help="Your records: a folder of class folders of images, an .npz, IDX (MNIST) files, or "
            "CSV/Parquet with --label.",
            metavar="PATH",
        ),
    ],
    server: Annotated[
        str | None,
        typer.Option(
            help="Where the campaign's server is. Default: the one that you are enrolled with, "
            "else 127.0.0.1:9092.",
            metavar="HOST:PORT",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Your name on the roster. Default: the data's file name.")
    ] = None,
    teachers: Annotated[
        int,
        typer.Option(
            min=1, help="Into how many disjoint shards, one teacher each, to cut the data."
        ),
    ] = 10,
    votes: Annotated[
        str,
        typer.Option(
            help="What votes: teachers, as trained here; neighbour, your records themselves, once "
            "each, for which no teacher is trained; any, whichever the campaign asks for."
        ),
    ] = "any",
    model: Annotated[
        str,
        typer.Option(
            help="Kind of teacher. Images: linear (on fixed features), nearest (few drawn records of "
            "many classes), cnn or resnet. Tables: "
            "logistic, forest or boosting. auto: linear for images; of tables each teacher chooses "
            "among the three by cross-validation within its own shard."
        ),
    ] = "auto",
    device: Annotated[
        str, typer.Option(help="Where to train networks: auto, cpu or cuda.")
    ] = "auto",
    label: Annotated[
        str | None, typer.Option(help="Table: the column with the class.", metavar="COLUMN")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Table: the column that names the patient. All rows of one patient then go to one "
            "teacher, and the campaign can protect patients and not only records.",
            metavar="COLUMN",
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="The class list, comma separated. Default: the classes in the data."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            help="Your own copy of the public set; without it the server sends one.", metavar="PATH"
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Table: a column of --data or --public to leave out; repeat for more.",
            metavar="COLUMN",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse to start over a cell or a record that cannot be read. Without it such a cell "
            "counts as missing and such a record takes no part; both are counted on this screen only.",
        ),
    ] = False,
    home: HomeOption = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="What this site agrees to. Default: policy.toml in your state directory.",
            metavar="FILE",
        ),
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(min=0, help="Give up when the server does not answer for so many seconds."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Answer /metrics (for Prometheus), /healthz and /readyz on this port; 0: any free "
            "one. Default: nowhere.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            help="Address for --metrics-port. Whoever reaches it may read all of it; nothing there "
            "is about your records."
        ),
    ] = "127.0.0.1",
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Train teachers on your data, join a campaign, vote, and leave when it has ended.

    Teachers are trained once and reused while data and settings stay the same. A start that was
    killed goes on where it was: give the same command again.
    """
    del config  # read before the other options, by its callback
    with importing():
        from party.flower_internals import SUPERNODE_MAIN
        from party.session import Settings, take_part
        from party.watch import Board, watched

    fork_ahead(SUPERNODE_MAIN)  # before anything of this party's is read
    screen = Screen("pate-party")
    known_as = name or _name_of(data)
    place = home or default_home("party") / known_as
    known_as = _checked_name(known_as, place, asked=name is not None)
    private_directory(place)
    settings = Settings(
        name=known_as,
        data=data,
        server=server,
        teachers=teachers,
        votes=votes,
        model=model,
        device=device,
        label=label,
        group=group,
        classes=tuple(c.strip() for c in classes.split(",")) if classes else None,
        public=public,
        drop=tuple(drop or ()),
        strict=strict,
        home=place,
        policy=policy,
        max_wait=max_wait,
    )
    with contextlib.ExitStack() as held:
        held.enter_context(locked(place / "lock", "another pate-party"))
        board = Board()
        if metrics_port is not None:
            door = watched(board, place, metrics_host, metrics_port)
            screen.say(f"metrics and health: {held.enter_context(door)}/metrics")
        ending = take_part(settings, screen, board)
    if as_json:
        print_json({"party": known_as, **asdict(ending)})


cli_check.register(app, start)


def _name_of(data: Path) -> str:
    """Return a name made of what the data is called: its file or folder, less the endings."""
    return data.resolve().name.split(".")[0] or "party"


def _checked_name(name: str, place: Path, *, asked: bool) -> str:
    """Return the name that this party has: the one of its enrolment, or the one that it gives.

    Raises:
        UsageError: if it cannot be a name, or was asked for and is not that of the enrolment.
        StateError: if the enrolment in ``place`` is damaged.
    """
    from party.enrolment import Enrolment

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
