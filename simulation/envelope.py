"""``pate envelope show``: what an envelope asks, before anyone answers it."""

from __future__ import annotations

import textwrap
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, Final

import typer

from pate.runtime.command import print_json
from pate.runtime.help import Commands
from pate.runtime.options import JsonOption  # noqa: TC001
from pate.runtime.screen import Display

app = Commands(
    no_args_is_help=True,
    help="Look into envelopes.\n\n"
    "They are files that carry a campaign's messages to a party, and back.",
)
_WIDTH: Final = 80


@app.callback()
def _envelope() -> None:
    """Group of commands."""


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="An envelope.", metavar="FILE")],
    as_json: JsonOption = False,
) -> None:
    """Print who asks what, what would leave, and what it costs.

    All of it is read from the signed messages; nothing is answered, recorded or sent. Compare the key
    with that of your enrolment (`pate-party ledger` prints it for each campaign).

    For example: pate envelope show campaign-660bc95d.round-1.for-hospital_a.pate
    """
    from pate.envelopes.file import opened
    from pate.exact import write
    from protos.envelopes import cover_of

    with opened(file) as envelope:
        lines = [*cover_of(envelope)]
        if as_json:
            fields = write(envelope.manifest)
            sizes = [part["size"] for part in fields.pop("parts")]
            found = {**fields, "sha256": envelope.digest.hex(), "sizes": sizes, "cover": lines}
            print_json(found)
            return
    width = min(Display().width, _WIDTH)
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        typer.echo(textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False))
