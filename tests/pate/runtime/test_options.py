"""A command's options are the annotated fields of one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.testing import CliRunner

from pate.runtime.options import takes

if TYPE_CHECKING:
    from click.testing import Result


@dataclass(frozen=True, kw_only=True)
class Base:
    place: Annotated[Path | None, typer.Option(help="Where.", metavar="DIR")] = None
    many: Annotated[list[str] | None, typer.Option(help="Which.")] = None
    seen: int = 7


@dataclass(frozen=True, kw_only=True)
class Needed(Base):
    place: Annotated[Path, typer.Option(help="Where.", metavar="DIR")] = field()


app = typer.Typer()
got: list[Base] = []


@app.command()
@takes(Base)
def look(options: Base) -> None:
    """Look at one thing,

    and then at
    another.
    """
    got.append(options)


@app.command()
@takes(Needed)
def act(options: Needed) -> None:
    """Act."""
    got.append(options)


def said(*words: str) -> Result:
    got.clear()
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


def test_a_command_gets_its_options_as_one_value() -> None:
    assert said("look").exit_code == said("look", "--many", "a", "--many", "b").exit_code == 0
    assert got == [Base(many=["a", "b"])]
    assert said("act", "--place", "here").exit_code == 0
    assert got == [Needed(place=Path("here"))]


def test_a_field_without_a_default_is_needed_and_one_without_an_option_is_none() -> None:
    missing = said("act")
    assert (missing.exit_code, "--place" in missing.output, got) == (2, True, [])
    assert said("look", "--seen", "8").exit_code == 2


def test_the_help_is_folded_where_it_is_shown() -> None:
    found = said("look", "--help").output
    assert "and then at another." in found
    assert "--place" in found
    assert "--seen" not in found
