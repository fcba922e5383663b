"""``pate-party synthesize`` and ``merge``, and how ``pate-party ledger`` prints their releases."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from party.cli.home import screen_of
from party.synthesis.options import SynthesisOptions
from pate.runtime.command import print_json
from pate.runtime.home import locked, private_directory, write_file
from pate.runtime.options import JsonOption, of_output, takes
from pate.runtime.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from party.ledger.synthesis import Synthesis, SynthesisRecord
    from pate.accounting.filters import Delta
    from pate.storage.hash_chain import Json


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


def in_words(record: SynthesisRecord, delta: Delta) -> Iterator[str]:
    """Yield lines about one release; ``delta`` is that of the party's cumulative epsilon."""
    from party.ledger.accountant import cumulative_epsilon

    made = record.synthesis
    yield f"synthetic rows {made.id}, reserved on {_day(record)}"
    yield f"  made: at most {made.rows} rows by {made.method}, {made.release}, of the schema {made.schema}"
    if record.spent_at is None:
        yield "  written: as far as is known, no; they count all the same"
    else:
        yield f"  written, SHA-256 {record.output}"
    if record.model is not None:
        yield f"  model kept, SHA-256 {record.model}: more rows of it cost nothing"
    yield f"  cost: {_cost(made)}"
    if not made.free:
        yield f"  by our own accountant: {cumulative_epsilon([], delta, [made]).in_words}"


def as_json(record: SynthesisRecord) -> dict[str, Json]:
    """Return one release; the costs are exact, as text."""
    return {
        **record.synthesis.body(),
        "reserved_on": _day(record),
        "output": record.output,
        "model_kept": record.model,
        "state": "reserved" if record.spent_at is None else "spent",
    }


def _day(record: SynthesisRecord) -> str:
    """Return when it was reserved: only the date.

    Learning a model from more records takes longer, so exact times of its start and of its end, or of
    the next release, would reveal about how many records there are.
    """
    return record.reserved_at[:10]


def _cost(made: Synthesis) -> str:
    from pate.formats.privacy_statement import rounded_up

    if made.parent is not None:
        return f"nothing more: their model was paid for with synthetic rows {made.parent}"
    parts = [f"rho {float(made.rho):.4g}"]
    if made.epsilon is not None:
        parts.insert(0, f"pure epsilon {rounded_up(float(made.epsilon))}")
    if made.delta:
        parts.append(f"delta {float(made.delta):.3g}")
    return f"{', '.join(parts)}, per {made.unit}"
