"""How every command starts and ends: configuration file, one-line errors, exit codes."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tomllib
from pathlib import Path
from typing import Annotated, NoReturn

import click
import typer

from pate.errors import DiskError, PateError, UsageError
from pate.runtime.environment import QUIET_FLOWER

#: What a shell reports for a process that SIGINT ended.
INTERRUPTED = 130


def run(app: typer.Typer, name: str) -> NoReturn:
    """Run a command-line program and exit.

    An error of ours becomes one line on the standard error and its exit code; Ctrl-C is clean.
    """
    os.environ.update(QUIET_FLOWER)
    # A service manager's stop is as clean as Ctrl-C: the same way out, through every `finally`.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(_exit_code(app, name))


def _exit_code(app: typer.Typer, name: str) -> int:
    try:
        code = app(prog_name=name, standalone_mode=False)
        if code == INTERRUPTED:  # typer keeps Ctrl-C to itself and returns this
            raise KeyboardInterrupt
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print(f"{name}: stopped", file=sys.stderr)  # noqa: T201 - this is the screen
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter's own flush from saying so again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except PateError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201 - this is the screen
        return error.exit_code
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        print(f"{name}: {error.strerror}: {error.filename or 'disk'}", file=sys.stderr)  # noqa: T201
        return DiskError.exit_code
    return code if isinstance(code, int) else 0


def print_json(value: object) -> None:
    """Print one JSON object on the standard output, and nothing else ever goes there with it."""
    print(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))  # noqa: T201


def _load_config(context: click.Context, value: Path | None) -> Path | None:
    if value is None:
        return None
    try:
        table = tomllib.loads(value.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the configuration file {value}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{value} is not valid TOML: {error}") from error
    known = {p.name: p for p in context.command.params if p.name}
    settings: dict[str, object] = {}
    for key, setting in table.items():
        name = key.replace("-", "_")
        if name not in known:
            options = ", ".join(sorted(k.replace("_", "-") for k in known))
            raise UsageError(f"{value}: no option is called {key!r}; there are: {options}")
        settings[name] = setting
    context.default_map = {**(context.default_map or {}), **settings}
    return value


#: ``--config FILE``: a TOML file whose keys are the long options of the command.
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file with the same names as the options, without the dashes. Options win.",
        is_eager=True,
        callback=_load_config,
        metavar="FILE",
    ),
]

#: ``--json``: the result as one JSON object on the standard output.
JsonOption = Annotated[
    bool,
    typer.Option("--json", help="Print the result as one JSON object; progress stays on stderr."),
]
