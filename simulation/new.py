"""``pate new``: the folder of a campaign, with a file of options for each role, and example data."""

from __future__ import annotations

import shlex
import string
from typing import TYPE_CHECKING, Final, cast

import typer

from pate.errors import DiskError, ProtocolError, UsageError
from pate.runtime.config import EXPLAINED, text_of, write_new
from pate.runtime.options import names_in
from protos.bounds import MAX_PARTIES, check_name

if TYPE_CHECKING:
    from pathlib import Path

    import click

#: Most parties of the example data; with more, each has too few digits to train teachers.
_MOST_SAMPLES: Final = 12
_SERVER: Final = "server.toml"
_PARTY: Final = "party.toml"
#: Of a number of parties.
_DIGITS: Final = 9


def begin(folder: Path, parties: str, public: Path | None) -> tuple[str, ...]:
    """Write the files of a campaign, with example data if ``public`` is None; return all roles' commands."""
    names = _names(parties)
    if public is not None and not public.exists():
        raise UsageError(f"there is no public set at {public}")
    if public is None and len(names) > _MOST_SAMPLES:
        raise UsageError(f"the digits are enough for {_MOST_SAMPLES} parties, not for {len(names)}")
    for name in (_SERVER, _PARTY):
        if (folder / name).exists():
            raise UsageError(f"{folder / name} is there already: name a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"cannot make {folder}: {error.strerror or error}") from error
    if public is None:
        _write_examples(folder, names)
    data = [f"./{name}" for name in names] if public is None else ["PATH"]
    typed = "./public.npz" if public is None else str(public.resolve())
    commands = [
        f"pate-server --config {_SERVER}",
        *(f"pate-party start --config {_PARTY} --data {each}" for each in data),
        f"pate-student train --public {shlex.quote(typed)}",
    ]
    files = {_SERVER: _server_file(parties, typed), _PARTY: _party_file()}
    said = "\n".join(
        ["", "The commands of all roles, in this folder:", *(f"  {each}" for each in commands)]
    )
    for name, (command, values, head) in files.items():
        write_new(folder / name, text_of(command, values, f"{head}\n{EXPLAINED}\n{said}"))
    return tuple(commands)


def _names(parties: str) -> tuple[str, ...]:
    """Return the names of the parties: the given ones, or so many hospitals."""
    if parties.strip().isdecimal():
        number = int(parties[:_DIGITS])
        if not 1 <= number <= MAX_PARTIES:
            raise UsageError(f"--parties is 1 to {MAX_PARTIES}, or names")
        return tuple(map(_hospital, range(number)))
    names = names_in(parties)
    try:
        for name in names:
            check_name(name)
    except ProtocolError as error:
        raise UsageError(f"--parties: {error}") from error
    if len(set(names)) < len(names):
        raise UsageError(f"--parties {parties}: each name once")
    return names


def _hospital(number: int) -> str:
    return f"hospital_{string.ascii_lowercase[number]}" if number < 26 else f"hospital_{number + 1}"


def _server_file(parties: str, public: str) -> tuple[click.Command, dict[str, object], str]:
    from aggregator_server.cli.main import app

    command = typer.main.get_command(app)
    shown = {each.name: each.default for each in command.params}
    stated = {name: shown[name] for name in ("campaign", "aggregator", "epsilon")}
    head = "The coordinator's options of a campaign: pate-server --config server.toml"
    return command, {**stated, "parties": parties, "public": public}, head


def _party_file() -> tuple[click.Command, dict[str, object], str]:
    from party.cli.main import app

    command = cast("click.Group", typer.main.get_command(app)).commands["start"]
    head = "A data holder's options: pate-party start --config party.toml --data PATH"
    return command, {"server": "127.0.0.1:9092"}, head


def _write_examples(folder: Path, names: tuple[str, ...]) -> None:
    from simulation.datasets import deal, digits, write_split
    from simulation.demo import PUBLIC, TEST

    write_split(folder, deal(digits(), len(names), public=PUBLIC, test=TEST), names)
