"""The options of ``pate-party synthesize``, and the release that they ask for."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from party.options import DecimalOption, MissingOption, PolicyOption, ThousandsOption, name_of
from pate.errors import UsageError
from pate.runtime.home import default_home
from pate.runtime.options import (
    CommandOptions,
    DropOption,
    HomeOption,
    of_data,
    of_output,
    of_privacy,
    of_storage,
)

#: Generators of rows, the default first.
Method = Literal["l1", "cfs"]
Release = Literal["seedless", "seeded"]

#: Most rows in one file.
MOST_ROWS: Final = 10**7
#: Attempts per wanted row.
_ATTEMPTS: Final = Fraction(5, 4)
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?(e-?[0-9]{1,2})?", re.ASCII)
_SPAN: Final = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", re.ASCII)
_seeded = partial(typer.Option, rich_help_panel="Seeded rows (--release seeded)")
_rows = partial(typer.Option, rich_help_panel="Rows")


@dataclass(frozen=True, kw_only=True)
class ReleaseRequest:
    """A request for synthetic rows, exact; one of ``resampled`` is chosen per attempt, None: of all."""

    rows: int
    epsilon: Fraction = Fraction(1)
    method: Method = "l1"
    release: Release = "seedless"
    delta: Fraction = Fraction(1, 10**6)
    k: int = 50
    gamma: Fraction = Fraction(4)
    epsilon0: Fraction = Fraction(1)
    resampled: tuple[int, ...] | None = None
    attempts: int | None = None

    def __post_init__(self) -> None:
        if type(self.rows) is not int or not 1 <= self.rows <= MOST_ROWS:
            raise UsageError(
                f"--rows must be a whole number from 1 to {MOST_ROWS}, got {self.rows}"
            )
        for name, value in (("epsilon", self.epsilon), ("eps0", self.epsilon0)):
            if not 0 < value <= 10**6:
                raise UsageError(f"--{name} must be a number above 0, got {float(value):g}")
        if not 0 < self.delta < 1:
            raise UsageError(f"--delta must be between 0 and 1, got {float(self.delta):g}")
        if self.release == "seedless":
            for option, given in (("--attempts", self.attempts), ("--omega", self.resampled)):
                if given is not None:
                    raise UsageError(
                        f"{option} is for seeds: a seedless release makes as many rows as it is "
                        "asked for; leave it out, or ask for --release seeded"
                    )
        elif self.method != "cfs":
            raise UsageError(f"--release seeded goes with --method cfs, not {self.method}")
        elif self.attempts is not None and self.attempts < 1:
            raise UsageError(
                f"--attempts must be a whole number of at least 1, got {self.attempts}"
            )

    @property
    def tries(self) -> int:
        """T, attempts of a seeded release."""
        return math.ceil(_ATTEMPTS * self.rows) if self.attempts is None else self.attempts


@dataclass(frozen=True, kw_only=True)
class SynthesisOptions(CommandOptions):
    """The options; each field is the option of that name."""

    schema: Annotated[Path, of_data(help="The public schema; if enrolled, signed.", metavar="FILE")]
    rows: Annotated[int, _rows(help="How many rows to write.", metavar="N")]
    out: Annotated[
        Path | None,
        of_output(help="The rows, for the coordinator's --public.", metavar="FILE.parquet"),
    ] = None
    epsilon: Annotated[str, of_privacy(help="What the model may cost.", metavar="NUMBER")] = "1"
    method: Annotated[Method, _rows(help="How rows are modelled.")] = "l1"
    release: Annotated[Release, _rows(help="Whole, or from single records.")] = "seedless"
    keep_label: Annotated[bool, _rows("--keep-label", help="Write the label's column, too.")] = (
        False
    )
    model_out: Annotated[
        Path | None,
        of_output(help="Store the model, for more rows at no cost.", metavar="FILE.safetensors"),
    ] = None
    model: Annotated[
        Path | None,
        of_data(
            help="Write rows of this stored model; they cost nothing.", metavar="FILE.safetensors"
        ),
    ] = None
    name: Annotated[
        str | None,
        of_storage(help="Your name, for the default --home, as with `start`.", metavar="NAME"),
    ] = None
    home: HomeOption = None
    dry_run: Annotated[
        bool, of_output("--dry-run", help="Check, and print the cost; write nothing.")
    ] = False
    data: Annotated[
        Path | None, of_data(help="A CSV or Parquet table; not with --model.", metavar="PATH")
    ] = None
    group: Annotated[
        str | None, of_data(help="Column of the patient, to protect patients.", metavar="COLUMN")
    ] = None
    drop: DropOption = None
    columns_of_schema: Annotated[
        bool,
        of_data(
            "--columns-of-schema", help="Leave out every column that the schema does not have."
        ),
    ] = False
    decimal: DecimalOption = "point"
    thousands: ThousandsOption = None
    missing: MissingOption = None
    strict: Annotated[
        bool, of_data("--strict", help="Refuse rows that the schema does not describe.")
    ] = False
    policy: PolicyOption = None
    max_epsilon: Annotated[
        float | None,
        of_privacy(help="Refuse if this party's epsilon would exceed this.", metavar="NUMBER"),
    ] = None
    max_delta: Annotated[
        float | None,
        of_privacy(help="Delta of --max-epsilon. Default: the policy's", metavar="NUMBER"),
    ] = None
    k: Annotated[int, _seeded(help="Records a row must be plausible for.")] = 50
    gamma: Annotated[str, _seeded(help="Plausible ratio, above 1.", metavar="NUMBER")] = "4"
    eps0: Annotated[str, _seeded(help="Epsilon of the test's noise.", metavar="NUMBER")] = "1"
    omega: Annotated[
        str | None, _seeded(help="Attributes drawn anew: 9, 5-11 or 5,7.", metavar="LIST")
    ] = None
    attempts: Annotated[int | None, _seeded(help="Made and charged. Default: 1.25 per row")] = None
    delta: Annotated[str, _seeded(help="Of all attempts together.", metavar="NUMBER")] = "1e-6"

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
        """The requested release."""
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
        )

    @property
    def place(self) -> Path:
        """This party's home: as given, or the one that ``start`` would use."""
        if self.home is not None:
            return self.home
        if self.name is None and self.data is None:
            raise UsageError("with --model and without --data, say whose it is: --name or --home")
        return default_home("party") / (self.name or (name_of(self.data) if self.data else "party"))

    @property
    def unit(self) -> str:
        """The unit of privacy."""
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
