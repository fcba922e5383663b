"""``pate-server check``: the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from click.core import ParameterSource

from pate.errors import UsageError
from pate.runtime.home import default_home

#: Options that name a file or folder.
_PATHS = frozenset({"public", "home"})
_HELP = (
    "Look for what would keep this server from running a campaign, before it tries.\n\n"
    "Give it the options of the campaign, as far as you know them: none is needed. It works "
    "before and after `pate-server init`, and while a server runs; nothing is changed.\n\n"
    "One line a check: ok, warning or failed, and what to do. The exit code is 0 if nothing "
    "failed, else that of the first failure."
)


def register(app: typer.Typer, serve: Callable[..., None]) -> None:
    """Add the command to ``pate-server``, with the options that ``pate-server`` itself has."""

    def check(context: typer.Context, **options: Any) -> None:
        raise typer.Exit(_check(context, options))

    # The same names, help and defaults as a start has them, so that its command, or its --config,
    # can be given as it is; what is of no use here is not looked at.
    options = [
        *signature(serve, eval_str=True).parameters.values(),
        *signature(_more, eval_str=True).parameters.values(),
    ]
    own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
    check.__signature__ = signature(check).replace(parameters=own)  # type: ignore[attr-defined]
    check.__annotations__ = {each.name: each.annotation for each in own} | {"return": None}
    app.command(help=_HELP)(check)


def _more(
    *,
    expected_teachers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="About how many teachers all parties have, to say how many queries the budget pays "
            "for. Default: 10 a party.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for a check; reading data may take 12 times that."),
    ] = 5.0,
) -> None:
    """Hold the options that a start has not."""


def _check(context: typer.Context, options: dict[str, Any]) -> int:
    """Run the checks and return the exit code."""
    from aggregator_server.check.asked import Asked
    from aggregator_server.check.plan import checks_of
    from aggregator_server.identities.store import FOLDER
    from pate.runtime.preflight import present

    given = _given(context, options)
    known = {each.name for each in fields(Asked)}
    values = {name: value for name, value in options.items() if name in known}
    values["drop"] = tuple(values["drop"] or ())
    values["home"] = values["home"] or default_home("server")
    name = values["campaign"]
    if not name or name.startswith(".") or "/" in name or name == FOLDER:
        raise UsageError(f"{name!r} cannot be the name of a campaign")
    values["settings"] = options
    values["given"] = given
    return present(checks_of(Asked(**values)), as_json=options["as_json"])


def _given(context: typer.Context, options: dict[str, Any]) -> frozenset[str]:
    """Return the names of the options that were given, before or behind the word ``check``.

    What was given before it, as to a start, is put in its place.
    """
    unset = (None, ParameterSource.DEFAULT)
    given = {name for name in options if context.get_parameter_source(name) not in unset}
    above = context.parent
    for name in options.keys() - given if above is not None else ():
        if above is not None and above.get_parameter_source(name) not in unset:
            value = above.params[name]
            # As typed: what becomes of it is seen to where it is parsed, and that is here.
            options[name] = Path(value) if name in _PATHS and value is not None else value
            given.add(name)
    return frozenset(given)
