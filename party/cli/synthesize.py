"""``pate-party synthesize`` and ``merge``: synthetic rows in place of a public set."""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Final

import typer

from pate.errors import UsageError
from pate.runtime.command import ConfigOption, JsonOption, print_json
from pate.runtime.home import default_home, locked, private_directory, write_file
from pate.runtime.screen import Screen

_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?(e-?[0-9]{1,2})?", re.ASCII)
_SPAN: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)

HomeOption = Annotated[
    Path | None,
    typer.Option(
        help="Where this party keeps its ledger and keys. Default: your state directory.",
        metavar="DIR",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``pate-party``."""
    app.command()(synthesize)
    app.command()(merge)


def synthesize(
    schema: Annotated[
        Path,
        typer.Option(
            help="The public schema of the table; where this party is enrolled, with the "
            "coordinator's signature beside it.",
            metavar="FILE",
        ),
    ],
    rows: Annotated[int, typer.Option(help="How many rows to write.", metavar="N")],
    data: Annotated[
        Path | None,
        typer.Option(help="Your records: a CSV or Parquet table. Not needed with --model."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file of rows, for the coordinator's --public.", metavar="FILE.parquet"
        ),
    ] = None,
    epsilon: Annotated[
        str,
        typer.Option(help="What the model may cost; any number of seedless rows costs no more."),
    ] = "1",
    method: Annotated[
        str,
        typer.Option(
            help="How the rows are modelled: l1; cfs, as in the paper; marginals, each column by "
            "itself; uniform, which looks at no record and costs nothing."
        ),
    ] = "l1",
    group: Annotated[
        str | None,
        typer.Option(
            help="The column that names the patient, of whom there may be one row each: then "
            "patients are protected, not only records.",
            metavar="COLUMN",
        ),
    ] = None,
    keep_label: Annotated[
        bool,
        typer.Option("--keep-label", help="Write the label's column, too; rows may then be alike."),
    ] = False,
    model_out: Annotated[
        Path | None,
        typer.Option(help="Keep the model, for more rows at no cost.", metavar="FILE.npz"),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Write rows of this model, which an earlier release paid for; they cost nothing.",
            metavar="FILE.npz",
        ),
    ] = None,
    release: Annotated[
        str,
        typer.Option(
            help="seedless: every row is drawn whole. seeded: rows are made from single records and "
            "pass a test; each attempt costs (needs --method cfs)."
        ),
    ] = "seedless",
    k: Annotated[int, typer.Option(help="Records that a seeded row must be plausible for.")] = 50,
    gamma: Annotated[
        str, typer.Option(help="Ratio of probabilities that counts as plausible, above 1.")
    ] = "4",
    eps0: Annotated[str, typer.Option(help="Of the noise in the seeded test.")] = "1",
    omega: Annotated[
        str | None,
        typer.Option(help="Seeded: how many attributes are drawn anew: 9, 5-11 or 5,7."),
    ] = None,
    attempts: Annotated[
        int | None,
        typer.Option(help="Seeded: how many are made and charged. Default: 1.25 per row."),
    ] = None,
    accounting: Annotated[
        str, typer.Option(help="Seeded: paper, or tight, which is as sound and less.")
    ] = "paper",
    test: Annotated[
        str,
        typer.Option(help="Seeded: randomised, or deterministic, which is NOT private."),
    ] = "randomised",
    allow_non_dp: Annotated[
        bool,
        typer.Option(
            "--allow-non-dp",
            help="Allow a release that is not private. No epsilon is stated for this party again.",
        ),
    ] = False,
    delta: Annotated[str, typer.Option(help="Of a seeded release, all attempts.")] = "1e-6",
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Refuse if all that left this home would come to more, these rows included. "
            "largest_epsilon of your policy holds besides."
        ),
    ] = None,
    max_delta: Annotated[
        float | None,
        typer.Option(help="Delta at which --max-epsilon is counted. Default: the policy's."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="A column of --data to leave out; repeat for more.", metavar="COLUMN"),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Refuse over a row that the schema does not describe. Without it such a row takes no "
            "part, and is counted on this screen only.",
        ),
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="What this site agrees to. Default: policy.toml in your state directory.",
            metavar="FILE",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Your name, for the default --home, as with `start`.")
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything and say what it would cost; nothing is written."
        ),
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Make synthetic rows of your table, under differential privacy, to be a campaign's public set.

    The cost is entered in this party's ledger before the data are looked at, adds to what its votes
    cost, and is never given back. More rows of the same model (--model) cost nothing.

    For example: pate-party synthesize --data ./hospital_a.csv --schema schema.json --rows 1000
    --epsilon 1 --out public.parquet
    """
    del config  # read before the other options, by its callback
    from party.ledger.ledger import LEDGER_FILE
    from party.synthesis.release.plan import Asked
    from party.synthesis.release.run import Settings, make, would_be

    asked = Asked(
        rows=rows,
        epsilon=_exact("--epsilon", epsilon),
        method=method,
        release=release,
        delta=_exact("--delta", delta),
        k=k,
        gamma=_exact("--gamma", gamma),
        epsilon0=_exact("--eps0", eps0),
        resampled=None if omega is None else _spans(omega),
        attempts=attempts,
        accounting=accounting,
        test=test,
        allow_non_dp=allow_non_dp,
    )
    place = home or default_home("party") / _name(name, data)
    settings = Settings(
        asked=asked,
        schema=schema,
        home=place,
        data=data,
        out=out,
        group=group,
        drop=tuple(drop or ()),
        strict=strict,
        keep_label=keep_label,
        model=model,
        model_out=model_out,
        policy=policy,
        max_epsilon=max_epsilon,
        max_delta=max_delta,
    )
    screen = Screen("pate-party")
    if not dry_run:
        private_directory(place)
    with contextlib.ExitStack() as held:
        if place.exists():
            held.enter_context(locked(place / "lock", "another pate-party"))
        if model is None and not (place / LEDGER_FILE).exists():
            screen.say(
                f"{place} has no ledger yet, so a new one begins, in which nothing was ever charged; "
                "if these records were used under another name, that name has another ledger, which "
                "this one knows nothing of: choose it with --home or --name",
                "warning",
            )
        found = would_be(settings, screen) if dry_run else make(settings, screen)
    if as_json:
        print_json(found)


def merge(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files of synthetic rows, of one schema.", metavar="FILE..."),
    ],
    out: Annotated[Path, typer.Option(help="The file of all their rows.", metavar="FILE.parquet")],
    as_json: JsonOption = False,
) -> None:
    """Make one public set of several parties' synthetic rows, each row once.

    Nothing is charged: the files are public. What each of them cost its party stands in the result.
    """
    from party.synthesis.release.parquet import merge as merged
    from party.synthesis.release.parquet import to_bytes
    from party.synthesis.release.release import Places

    places = Places(out=out)
    table, about = merged(files)
    write_file(places.out, to_bytes(table, about), mode=0o644)
    screen = Screen("pate-party")
    screen.say(f"{out}: {len(table)} rows")
    for source in about.sources:
        screen.say(source.in_words)
    if as_json:
        print_json({"rows": len(table), **asdict(about)})


def _name(given: str | None, data: Path | None) -> str:
    """Return the name of the party as `start` would."""
    if given is None and data is None:
        raise UsageError("with --model and without --data, say whose it is: --name or --home")
    return given or (data.resolve().name.split(".")[0] if data else "") or "party"


def _exact(option: str, text: str) -> Fraction:
    if not _NUMBER.fullmatch(text.strip()):
        raise UsageError(f"{option} is a number such as 0.5 or 1e-6, got {text!r:.40}")
    return Fraction(text.strip())


def _spans(text: str) -> tuple[int, ...]:
    """Return the numbers of ``9``, ``5-11`` or ``5,7``."""
    found: set[int] = set()
    for piece in text.split(","):
        span = _SPAN.fullmatch(piece.strip())
        if span is None:
            raise UsageError(
                f"--omega is a number, or some, such as 9, 5-11 or 5,7; got {text!r:.40}"
            )
        low = int(span[1])
        found.update(range(low, int(span[2] or low) + 1))
    if not found:
        raise UsageError(f"--omega {text!r:.40} has no number")
    return tuple(sorted(found))
