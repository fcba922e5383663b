"""The options of ``pate-party synthesize``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from party.options import PolicyOption, name_of
from party.synthesis.choices import Accounting, Method, Release, Test
from pate.errors import UsageError
from pate.runtime.home import default_home
from pate.runtime.options import CommandOptions, DropOption, HomeOption, of_data

if TYPE_CHECKING:
    from party.synthesis.release.plan import ReleaseRequest

_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?(e-?[0-9]{1,2})?", re.ASCII)
_SPAN: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)
_seeded = partial(typer.Option, rich_help_panel="Rows made from records (--release seeded)")
_bounds = partial(typer.Option, rich_help_panel="What this site agrees to")


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions(CommandOptions):
    """What was asked for; each field is the option of that name.

    Raises:
        UsageError: for options that do not fit together.
        RefusedError: for a release that is not private, without leave.
    """

    schema: Annotated[
        Path,
        typer.Option(
            help="The public schema of the table; where this party is enrolled, with the "
            "coordinator's signature beside it.",
            metavar="FILE",
        ),
    ]
    rows: Annotated[int, typer.Option(help="How many rows to write.", metavar="N")]
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file of rows, for the coordinator's --public.", metavar="FILE.parquet"
        ),
    ] = None
    epsilon: Annotated[
        str,
        typer.Option(help="What the model may cost; any number of seedless rows costs no more."),
    ] = "1"
    method: Annotated[
        Method,
        typer.Option(
            help="How the rows are modelled. l1; cfs: as in the paper; marginals: each column by "
            "itself; uniform: looks at no record and costs nothing."
        ),
    ] = "l1"
    release: Annotated[
        Release,
        typer.Option(
            help="seedless: every row is drawn whole. seeded: rows are made from single records and "
            "pass a test; each attempt costs (needs --method cfs)."
        ),
    ] = "seedless"
    keep_label: Annotated[
        bool,
        typer.Option("--keep-label", help="Write the label's column, too; rows may then be alike."),
    ] = False
    model_out: Annotated[
        Path | None,
        typer.Option(help="Keep the model, for more rows at no cost.", metavar="FILE.npz"),
    ] = None
    model: Annotated[
        Path | None,
        typer.Option(
            help="Write rows of this model, which an earlier release paid for; they cost nothing.",
            metavar="FILE.npz",
        ),
    ] = None
    name: Annotated[
        str | None, typer.Option(help="Your name, for the default --home, as with `start`.")
    ] = None
    home: HomeOption = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything and say what it would cost; nothing is written."
        ),
    ] = False
    data: Annotated[
        Path | None, of_data(help="A CSV or Parquet table. Not needed with --model.")
    ] = None
    group: Annotated[
        str | None,
        of_data(
            help="The column that names the patient, of whom there may be one row each: then "
            "patients are protected, not only records.",
            metavar="COLUMN",
        ),
    ] = None
    drop: DropOption = None
    strict: Annotated[
        bool,
        of_data(
            "--strict",
            help="Refuse over a row that the schema does not describe. Without it such a row takes no "
            "part, and is counted on this screen only.",
        ),
    ] = False
    policy: PolicyOption = None
    max_epsilon: Annotated[
        float | None,
        _bounds(
            help="Refuse if all that left this home would come to more, these rows included. "
            "largest_epsilon of your policy holds besides."
        ),
    ] = None
    max_delta: Annotated[
        float | None,
        _bounds(help="Delta at which --max-epsilon is counted. Default: the policy's."),
    ] = None
    k: Annotated[int, _seeded(help="Records that a row must be plausible for.")] = 50
    gamma: Annotated[
        str, _seeded(help="Ratio of probabilities that counts as plausible, above 1.")
    ] = "4"
    eps0: Annotated[str, _seeded(help="Of the noise in the test.")] = "1"
    omega: Annotated[
        str | None, _seeded(help="How many attributes are drawn anew: 9, 5-11 or 5,7.")
    ] = None
    attempts: Annotated[
        int | None, _seeded(help="How many are made and charged. Default: 1.25 per row.")
    ] = None
    accounting: Annotated[
        Accounting, _seeded(help="tight is as sound as the paper's, and less.")
    ] = "paper"
    test: Annotated[Test, _seeded(help="deterministic is NOT private.")] = "randomised"
    allow_non_dp: Annotated[
        bool,
        _seeded(
            "--allow-non-dp",
            help="Allow a release that is not private. No epsilon is stated for this party again.",
        ),
    ] = False
    delta: Annotated[str, _seeded(help="Of all attempts together.")] = "1e-6"

    def __post_init__(self) -> None:
        asked, _ = self.asked, self.place
        if self.model is None:
            if self.data is None:
                raise UsageError("--data names the table that the rows are modelled on")
        elif self.model_out is not None:
            raise UsageError("--model is a model already: leave out --model-out")
        elif asked.release == "seeded":
            raise UsageError("--model makes seedless rows: seeds would be charged anew")
        if asked.release == "seeded":
            return  # its test checks them
        if asked.k < 1:
            raise UsageError(f"--k counts records, from 1 on, got {asked.k}")
        if asked.gamma <= 1:
            raise UsageError(f"--gamma is a number above 1, got {float(asked.gamma):g}")

    @cached_property
    def asked(self) -> ReleaseRequest:
        """The release that is asked for."""
        from party.synthesis.release.plan import ReleaseRequest

        return ReleaseRequest(
            rows=self.rows,
            epsilon=_exact("--epsilon", self.epsilon),
            method=self.method,
            release=self.release,
            delta=_exact("--delta", self.delta),
            k=self.k,
            gamma=_exact("--gamma", self.gamma),
            epsilon0=_exact("--eps0", self.eps0),
            resampled=None if self.omega is None else _spans(self.omega),
            attempts=self.attempts,
            accounting=self.accounting,
            test=self.test,
            allow_non_dp=self.allow_non_dp,
        )

    @property
    def place(self) -> Path:
        """This party's home: as given, or that which ``start`` would take."""
        if self.home is not None:
            return self.home
        if self.name is None and self.data is None:
            raise UsageError("with --model and without --data, say whose it is: --name or --home")
        return default_home("party") / (self.name or (name_of(self.data) if self.data else "party"))

    @property
    def unit(self) -> str:
        """What is protected."""
        return "record" if self.group is None else "patient"


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
