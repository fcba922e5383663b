"""``pate-party synthesize`` and ``merge``, and how ``pate-party ledger`` prints their releases."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from party.cli.home import screen_of
from party.synthesis.options import SynthesisOptions
from pate.runtime.command import print_json
from pate.runtime.home import locked, private_directory, write_file
from pate.runtime.options import JsonOption, of_output, takes
from pate.runtime.screen import Screen


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
    screen = screen_of(options.name or place.name)
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
