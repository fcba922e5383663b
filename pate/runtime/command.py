"""Start and end of every command: one-line errors, exit codes, log format."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from typing import TYPE_CHECKING, NoReturn

import click
import typer

from pate.errors import DiskError, PateError
from pate.printable import print_only_printable, printable
from pate.runtime import forked
from pate.runtime.child import QUIET_FLOWER
from pate.runtime.log import FORMS, LOG, Line, everything_in_json, in_json, print_line
from pate.start import INTERRUPTED, STOPS

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Error numbers of an unwritable file system.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
#: Error numbers of an impossible path, or one that this user may not access.
_CLOSED = frozenset({
    errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG,
})  # fmt: skip
_COMPLETION = {
    "install_completion": "Install completion for this shell.",
    "show_completion": "Print the completion script for this shell.",
}
#: Longer paths are cut to their end.
_LONGEST_SHOWN = 200


def run(app: typer.Typer, name: str) -> NoReturn:
    """Run a program and exit: an error of ours is one line and its exit code, Ctrl-C is clean."""
    print_only_printable()
    # Flower's variables of the shell are removed, for forked processes, too.
    for variable in [each for each in os.environ if each.startswith("FLWR_")]:
        del os.environ[variable]
    os.environ.update(QUIET_FLOWER)
    STOPS.begin(name)
    STOPS.who = ""
    with forked.allowed():
        try:
            try:
                code = _exit_code(app, name)
            except Exception:
                if not STOPS.asked:
                    raise
                # The interrupt passed through code that turned it into an error of its own.
                code = _interrupted(name)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):  # the interpreter reports it, once
                    stream.flush()
            STOPS.end(code)
        except KeyboardInterrupt:  # one more, while the first was reported or the output written
            code = INTERRUPTED
            STOPS.end(code)
    # CPython ends a process by SIGINT, whatever its exit code, if a KeyboardInterrupt has left an exec of
    # text, such as the making of a dataclass in an import. The next exec of text makes it forget that.
    exec("")  # noqa: S102
    sys.exit(code)


def _exit_code(app: typer.Typer, name: str) -> int:
    # On an unexpected error typer's own call would print the values of all local variables with the
    # traceback: votes and keys, in a log. A plain traceback has none.
    try:
        program = program_of(app)
        STOPS.at_once = False
        code = program(prog_name=name, standalone_mode=False)
        if code == INTERRUPTED:  # typer catches Ctrl-C and returns this
            raise KeyboardInterrupt
    except click.ClickException as error:
        if in_json():
            _say_last(name, error.format_message(), "UsageError", error.exit_code)
        else:
            # Its message may have the name of a file, which a shell's pattern found.
            click.UsageError(printable(error.format_message()), getattr(error, "ctx", None)).show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted(name)
    except BrokenPipeError:
        # The reader of our output is gone; keep the interpreter's own flush from reporting it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except PateError as error:
        notes = getattr(error, "__notes__", ())
        _say_last(name, str(error), type(error).__name__, error.exit_code, notes)
        return error.exit_code
    except OSError as error:
        if error.errno not in _FULL and (error.errno not in _CLOSED or error.filename is None):
            raise
        text = f"{error.strerror}: {_shown(error.filename)}"
        _say_last(name, text, DiskError.__name__, DiskError.exit_code)
        return DiskError.exit_code
    return code if isinstance(code, int) else 0


def _interrupted(name: str) -> int:
    _say_last(name, "stopped", "Interrupted", INTERRUPTED)
    return INTERRUPTED


def _shown(path: object) -> str:
    """Return a path as part of one line."""
    if path is None:
        return "disk"
    text = os.fsdecode(path) if isinstance(path, bytes) else str(path)
    text = printable(text)
    return text if len(text) <= _LONGEST_SHOWN else f"…{text[-_LONGEST_SHOWN:]}"


def _say_last(name: str, text: str, kind: str, exit_code: int, notes: Sequence[str] = ()) -> None:
    """Print the error line of a command, and what follows it."""
    if in_json():
        level = "info" if exit_code == INTERRUPTED else "error"
        whole = "\n".join(map(printable, (text, *notes)))
        print_line(Line.now(name, whole, level, STOPS.who), kind=kind, exit_code=exit_code)
    else:
        for line in (f"{f'{name} {STOPS.who}'.rstrip()}: {text}", *notes):
            print(printable(line), file=sys.stderr)  # noqa: T201 - this is the screen


def program_of(app: typer.Typer) -> click.Command:
    """Return the program with ``--version``, and with ``--log`` for each of its commands."""
    program = typer.main.get_command(app)
    for param in program.params:
        if isinstance(param, click.Option) and param.name in _COMPLETION:
            param.help = _COMPLETION[param.name]  # typer's is two lines
    program.params.append(
        typer.core.TyperOption(
            param_decls=["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print the version and exit.",
            rich_help_panel="Output",
        )
    )
    _let_choose_log(program)
    _require_paths(program)
    return program


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"{context.info_name} {version('federated-pate')}")  # noqa: T201 - it is the result
        context.exit()


def _let_choose_log(program: click.Command) -> None:
    """Give ``program`` and each of its subcommands the option ``--log``."""
    program.params.append(
        typer.core.TyperOption(
            param_decls=["--log"],
            type=click.Choice(FORMS),
            default=None,
            expose_value=False,
            is_eager=True,  # so that errors of other options are printed in this form, too
            callback=_choose_log,
            envvar=LOG,
            help="Form of progress and errors on stderr.",
            rich_help_panel="Output",
        )
    )
    for command in getattr(program, "commands", {}).values():
        _let_choose_log(command)


class _UsablePath(click.Path):
    """A click path, refused if no file can have it."""

    def __init__(self, like: click.Path) -> None:
        super().__init__(path_type=like.type)
        vars(self).update(vars(like))
        self._like = like

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        try:
            os.lstat(value)
        except ValueError as error:
            self.fail(f"{_shown(value)}: {error}", param, ctx)
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                self.fail(f"{_shown(value)}: {error.strerror}", param, ctx)
        return self._like.convert(value, param, ctx)


def _require_paths(program: click.Command) -> None:
    """Make ``program`` and each of its subcommands refuse paths that no file can have."""
    for param in program.params:
        if isinstance(param.type, click.Path):
            param.type = _UsablePath(param.type)
    for command in getattr(program, "commands", {}).values():
        _require_paths(command)


def _choose_log(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    os.environ[LOG] = value  # child processes use the same log format
    if value == "json":
        everything_in_json(context.find_root().info_name or "pate")


def print_json(value: object) -> None:
    """Print one JSON object as the only content of the standard output."""
    print(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))  # noqa: T201
