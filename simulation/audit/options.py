"""The options of ``pate audit`` and their valid combinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final, Literal, get_args

import typer

from pate.errors import UsageError
from pate.noise import NoiseLawName
from pate.runtime.options import CommandOptions

Audited = Literal[
    "lnmax", "gnmax", "confident-gnmax", "interactive-gnmax",
    "distributed-gnmax", "neighbour", "distributed-neighbour", "gated-gnmax",
]  # fmt: skip
#: The mechanism behind a gate; the gate is audited with it.
GATED: Final = "gated-gnmax"
#: The mechanisms whose observer sees the noisy counts, not only their labels. With noise shares it is
#: the same for all three, whose labels are computed from what the server sees.
COUNTED: Final = ("distributed-gnmax", "neighbour", "distributed-neighbour")
#: The mechanisms of records that vote.
RECORDS: Final = ("neighbour", "distributed-neighbour")
#: The options that each mechanism has.
PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(get_args(Audited), ("sigma2",)),
    "lnmax": ("scale",),
    **dict.fromkeys(RECORDS, ("sigma2", "scale", "code", "answer", "noise_law")),
    **dict.fromkeys(("confident-gnmax", "interactive-gnmax"), ("threshold", "sigma1", "sigma2")),
}

_PARAMETERS: Final = (
    "threshold", "sigma1", "sigma2", "scale", "code", "answer", "noise_law",
)  # fmt: skip

_audit = partial(typer.Option, rich_help_panel="Audit")
_settings = partial(typer.Option, rich_help_panel="Mechanism", metavar="NUMBER")
_canary = partial(typer.Option, rich_help_panel="Canary")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(CommandOptions):
    """The options; each field is the option of that name, None if omitted."""

    kind: Annotated[
        Literal["mechanism", "campaign", "canary"],
        typer.Argument(help="What to attack.", metavar="[mechanism|campaign|canary]"),
    ] = "mechanism"
    mechanism: Annotated[Audited | None, _audit(help="Which. Default: all, for `mechanism`")] = None
    votes_per_unit: Annotated[
        int | None, _audit(min=1, help="Votes of a query that one unit has. Default: 2")
    ] = None
    queries: Annotated[
        int | None, _audit(min=1, help="Queries of a run; canary: how many canaries.")
    ] = None
    runs: Annotated[
        int | None, _audit(min=1, help="Runs that count, in each of the two worlds.")
    ] = None
    delta: Annotated[float | None, _audit(help="Default: 1e-2; geometric: 1e-6; canary: 1e-5")] = (
        None
    )
    confidence: Annotated[float, _audit(help="Confidence of each lower bound.")] = 0.999
    threshold: Annotated[
        int | None, _settings(help="Votes that the top class needs. Default: 60")
    ] = None
    sigma1: Annotated[
        str | None, _settings(help="Noise of the threshold test. Default: 3 times --sigma2")
    ] = None
    sigma2: Annotated[
        str | None, _settings(help="Noise on each count, in votes. Default: as --sigma1")
    ] = None
    scale: Annotated[
        str | None, _settings(help="Laplace noise (lnmax); neighbour: geometric noise, no --sigma2")
    ] = None
    code: Annotated[str | None, _audit(help="neighbour: nearest or dense-K.", metavar="CODE")] = (
        None
    )
    answer: Annotated[
        str | None, _audit(help="neighbour: what a record says.", metavar="ANSWER")
    ] = None
    noise_law: Annotated[
        NoiseLawName | None,
        typer.Option(
            rich_help_panel="Mechanism", help="neighbour: default gaussian, or as --scale"
        ),
    ] = None
    parties: Annotated[int, _canary(min=1, help="How many parties.")] = 1
    teachers: Annotated[int, _canary(min=1, help="Teachers of each party.")] = 1

    def __post_init__(self) -> None:
        if self.mechanism is not None:
            for name in _PARAMETERS:
                if name not in PARAMETERS[self.mechanism] and getattr(self, name) is not None:
                    option = name.replace("_", "-")
                    raise UsageError(
                        f"--{option} has no meaning for {self.mechanism}: leave it out"
                    )
        elif any(getattr(self, name) is not None for name in ("code", "answer", "noise_law")):
            raise UsageError(
                "--code, --answer and --noise-law are of records that vote: state --mechanism "
                "neighbour or distributed-neighbour"
            )
        if self.delta is not None and not 0.0 < self.delta < 1.0:
            raise UsageError(f"--delta lies between 0 and 1, got {self.delta}")
        if not 0.5 <= self.confidence < 1.0:
            raise UsageError(f"--confidence lies between 0.5 and 1, got {self.confidence}")
        if self.kind != "mechanism" and self.mechanism in (*COUNTED, GATED):
            raise UsageError(f"{self.mechanism} is audited as a mechanism: leave {self.kind} out")
        if self.kind == "canary" and (
            self.votes_per_unit not in (None, 1) or self.runs is not None
        ):
            raise UsageError(
                "an audit with canaries is one run, and a canary reaches one vote: leave out "
                "--runs and --votes-per-unit"
            )
