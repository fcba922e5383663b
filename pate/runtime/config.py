"""A command's options as a TOML file: ``--config`` reads it, ``--write-config`` and ``pate new`` write it."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations of a callback
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from pate.errors import DiskError, UsageError
from pate.foreign import toml_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Options of one call, which no file keeps.
_OF_ONE_CALL: Final = frozenset({"config", "write_config", "as_json"})
#: What the reader of a file that was written must know.
EXPLAINED: Final = (
    "Remove the # of an option to state it, and replace words in capitals by values. Paths begin in "
    "the folder where the command runs."
)
#: Stands for a choice whose default depends on other options. Left as it is, it is refused: any of the
#: choices would be taken, and could protect less than the default.
_ONE_OF_THEM: Final = "CHOICE"
_OF_TYPER: Final = re.compile(r"version$|(install|show)_completion$")


def load(context: click.Context, value: Path | None) -> Path | None:
    """Take the options of a file as the defaults of a command."""
    if value is None:
        return None
    try:
        table = toml_table(value.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"cannot read the configuration file {value}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{value} is not valid TOML: {error}") from error
    known = {_key(each): each.name for each in options_of(context.command)}
    settings: dict[str, object] = {}
    for key, setting in table.items():
        name = known.get(key)
        if name is None:
            raise UsageError(
                f"{value}: no option is called {key!r}; there are: {', '.join(sorted(known))}"
            )
        settings[name] = setting
    context.default_map = {**(context.default_map or {}), **settings}
    return value


def options_of(command: click.Command) -> Iterator[click.Option]:
    """Yield the options of a command that a file may have."""
    for each in command.params:
        if isinstance(each, click.Option) and each.name and not _OF_TYPER.match(each.name):
            yield each


def text_of(command: click.Command, values: Mapping[str, object], head: str) -> str:
    """Return a configuration file under lines of ``head``: ``values``, and other options as comments."""
    from pate.runtime.help import panel_of, place_of  # it imports rich

    lines, panel = [f"# {line}".rstrip() for line in head.splitlines()], ""
    kept = [each for each in options_of(command) if each.name not in _OF_ONE_CALL]
    for each in sorted(kept, key=lambda each: place_of(panel_of(each))):
        if panel_of(each) != panel:
            panel = panel_of(each)
            lines += ["", f"# --- {panel} ---"]
        lines += ["", f"# {' '.join((each.help or '').split())}"]
        if isinstance(each.type, click.Choice):
            lines.append(f"# One of: {', '.join(each.type.choices)}.")
        value = values.get(each.name or "")
        if value not in (None, (), []):
            lines.append(f"{_key(each)} = {toml_value(value)}")
        else:
            lines.append(f"#{_key(each)} = {_example(each)}")
    return "\n".join(lines) + "\n"


def write_given(context: click.Context, path: Path) -> None:
    """Write the options that a command was given, typed or in a file, for the next call."""
    write_new(path, given_text(context, str(path)))
    click.echo(f"{path} written. Now: {_call(context, str(path))}")


def given_text(context: click.Context, path: str) -> str:
    """Return the options that a command was given as the text of a configuration file."""
    unset = (None, ParameterSource.DEFAULT)
    given: dict[str, object] = {}
    # `pate-server` takes them before `start`, too.
    for level in [context] if context.parent is None else [context.parent, context]:
        found = {name: level.get_parameter_source(name) for name in level.params}
        given |= {name: level.params[name] for name, at in found.items() if at not in unset}
    head = f"The options of {_call(context, path)}\n{EXPLAINED}"
    return text_of(context.command, given, head)


def _call(context: click.Context, path: str) -> str:
    return f"{context.command_path} --config {shlex.quote(path)}"


def write_new(path: Path, text: str) -> None:
    """Write a configuration file where none is."""
    try:
        # Somebody may have typed a database's password, which the server would refuse.
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: name a new file") from None
    except OSError as error:
        raise DiskError(f"cannot write {path}: {error.strerror or error}") from error


def _key(option: click.Option) -> str:
    """Return the name of an option in a file: its first long form."""
    return next(each[2:] for each in option.opts if each.startswith("--"))


def _example(option: click.Option) -> str:
    """Return the default of an option, or what stands for its value in the help."""
    if option.default not in (None, (), []) and not callable(option.default):
        return toml_value(option.default)
    if option.is_flag:
        return "false"
    if isinstance(option.type, click.Choice):
        return toml_value(_ONE_OF_THEM)
    if option.nargs > 1:
        return f"[{', '.join((option.metavar or 'N').split())}]"
    number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    shown = (option.metavar or "N") if number else f'"{option.metavar or "TEXT"}"'
    return f"[{shown}]" if option.multiple else shown


def toml_value(value: object) -> str:
    """Return a value of an option in TOML, whose strings JSON's are, but for one character."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
