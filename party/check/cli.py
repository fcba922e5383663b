"""``pate-party check``: the command."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from pate.enrolment import Bundle
from pate.errors import PateError
from pate.runtime.home import default_home

_HELP = (
    "Look for what would keep this party from taking part, before it tries.\n\n"
    "Give it the options of `pate-party start`, as far as you know them: none is needed. It "
    "works before and after `pate-party enroll`, and while a party runs; nothing is changed, "
    "and no teacher is trained.\n\n"
    "One line a check: ok, warning or failed, and what to do. What it prints holds no record "
    "and no number of records (unless you ask with --counts), so it may be shown to the "
    "coordinator. The exit code is 0 if nothing failed, else that of the first failure."
)


def register(app: typer.Typer, start: Callable[..., None]) -> None:
    """Add the command to ``pate-party``, with the options that its ``start`` has."""

    def check(**options: Any) -> None:
        raise typer.Exit(_check(**options))

    # The same names, help and defaults as `start` has them, so that its command, or its --config,
    # can be given as it is; what is of no use here is not looked at.
    own = [
        _optional(each) if each.default is Parameter.empty else each
        for each in signature(start, eval_str=True).parameters.values()
    ]
    more = signature(_more, eval_str=True).parameters.values()
    both = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in (*own, *more)]
    check.__signature__ = signature(check).replace(parameters=both)  # type: ignore[attr-defined]
    check.__annotations__ = {each.name: each.annotation for each in both} | {"return": None}
    app.command(help=_HELP)(check)


def _optional(needed: Parameter) -> Parameter:
    """Return a parameter that may be left out, and is None then."""
    kind, *about = get_args(needed.annotation)
    return needed.replace(annotation=Annotated[kind | None, *about], default=None)


def _more(
    *,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="The coordinator's bundle, before it is enrolled: check its server.",
            metavar="FILE",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            help="What the campaign's inputs are, as its coordinator tells: `images 28x28x1`, or "
            "`table age:number, sex:category`.",
            metavar="LINE",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="What the campaign protects: record, patient or party; patient needs --group."
        ),
    ] = None,
    counts: Annotated[
        bool,
        typer.Option(
            "--counts", help="Tell numbers of records too. They are private: do not pass them on."
        ),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server and look up no name.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds for a question to the server; reading data may take 12 times that.",
        ),
    ] = 5.0,
) -> None:
    """Hold the options that `start` has not."""


def _check(*, as_json: bool, **options: Any) -> int:
    """Run the checks and return the exit code."""
    from party.check.asked import Asked
    from party.check.plan import checks_of
    from pate.runtime.preflight import present

    known = {each.name for each in fields(Asked)}
    values = {name: value for name, value in options.items() if name in known}
    classes = values["classes"]
    values["classes"] = tuple(c.strip() for c in classes.split(",")) if classes else None
    values["drop"] = tuple(values["drop"] or ())
    values["home"] = values["home"] or _home(values["name"], values["bundle"], values["data"])
    return present(checks_of(Asked(**values)), as_json=as_json)


def _home(name: str | None, bundle: Path | None, data: Path | None) -> Path:
    """Return the home that `enroll` or `start` would take; else that of the only party here."""
    above = default_home("party")
    if name is not None:
        return above / name
    if bundle is not None:
        with contextlib.suppress(OSError, PateError):  # told by the checks
            return above / Bundle.from_json(bundle.read_bytes()).name
    if data is not None:
        return above / (data.resolve().name.split(".")[0] or "party")
    found = [path for path in above.glob("*") if path.is_dir()]
    return found[0] if len(found) == 1 else above / "party"
